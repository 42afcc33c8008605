/* module.c: modules, libraries and functions of PTX, and launching them.
 *
 * A launch copies its parameters and is followed when the call is made: what its threads would touch is known from
 * then on, and what they may not touch makes it fail when it runs. It must not know what an instruction is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "front.h"
#include "ptx_run.h"

enum { CAPABILITY = 90, SHARED = 49152, MOST_THREADS = 1024 };
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

static CUresult attribute(const sim_function *f, int which, int *v) {
  const ptx_entry *e = f->entry;
  const ptx_program *p = f->module->code;
  enum { THREADS = 0, STATIC = 1, CONSTANT = 2 };
  enum { REGISTERS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, DYNAMIC = 8, CARVEOUT = 9 };
  if (which < 0 || which > 16) return CUDA_ERROR_INVALID_VALUE;
  *v = 0;
  if (which == THREADS) *v = e->most_threads != 0 ? (int)e->most_threads : MOST_THREADS;
  if (which == STATIC) *v = (int)p->shared;
  if (which == CONSTANT) *v = (int)e->nbytes;
  if (which == REGISTERS) *v = 32;
  if (which == PTX_VERSION || which == BINARY_VERSION) *v = CAPABILITY;
  if (which == DYNAMIC) *v = SHARED - (int)p->shared;
  if (which == CARVEOUT) *v = -1;
  return CUDA_SUCCESS;
}

CUresult do_cuFuncGetAttribute(int *v, int which, CUfunction handle) {
  sim_function *f;
  if (v == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_FUNCTION, &f));
  return attribute(f, which, v);
}

CUresult do_cuKernelGetAttribute(int *v, int which, CUkernel handle, CUdevice d) {
  sim_device *device;
  TRY(device_of(d, &device));
  return do_cuFuncGetAttribute(v, which, (CUfunction)(void *)handle);
}

/* Only what concerns shared memory can be set, and all of it may be used without asking. */
CUresult do_cuFuncSetAttribute(CUfunction handle, int which, int value) {
  enum { DYNAMIC = 8, CARVEOUT = 9 };
  sim_function *f;
  TRY(object_of(handle, SIM_FUNCTION, &f));
  if (which != DYNAMIC && which != CARVEOUT) return CUDA_ERROR_INVALID_VALUE;
  return value > SHARED || value < -1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuFuncGetParamInfo(CUfunction handle, size_t i, size_t *offset, size_t *size) {
  sim_function *f;
  if (offset == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_FUNCTION, &f));
  const ptx_entry *e = f->entry;
  if (i >= e->nparams) return CUDA_ERROR_INVALID_VALUE;
  *offset = e->params[i].offset;
  if (size != NULL) *size = e->params[i].nbytes;
  return CUDA_SUCCESS;
}

CUresult do_cuKernelGetParamInfo(CUkernel handle, size_t i, size_t *offset, size_t *size) {
  return do_cuFuncGetParamInfo((CUfunction)(void *)handle, i, offset, size);
}

/* The parameters as one block: extra is a list of a key and its value, ended by 0. */
static CUresult packed(const ptx_entry *e, void **extra, unsigned char *out) {
  enum { END = 0, POINTER = 1, SIZE = 2 };
  const void *bytes = NULL;
  size_t nbytes = 0;
  for (; *extra != (void *)END; extra += 2) {
    if (*extra != (void *)POINTER && *extra != (void *)SIZE) return CUDA_ERROR_INVALID_VALUE;
    if (extra[1] == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (*extra == (void *)POINTER) bytes = extra[1];
    if (*extra == (void *)SIZE) nbytes = *(size_t *)extra[1];
  }
  if (nbytes < e->nbytes || (bytes == NULL && e->nbytes > 0)) return CUDA_ERROR_INVALID_VALUE;
  if (e->nbytes > 0) memcpy(out, bytes, e->nbytes);
  return CUDA_SUCCESS;
}

static CUresult copy_params(const ptx_entry *e, void **params, void **extra, unsigned char *out) {
  if (params != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (extra != NULL) return packed(e, extra, out);
  if (params == NULL && e->nparams > 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < e->nparams; i++) {
    if (params[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
    memcpy(out + e->params[i].offset, params[i], e->params[i].nbytes);
  }
  return CUDA_SUCCESS;
}

static bool fits(const ptx_grid *g, unsigned shared) {
  const unsigned *b = g->blocks, *t = g->threads;
  const uint64_t most = g->entry->most_threads != 0 ? g->entry->most_threads : MOST_THREADS;
  const unsigned *exact = g->entry->exact;
  for (int k = 0; k < 3; k++)
    if (b[k] == 0 || t[k] == 0 || t[k] > MOST_THREADS || (exact[0] != 0 && t[k] != exact[k])) return false;
  if (b[0] > INT32_MAX || b[1] > UINT16_MAX || b[2] > UINT16_MAX || t[2] > 64) return false;
  return (uint64_t)t[0] * t[1] * t[2] <= most && shared <= SHARED && g->program->shared <= SHARED - shared;
}

/* The driver's number for how a launch ended. */
static CUresult end_of(ptx_end end) {
  static const CUresult ends[] = {[PTX_ILLEGAL] = CUDA_ERROR_ILLEGAL_ADDRESS,
                                  [PTX_MISALIGNED] = CUDA_ERROR_MISALIGNED_ADDRESS,
                                  [PTX_ENDLESS] = CUDA_ERROR_LAUNCH_TIMEOUT,
                                  [PTX_STUCK] = CUDA_ERROR_LAUNCH_FAILED};
  return end < PTX_LOOSE ? ends[end] : CUDA_ERROR_LAUNCH_FAILED;
}

static void run(sim_launch *l) {
  const ptx_grid *g = l->body;
  const ptx_end end = ptx_run(g, l);
  if (end != PTX_DONE) sim_stick(sim_device_at(l->device), (int)end_of(end));
  if (g->loose) sim_launch_ran(l, g->entry->name, &g->made);
}

static void drop_grid(void *body) {
  ptx_grid *g = body;
  free(g->params);
  free(g);
}

static CUresult other_context(const sim_function *f, const sim_stream *s) {
  char here[200], made[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE, "%s is launched on %s, and the %s is another context's\n  here   %s\n  loaded %s",
            ((const ptx_entry *)f->entry)->name, s->name, f->ctx == NULL || f->ctx == s->ctx ? "current one" : "module",
            sim_place_text(&now, here, sizeof here), sim_place_text(&f->module->o.made, made, sizeof made));
  return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult queue(sim_stream *s, sim_launch *l) {
  ptx_grid *g = l->body;
  ptx_end end = ptx_follow(g, l);
  g->loose = end == PTX_LOOSE;
  if (g->loose) {
    sim_launch_forget(l);
    end = ptx_follow_params(g, l);
  }
  if (end == PTX_BEYOND) return CUDA_ERROR_NOT_SUPPORTED;
  l->illegal = CUDA_ERROR_ILLEGAL_ADDRESS;
  if (end == PTX_DONE)
    sim_launch_seal(l, g->entry->name);
  else
    l->broken = (int)end_of(end);
  const sim_work w = {.kind = SIM_KERNEL, .launch = l};
  return from(sim_submit(s, &w, NULL));
}

static CUresult prepare(const CUlaunchConfig *c, const sim_function *f, ptx_grid **out) {
  const ptx_entry *e = f->entry;
  const ptx_grid g = {.program = f->module->code,
                      .entry = e,
                      .blocks = {c->gridDimX, c->gridDimY, c->gridDimZ},
                      .threads = {c->blockDimX, c->blockDimY, c->blockDimZ},
                      .dynamic = c->sharedMemBytes,
                      .made = sim_here()};
  if (!fits(&g, c->sharedMemBytes)) return CUDA_ERROR_INVALID_VALUE;
  *out = calloc(1, sizeof g);
  if (*out == NULL) abort();
  **out = g;
  (*out)->params = calloc(1, e->nbytes + 1);
  if ((*out)->params == NULL) abort();
  return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *c, CUfunction handle, void **params, void **extra) {
  sim_function *f;
  sim_stream *s;
  ptx_grid *g;
  TRY(stream_of(c->hStream, &s));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  if (sim_current() != s->ctx || (f->ctx != NULL && f->ctx != s->ctx)) return other_context(f, s);
  TRY(prepare(c, f, &g));
  CUresult rc = copy_params(g->entry, params, extra, g->params);
  sim_log_detail("%s, %u x %u x %u blocks of %u x %u x %u, %s", g->entry->name, c->gridDimX, c->gridDimY, c->gridDimZ,
           c->blockDimX, c->blockDimY, c->blockDimZ, s->name);
  sim_launch *l = sim_launch_new(f->module, s->ctx->device->id);
  l->run = run;
  l->fenced = g->program->fences;
  l->body = g;
  l->drop = drop_grid;
  if (rc == CUDA_SUCCESS) rc = queue(s, l);
  sim_launch_drop(l);
  return rc;
}

CUresult do_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, CUstream s, void **params, void **extra) {
  const CUlaunchConfig c = {gx, gy, gz, bx, by, bz, shared, s, NULL, 0};
  return launch(&c, f, params, extra);
}

CUresult do_cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (c->numAttrs > 0) return CUDA_ERROR_NOT_SUPPORTED;
  return launch(c, f, params, extra);
}
