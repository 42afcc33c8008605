/* module.c: modules and libraries of PTX, and the functions in them.
 *
 * It must not know what an instruction is, nor how a function is launched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "front.h"
#include "function.h"

enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6, INFO_LOG = 3, INFO_LOG_SIZE = 4, LAST_OPTION = 64 };

CUresult log_of(unsigned n, const int *options, void **values, error_log *out) {
  void *text = NULL;
  *out = (error_log){NULL, 0, NULL};
  if (n > 0 && (options == NULL || values == NULL)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < n; i++) {
    if (options[i] < 0 || options[i] > LAST_OPTION) return CUDA_ERROR_INVALID_VALUE;
    if (options[i] == ERROR_LOG) text = values[i];
    if (options[i] == ERROR_LOG_SIZE) out->length = &values[i];
    if (options[i] == INFO_LOG && values[i] != NULL) *(char *)values[i] = '\0';
  }
  for (unsigned i = 0; i < n; i++)
    if (options[i] == INFO_LOG_SIZE) values[i] = NULL;
  if (out->length != NULL) out->size = (uint32_t)(uintptr_t)*out->length;
  out->text = text;
  return CUDA_SUCCESS;
}

static void write_log(const error_log *log, const char *text) {
  size_t n = 0;
  if (log->text != NULL && log->size > 0) {
    snprintf(log->text, log->size, "%s", text);
    n = strlen(log->text);
  }
  if (log->length != NULL) *log->length = (void *)(uintptr_t)n;
}

static bool is_binary(const void *image) {
  static const unsigned char elf[] = {0x7f, 'E', 'L', 'F'}, fat[] = {0x50, 0xed, 0x55, 0xba};
  const unsigned char *p = image;
  size_t of_elf = 0, of_fat = 0;
  while (of_elf < 4 && p[of_elf] == elf[of_elf]) of_elf++;
  while (of_fat < 4 && p[of_fat] == fat[of_fat]) of_fat++;
  return of_elf == 4 || of_fat == 4;
}

/* 13.0 reads PTX 9.0, 12.4 reads 8.4. */
static unsigned newest_ptx(void) {
  return (unsigned)(version() / 1000 - 4) * 10 + (unsigned)(version() % 1000 / 10);
}

static CUresult refuse(CUresult rc, const error_log *log, const char *text) {
  write_log(log, text);
  sim_log_detail("%s", text);
  return rc;
}

CUresult compile_texts(const char *const *texts, size_t n, bool whole, const error_log *log, ptx_program **out) {
  ptx_message why = {""};
  ptx_program *p = ptx_read(texts, n, whole, &why);
  if (p == NULL) return refuse(CUDA_ERROR_INVALID_PTX, log, why.text);
  const bool new_text = p->version > newest_ptx(), new_device = p->target > CAPABILITY;
  if (new_text || new_device) ptx_free(p);
  if (new_text) return refuse(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, log, "a .version that the driver does not know");
  if (new_device) return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, log, "a .target beyond the device's sm_90");
  write_log(log, "");
  *out = p;
  return CUDA_SUCCESS;
}

/* The texts that the linker has put behind each other. */
static const char **linked(const char *image, size_t *n) {
  const char **texts = NULL;
  size_t room = 0;
  *n = 0;
  for (const char *at = image + strlen(LINKED); *at != '\0'; at += strlen(at) + 1) {
    if (*n == room) texts = realloc(texts, (room = room * 2 + 4) * sizeof *texts);
    if (texts == NULL) abort();
    texts[(*n)++] = at;
  }
  return texts;
}

CUresult compile(const void *image, const error_log *log, ptx_program **out) {
  const char *text = image;
  size_t n = 1;
  if (is_binary(image)) return refuse(CUDA_ERROR_INVALID_IMAGE, log, "the simulator runs PTX text, no machine code");
  if (strncmp(text, LINKED, strlen(LINKED)) != 0) return compile_texts(&text, n, true, log, out);
  const char **texts = linked(image, &n);
  const CUresult rc = compile_texts(texts, n, true, log, out);
  free(texts);
  return rc;
}

static void drop_program(void *code) {
  ptx_free(code);
}

CUresult do_cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *options, void **values) {
  sim_context *c;
  error_log log;
  ptx_program *p;
  if (out == NULL || image == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(log_of(n, options, values, &log));
  TRY(from(sim_context_of(&c)));
  TRY(from(sim_capture_unsafe()));
  TRY(compile(image, &log, &p));
  *out = (CUmodule)sim_module_new(SIM_MODULE, c, p, drop_program)->o.handle;
  sim_log_detail("%p", (void *)*out);
  return CUDA_SUCCESS;
}

CUresult do_cuModuleLoadData(CUmodule *out, const void *image) {
  return do_cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

CUresult do_cuModuleUnload(CUmodule handle) {
  sim_context *c;
  sim_module *m;
  TRY(from(sim_context_of(&c)));
  TRY(object_of(handle, SIM_MODULE, &m));
  if (m->o.hidden) return CUDA_ERROR_INVALID_HANDLE;
  TRY(from(sim_capture_unsafe()));
  sim_module_end(m);
  return CUDA_SUCCESS;
}

static CUresult function_named(sim_module *m, sim_context *c, const char *name, sim_function **out) {
  const ptx_entry *e = ptx_find(m->code, name);
  if (e == NULL) return CUDA_ERROR_NOT_FOUND;
  *out = sim_function_of(m, c, e);
  return CUDA_SUCCESS;
}

CUresult do_cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
  sim_module *m;
  sim_function *f;
  if (out == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_MODULE, &m));
  TRY(function_named(m, m->ctx, name, &f));
  *out = (CUfunction)f->o.handle;
  return CUDA_SUCCESS;
}

CUresult do_cuLibraryLoadData(CUlibrary *out, const void *code, int *options, void **values, unsigned n,
                              int *library_options, void **library_values, unsigned nlibrary) {
  error_log log;
  ptx_program *p;
  (void)library_options;
  (void)library_values;
  if (out == NULL || code == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (nlibrary > 0) return CUDA_ERROR_NOT_SUPPORTED;
  TRY(log_of(n, options, values, &log));
  TRY(from(sim_capture_unsafe()));
  TRY(compile(code, &log, &p));
  *out = (CUlibrary)sim_module_new(SIM_LIBRARY, NULL, p, drop_program)->o.handle;
  sim_log_detail("%p", (void *)*out);
  return CUDA_SUCCESS;
}

CUresult do_cuLibraryUnload(CUlibrary handle) {
  sim_module *m;
  TRY(object_of(handle, SIM_LIBRARY, &m));
  TRY(from(sim_capture_unsafe()));
  sim_module_end(m);
  return CUDA_SUCCESS;
}

/* The file's text with an end, or NULL. */
static char *text_of(const char *file) {
  FILE *in = fopen(file, "rb");
  char *text = NULL;
  if (in == NULL) return NULL;
  if (fseek(in, 0, SEEK_END) == 0 && ftell(in) >= 0) {
    const size_t size = (size_t)ftell(in);
    rewind(in);
    text = calloc(size + 1, 1);
    if (text != NULL && fread(text, 1, size, in) != size) text[0] = '\0';
  }
  fclose(in);
  return text;
}

CUresult do_cuLibraryLoadFromFile(CUlibrary *out, const char *file, int *options, void **values, unsigned n,
                                  int *library_options, void **library_values, unsigned nlibrary) {
  if (out == NULL || file == NULL) return CUDA_ERROR_INVALID_VALUE;
  char *text = text_of(file);
  if (text == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
  const CUresult rc = do_cuLibraryLoadData(out, text, options, values, n, library_options, library_values, nlibrary);
  free(text);
  return rc;
}

CUresult do_cuLibraryGetKernelCount(unsigned *count, CUlibrary handle) {
  sim_module *m;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_LIBRARY, &m));
  const ptx_program *p = m->code;
  *count = 0;
  for (size_t i = 0; i < p->nentries; i++) *count += !p->entries[i].is_function;
  return CUDA_SUCCESS;
}

/* PTX of the subset has neither managed variables nor functions for the host and devices. */
static CUresult has_none(CUlibrary handle, const void *out, const char *name) {
  sim_module *m;
  if (out == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_LIBRARY, &m));
  return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuLibraryGetManaged(CUdeviceptr *at, size_t *nbytes, CUlibrary handle, const char *name) {
  return has_none(handle, at != NULL ? (const void *)at : nbytes, name);
}

CUresult do_cuLibraryGetUnifiedFunction(void **f, CUlibrary handle, const char *name) {
  return has_none(handle, f, name);
}

CUresult do_cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name) {
  sim_module *m;
  sim_function *f;
  if (out == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_LIBRARY, &m));
  TRY(function_named(m, NULL, name, &f));
  *out = (CUkernel)f->o.handle;
  return CUDA_SUCCESS;
}

CUresult do_cuKernelGetFunction(CUfunction *out, CUkernel handle) {
  sim_context *c;
  sim_function *f;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_context_of(&c)));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  *out = (CUfunction)sim_function_of(f->module, c, f->entry)->o.handle;
  return CUDA_SUCCESS;
}

CUresult place_variable(sim_module *m, sim_context *c, size_t which, sim_alloc **out) {
  const ptx_program *p = m->code;
  const ptx_module_variable *v = &p->variables[which];
  return from(sim_module_place(m, c, which, p->consts + v->offset, v->nbytes, out));
}

static CUresult variable_named(sim_module *m, sim_context *c, const char *name, CUdeviceptr *at, size_t *nbytes) {
  const ptx_program *p = m->code;
  const size_t which = ptx_variable_named(p, name);
  sim_alloc *a;
  if (which == p->nvariables) return CUDA_ERROR_NOT_FOUND;
  TRY(place_variable(m, c, which, &a));
  sim_log_detail("%s, %zu bytes at %#zx", name, a->nbytes, (size_t)a->base);
  if (at != NULL) *at = a->base;
  if (nbytes != NULL) *nbytes = a->nbytes;
  return CUDA_SUCCESS;
}

CUresult do_cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *nbytes, CUmodule handle, const char *name) {
  sim_context *c;
  sim_module *m;
  if (name == NULL || (at == NULL && nbytes == NULL)) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_context_of(&c)));
  TRY(object_of(handle, SIM_MODULE, &m));
  return variable_named(m, m->ctx, name, at, nbytes);
}

CUresult do_cuLibraryGetGlobal(CUdeviceptr *at, size_t *nbytes, CUlibrary handle, const char *name) {
  sim_context *c;
  sim_module *m;
  if (name == NULL || (at == NULL && nbytes == NULL)) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_context_of(&c)));
  TRY(object_of(handle, SIM_LIBRARY, &m));
  return variable_named(m, c, name, at, nbytes);
}
