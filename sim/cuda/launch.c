/* launch.c: launching a function.
 *
 * A launch copies its parameters and is followed when the call is made: what its threads would touch is known from
 * then on, and what they may not touch makes it fail when it runs. It must not know what an instruction is. */
#include <stdlib.h>
#include <string.h>

#include "front.h"
#include "function.h"
#include "ptx_run.h"

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

static bool fits(const ptx_grid *g, uint64_t most, unsigned shared) {
  const unsigned *b = g->blocks, *t = g->threads;
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
                                  [PTX_STUCK] = CUDA_ERROR_LAUNCH_FAILED,
                                  [PTX_ASSERTED] = CUDA_ERROR_ASSERT};
  return end < PTX_LOOSE ? ends[end] : CUDA_ERROR_LAUNCH_FAILED;
}

/* A launch that was followed when a variable had no place has what it reads from the text. Where the variable has been
 * written since, that is not what a device reads. */
static void look_for_changes(const sim_launch *l, const ptx_grid *g) {
  char here[200];
  const ptx_program *p = g->program;
  for (size_t i = 0; i < p->nvariables && g->reads_text; i++) {
    const ptx_module_variable *v = &p->variables[i];
    const sim_alloc *a = sim_module_variable(l->module, g->ctx, i);
    const bool then = a == NULL || (g->places != NULL && g->places[i] != 0);
    if (then || memcmp(sim_view(a->base), p->consts + v->offset, v->nbytes) == 0) continue;
    sim_found(SIM_MISUSE,
              "%s reads variables and was launched or captured before anybody had asked where '%s' lies: the simulator "
              "has it read what the text says, which was written over since\n  launched %s",
              g->entry->name, v->name, sim_place_text(&g->made, here, sizeof here));
  }
}

static void run(sim_launch *l) {
  const ptx_grid *g = l->body;
  look_for_changes(l, g);
  const ptx_end end = ptx_run(g, l);
  if (end != PTX_DONE) sim_stick(sim_device_at(l->device), (int)end_of(end));
  if (g->loose) sim_launch_ran(l, g->entry->name, &g->made);
}

static void drop_grid(void *body) {
  ptx_grid *g = body;
  free(g->params);
  free(g->places);
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

static void find_places(const sim_launch *l, ptx_grid *g) {
  const ptx_program *p = g->program;
  for (size_t i = 0; i < p->nvariables; i++) {
    const sim_alloc *a = sim_module_variable(l->module, g->ctx, i);
    if (a == NULL) continue;
    if (g->places == NULL) g->places = calloc(p->nvariables, sizeof *g->places);
    if (g->places == NULL) abort();
    g->places[i] = a->base;
  }
}

/* All that a kernel may store to. */
static CUresult place_variables(const sim_launch *l, ptx_grid *g) {
  const ptx_program *p = g->program;
  sim_alloc *unused;
  for (size_t i = 0; i < p->nvariables; i++)
    if (!p->variables[i].constant) TRY(place_variable(l->module, g->ctx, i, &unused));
  find_places(l, g);
  return CUDA_SUCCESS;
}

static ptx_end follow(sim_launch *l, ptx_grid *g) {
  ptx_end end = ptx_follow(g, l);
  g->loose = end == PTX_LOOSE;
  if (g->loose) {
    sim_launch_forget(l);
    end = ptx_follow_params(g, l);
  }
  return end;
}

static CUresult queue(sim_stream *s, sim_launch *l) {
  ptx_grid *g = l->body;
  find_places(l, g);
  ptx_end end = follow(l, g);
  if (end == PTX_UNPLACED) {
    sim_launch_forget(l);
    TRY(place_variables(l, g));
    end = follow(l, g);
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
  if (!fits(&g, most_threads(f), c->sharedMemBytes)) return CUDA_ERROR_INVALID_VALUE;
  *out = calloc(1, sizeof g);
  if (*out == NULL) abort();
  **out = g;
  (*out)->params = calloc(1, e->nbytes + 1);
  if ((*out)->params == NULL) abort();
  return CUDA_SUCCESS;
}

/* Attributes of which there is more to do than to pass over them are not simulated. */
static CUresult attributes(const CUlaunchConfig *c, bool *cooperative) {
  *cooperative = false;
  if (c->numAttrs > 0 && c->attrs == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < c->numAttrs; i++) {
    const CUlaunchAttribute *a = &c->attrs[i];
    if (a->id == CU_LAUNCH_ATTRIBUTE_IGNORE) continue;
    if (a->id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE) return CUDA_ERROR_NOT_SUPPORTED;
    *cooperative = a->value.cooperative != 0;
  }
  return CUDA_SUCCESS;
}

/* Blocks that may wait for each other must all be running at once. */
static bool run_at_once(const CUlaunchConfig *c, const sim_function *f) {
  const uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;
  const uint64_t room = (uint64_t)blocks_at_once(f, threads, c->sharedMemBytes) * MULTIPROCESSORS;
  return (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ <= room;
}

static CUresult launch(const CUlaunchConfig *c, CUfunction handle, void **params, void **extra) {
  bool cooperative;
  sim_function *f;
  sim_stream *s;
  ptx_grid *g;
  TRY(stream_of(c->hStream, &s));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  TRY(attributes(c, &cooperative));
  if (sim_current() != s->ctx || (f->ctx != NULL && f->ctx != s->ctx)) return other_context(f, s);
  TRY(prepare(c, f, &g));
  if (cooperative && !run_at_once(c, f)) {
    drop_grid(g);
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  CUresult rc = copy_params(g->entry, params, extra, g->params);
  sim_log_detail("%s, %u x %u x %u blocks of %u x %u x %u, %s", g->entry->name, c->gridDimX, c->gridDimY, c->gridDimZ,
           c->blockDimX, c->blockDimY, c->blockDimZ, s->name);
  sim_launch *l = sim_launch_new(f->module, s->ctx->device->id);
  l->run = run;
  l->fenced = g->program->fences;
  g->ctx = s->ctx;
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
  return c == NULL ? CUDA_ERROR_INVALID_VALUE : launch(c, f, params, extra);
}

CUresult do_cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                      unsigned bz, unsigned shared, CUstream s, void **params) {
  CUlaunchAttribute all = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
  const CUlaunchConfig c = {gx, gy, gz, bx, by, bz, shared, s, &all, 1};
  return launch(&c, f, params, NULL);
}
