/* link.c: the driver's linker, as far as there is something to link: texts of PTX that name what others of them have.
 *
 * Callers take what comes out for machine code and load it; the simulator loads the texts that it holds. Invariant: a
 * text is read when it is added, so that what is wrong with it is said there; what none of them has is said when they
 * are complete. It must not know what is in a text. */
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "front.h"

typedef struct link_state {
  sim_object o;
  error_log log;
  char **texts;
  size_t ntexts;
  char *made; /* what came out */
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

static void keep(link_state *l, char *text) {
  l->texts = realloc(l->texts, (l->ntexts + 1) * sizeof *l->texts);
  if (l->texts == NULL) abort();
  l->texts[l->ntexts++] = text;
}

CUresult do_cuLinkAddData_v2(CUlinkState handle, int type, void *data, size_t size, const char *name, unsigned n,
                             int *options, void **values) {
  enum { PTX = 1, LAST_TYPE = 6 };
  link_state *l;
  error_log unused;
  ptx_program *p;
  TRY(object_of(handle, SIM_LINK, &l));
  TRY(log_of(n, options, values, &unused));
  if (data == NULL || size == 0 || type < 0 || type > LAST_TYPE || l->made != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (type != PTX) {
    sim_log_detail("%.80s: the simulator links texts of PTX, and nothing else", name == NULL ? "" : name);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  char *text = calloc(1, size + 1);
  if (text == NULL) abort();
  memcpy(text, data, size);
  const char *one = text;
  const CUresult rc = compile_texts(&one, 1, false, &l->log, &p);
  if (rc != CUDA_SUCCESS) {
    free(text);
    return rc;
  }
  ptx_free(p);
  keep(l, text);
  return CUDA_SUCCESS;
}

/* All texts behind each other, each with its end, then an empty one. */
static char *joined(const link_state *l, size_t *size) {
  *size = strlen(LINKED) + 1;
  for (size_t i = 0; i < l->ntexts; i++) *size += strlen(l->texts[i]) + 1;
  char *made = calloc(1, *size), *at = made + strlen(LINKED);
  if (made == NULL) abort();
  memcpy(made, LINKED, strlen(LINKED));
  for (size_t i = 0; i < l->ntexts; i++) {
    const size_t n = strlen(l->texts[i]) + 1;
    memcpy(at, l->texts[i], n);
    at += n;
  }
  return made;
}

CUresult do_cuLinkComplete(CUlinkState handle, void **code, size_t *size) {
  link_state *l;
  ptx_program *p;
  size_t nbytes;
  if (code == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_LINK, &l));
  if (l->ntexts == 0) return CUDA_ERROR_INVALID_VALUE;
  /* A driver gives this number where a name is not found, or found twice. */
  if (compile_texts((const char *const *)l->texts, l->ntexts, true, &l->log, &p) != CUDA_SUCCESS)
    return CUDA_ERROR_UNKNOWN;
  ptx_free(p);
  free(l->made);
  l->made = joined(l, &nbytes);
  *code = l->made;
  if (size != NULL) *size = nbytes;
  return CUDA_SUCCESS;
}

CUresult do_cuLinkDestroy(CUlinkState handle) {
  link_state *l;
  TRY(object_of(handle, SIM_LINK, &l));
  sim_object_end(&l->o);
  for (size_t i = 0; i < l->ntexts; i++) free(l->texts[i]);
  free(l->texts);
  free(l->made);
  l->texts = NULL;
  l->ntexts = 0;
  l->made = NULL;
  return CUDA_SUCCESS;
}
