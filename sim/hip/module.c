/* module.c: modules of kernels that the simulated hiprtc has compiled, and launching them.
 *
 * A launch copies its parameters and is followed when the call is made: what its threads would touch is known from then
 * on, and what they may not touch makes it fail when it runs. It must not know what a kernel does. */
#include <stdlib.h>

#include "front.h"
#include "native.h"

hipError_t do_hipModuleLoadData(hipModule_t *out, const void *image) {
  const char *why = "the simulator runs what its own hiprtc compiles, no machine code", *text = image;
  native_program p;
  if (out == NULL || image == NULL) return hipErrorInvalidValue;
  TRY(from(sim_capture_unsafe()));
  const size_t magic = sizeof NATIVE_MAGIC - 1;
  if (strncmp(text, NATIVE_MAGIC, magic) != 0 || !native_read(text + magic, &p, &why)) {
    sim_log_detail("%s", why);
    return hipErrorNotSupported;
  }
  native_program *kept = malloc(sizeof p);
  if (kept == NULL) abort();
  *kept = p;
  *out = (hipModule_t)sim_module_new(SIM_MODULE, device_context(), kept, free)->o.handle;
  return hipSuccess;
}

hipError_t do_hipModuleUnload(hipModule_t handle) {
  sim_module *m;
  TRY(object_of(handle, SIM_MODULE, &m));
  TRY(from(sim_capture_unsafe()));
  sim_module_end(m);
  return hipSuccess;
}

hipError_t do_hipModuleGetFunction(hipFunction_t *out, hipModule_t handle, const char *name) {
  sim_module *m;
  if (out == NULL || name == NULL) return hipErrorInvalidValue;
  TRY(object_of(handle, SIM_MODULE, &m));
  const native_entry *e = native_find(m->code, name);
  if (e == NULL) return hipErrorNotFound;
  *out = (hipFunction_t)sim_function_of(m, m->ctx, e)->o.handle;
  return hipSuccess;
}

static hipError_t end_of(native_end end) {
  return end == NATIVE_ILLEGAL ? hipErrorIllegalAddress : hipErrorLaunchFailure;
}

static void run(sim_launch *l) {
  const native_end end = native_run(l->body, l, false);
  if (end != NATIVE_DONE) sim_stick(sim_device_at(l->device), (int)end_of(end));
}

static hipError_t queue(sim_stream *s, sim_launch *l) {
  const native_grid *g = l->body;
  const native_end end = native_run(g, l, true);
  l->illegal = hipErrorIllegalAddress;
  if (end == NATIVE_DONE) sim_launch_seal(l, g->entry->name);
  else l->broken = (int)end_of(end);
  const sim_work w = {.kind = SIM_KERNEL, .launch = l};
  return from(sim_submit(s, &w, NULL));
}

hipError_t do_hipModuleLaunchKernel(hipFunction_t handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                    unsigned by, unsigned bz, unsigned shared, hipStream_t q, void **params,
                                    void **extra) {
  sim_function *f;
  sim_stream *s;
  TRY(stream_of(q, &s));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  if (f->ctx != s->ctx) return hipErrorInvalidHandle;
  if (gx == 0 || (uint64_t)gx * bx > UINT32_MAX || params == NULL) return hipErrorInvalidValue;
  if (gy != 1 || gz != 1 || bx != NATIVE_THREADS || by != 1 || bz != 1 || shared != 0 || extra != NULL)
    return hipErrorNotSupported;
  native_grid *g = calloc(1, sizeof *g);
  if (g == NULL) abort();
  *g = (native_grid){.program = f->module->code, .entry = f->entry, .blocks = gx, .made = sim_here()};
  memcpy(g->job, params[0], sizeof g->job);
  if (g->entry->compare != NULL) g->differs = *(unsigned **)params[1];
  sim_log_detail("%s, %u blocks of %u, %s", g->entry->name, gx, bx, s->name);
  sim_launch *l = sim_launch_new(f->module, s->ctx->device->id);
  l->run = run;
  l->body = g;
  l->drop = free;
  const hipError_t rc = queue(s, l);
  sim_launch_drop(l);
  return rc;
}
