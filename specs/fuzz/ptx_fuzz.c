/* ptx_fuzz.c: a libFuzzer target that loads its input as PTX text into the simulated driver and launches every entry
 * that it finds there.
 *
 * The parameters point into device memory, or are small numbers where they are too small for an address; the grid has
 * a few threads. A text may be refused and a launch may fail, with a finding for it. A program that is taken must be
 * freed whole, and no text may take the driver's state along: after each input a fill must work as before the first.
 */
#define _GNU_SOURCE /* setenv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../sim/cuda/driver.h"
#include "ptx.h"
#include "sim.h"

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL CALL
#define DCALL CALL
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL

enum { MOST_TEXT = 1 << 14, NBYTES = 4096, MOST_PARAMS = 64 };

static CUdeviceptr memory;
static CUstream stream;

static void check(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "ptx_fuzz: %s\n", what);
  abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  CUcontext context;
  (void)argc;
  (void)argv;
  setenv("SIM_LEDGER", "off", 1);
  setenv("SIM_REPORT", "/dev/null", 1);
  setenv("SIM_MEMORY", "16M", 1);
  setenv("SIM_DEVICES", "1", 1);
  check(cuInit(0) == CUDA_SUCCESS, "the driver starts");
  check(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "a context");
  check(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS, "a current context");
  check(cuMemAlloc_v2(&memory, NBYTES) == CUDA_SUCCESS, "memory");
  check(cuStreamCreate(&stream, 1) == CUDA_SUCCESS, "a stream");
  return 0;
}

/* Addresses at different places, so that accesses meet and pass the ends. */
static void launch(CUfunction f, const ptx_entry *e) {
  static const unsigned grids[][6] = {{1, 1, 1, 1, 1, 1}, {2, 1, 1, 3, 2, 1}};
  unsigned char *bytes[MOST_PARAMS];
  void *params[MOST_PARAMS];
  if (e->nparams > MOST_PARAMS) return;
  for (size_t i = 0; i < e->nparams; i++) {
    params[i] = bytes[i] = calloc(1, e->params[i].nbytes + 1);
    const uint64_t address = memory + 64 * i;
    if (e->params[i].nbytes >= sizeof address) memcpy(bytes[i], &address, sizeof address);
    else bytes[i][0] = (unsigned char)(i + 2);
  }
  for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
    (void)cuLaunchKernel(f, grids[g][0], grids[g][1], grids[g][2], grids[g][3], grids[g][4], grids[g][5], 0, stream,
                         params, NULL);
  (void)cuStreamSynchronize(stream);
  for (size_t i = 0; i < e->nparams; i++) free(bytes[i]);
}

static void launch_all(const ptx_program *p, const char *text) {
  CUmodule module;
  CUfunction f;
  if (cuModuleLoadData(&module, text) != CUDA_SUCCESS) return; /* for a newer driver or device */
  for (size_t i = 0; i < p->nentries; i++) {
    if (p->entries[i].is_function) continue;
    check(cuModuleGetFunction(&f, module, p->entries[i].name) == CUDA_SUCCESS, "an entry has a function");
    launch(f, &p->entries[i]);
  }
  sim_reset();
  check(cuModuleUnload(module) == CUDA_SUCCESS, "a module is unloaded");
}

static void check_driver(void) {
  unsigned char byte = 0;
  check(cuMemsetD8Async(memory, 7, NBYTES, stream) == CUDA_SUCCESS, "memory can be filled");
  check(cuStreamSynchronize(stream) == CUDA_SUCCESS, "the stream can be waited for");
  check(sim_peek((const void *)(uintptr_t)(memory + NBYTES - 1), &byte, 1) == 0 && byte == 7, "the fill is there");
  check(sim_findings(SIM_ANY) == 0, "a fill is no finding");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ptx_message why = {""};
  if (size > MOST_TEXT) return -1;
  char *text = malloc(size + 1);
  memcpy(text, data, size);
  text[size] = '\0';
  const char *const one = text;
  ptx_program *p = ptx_read(&one, 1, true, &why);
  check((p == NULL) == (why.text[0] != '\0'), "a text that is refused is told why, and no other");
  if (p != NULL) launch_all(p, text);
  if (p != NULL) ptx_free(p);
  sim_reset();
  check_driver();
  free(text);
  return 0;
}
