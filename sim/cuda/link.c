/* link.c: the driver's linker, as far as there is something to link: one text of PTX, which comes out as it went in.
 *
 * Callers take what comes out for machine code and load it; the simulator loads texts. Invariant: a text is read when
 * it is added, so that what is wrong with it is said there. It must not know what is in a text. */
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "front.h"

typedef struct link_state {
  sim_object o;
  error_log log;
  char *text; /* what was added, and what comes out */
  size_t size;
} link_state;

CUresult do_cuLinkCreate_v2(unsigned n, int *options, void **values, CUlinkState *out) {
  sim_context *c;
  error_log log;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(log_of(n, options, values, &log));
  TRY(from(sim_context_of(&c)));
  link_state *l = calloc(1, sizeof *l);
  if (l == NULL) abort();
  sim_object_add(&l->o, SIM_LINK);
  l->log = log;
  *out = (CUlinkState)l->o.handle;
  return CUDA_SUCCESS;
}

CUresult do_cuLinkAddData_v2(CUlinkState handle, int type, void *data, size_t size, const char *name, unsigned n,
                             int *options, void **values) {
  enum { PTX = 1, LAST_TYPE = 6 };
  link_state *l;
  error_log unused;
  ptx_program *p;
  TRY(object_of(handle, SIM_LINK, &l));
  TRY(log_of(n, options, values, &unused));
  if (data == NULL || size == 0 || type < 0 || type > LAST_TYPE) return CUDA_ERROR_INVALID_VALUE;
  if (type != PTX || l->text != NULL) {
    sim_log_detail("%.80s: the simulator links one text of PTX, and nothing else", name == NULL ? "" : name);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  char *text = calloc(1, size + 1);
  if (text == NULL) abort();
  memcpy(text, data, size);
  const CUresult rc = compile(text, &l->log, &p);
  if (rc != CUDA_SUCCESS) {
    free(text);
    return rc;
  }
  ptx_free(p);
  l->text = text;
  l->size = strlen(text) + 1;
  return CUDA_SUCCESS;
}

CUresult do_cuLinkComplete(CUlinkState handle, void **code, size_t *size) {
  link_state *l;
  if (code == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_LINK, &l));
  if (l->text == NULL) return CUDA_ERROR_INVALID_VALUE;
  *code = l->text;
  if (size != NULL) *size = l->size;
  return CUDA_SUCCESS;
}

CUresult do_cuLinkDestroy(CUlinkState handle) {
  link_state *l;
  TRY(object_of(handle, SIM_LINK, &l));
  sim_object_end(&l->o);
  free(l->text);
  l->text = NULL;
  return CUDA_SUCCESS;
}
