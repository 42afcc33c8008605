/* kernel_spec.c: compiled kernels are known by name and refused; kernels of PTX run. */
#include "spec.h"

#include <elf.h>
#include <unistd.h>

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL CALL
#define DCALL CALL
#include "../../../sim/cuda/calls.def"

static const dim3 one = {1, 1, 1};
static const char image[16], stub_a, stub_b;

/* As the code does that a compiler puts into a library with kernels. */
static void **registered(void) {
  void **handle = __cudaRegisterFatBinary(image);
  __cudaRegisterFunction(handle, &stub_a, NULL, "_Z5firstPf", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(handle, &stub_b, NULL, "_Z6secondPf", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterVar(handle, NULL, NULL, "table", 0, 64, 1, 0);
  __cudaRegisterFatBinaryEnd(handle);
  return handle;
}

static void a_compiled_kernel_is_refused_by_its_name(void **state) {
  (void)state;
  void **handle = registered(), *p = device_memory(), *args[] = {&p};
  const cudaLaunchConfig_t config = {.gridDim = one, .blockDim = one};
  FAILS(cudaLaunchKernel(&stub_b, one, one, args, 0, NULL), cudaErrorNotSupported);
  FAILS(cudaGetLastError(), cudaErrorNotSupported);
  assert_true(told("kernel _Z6secondPf is compiled code"));
  assert_true(told("cudaLaunchKernel, thread 1 from " PROGRAM));
  assert_false(told("_Z5firstPf"));
  found(SIM_MISUSE, 1);
  FAILS(cudaLaunchKernelExC(&config, &stub_a, args), cudaErrorNotSupported);
  assert_true(told("_Z5firstPf"));
  found(SIM_MISUSE, 1);
  FAILS(cudaLaunchCooperativeKernel(&stub_a, one, one, args, 0, NULL), cudaErrorNotSupported);
  found(SIM_MISUSE, 1);
  OK(cudaFree(p));
  __cudaUnregisterFatBinary(handle);
}

/* A fat binary with one file, which says that the kernel takes a pointer, a number and a struct with a pointer. */
typedef struct fat {
  struct {
    uint32_t magic, version;
    const void *code, *unused;
  } wrapper;
  struct {
    uint32_t magic;
    uint16_t version, nbytes;
    uint64_t rest;
    uint16_t kind, entry_version;
    uint32_t header;
    uint64_t padded;
    uint32_t packed, unused[5];
    uint64_t flags, more, unpacked;
    Elf64_Ehdr elf;
    Elf64_Shdr sections[3];
    char names[48];
    struct {
      unsigned char form, which;
      uint16_t size;
      uint32_t index;
      uint16_t ordinal, offset;
      uint32_t flags;
    } info[3];
  } code;
} fat;

static void fill_fat(fat *f) {
  enum { BEFORE_ELF = 80, NAMES = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Shdr) };
  const unsigned sizes[] = {8, 4, 24};
  memset(f, 0, sizeof *f);
  f->wrapper.magic = 0x466243b1;
  f->wrapper.version = 1;
  f->wrapper.code = &f->code;
  f->code.magic = 0xba55ed50;
  f->code.version = 1;
  f->code.nbytes = 16;
  f->code.rest = sizeof f->code - 16;
  f->code.kind = 2;
  f->code.header = 64;
  f->code.padded = sizeof f->code - BEFORE_ELF;
  memcpy(f->code.elf.e_ident, ELFMAG, SELFMAG);
  f->code.elf.e_shoff = sizeof(Elf64_Ehdr);
  f->code.elf.e_shentsize = sizeof(Elf64_Shdr);
  f->code.elf.e_shnum = 3;
  f->code.elf.e_shstrndx = 1;
  f->code.sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = NAMES, .sh_size = sizeof f->code.names};
  f->code.sections[2] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_size = sizeof f->code.info,
                                     .sh_offset = NAMES + sizeof f->code.names};
  strcpy(f->code.names + 1, ".nv.info._Z6secondPf");
  for (uint16_t i = 0; i < 3; i++) {
    f->code.info[i].form = 4;
    f->code.info[i].which = 0x17;
    f->code.info[i].size = 12;
    f->code.info[i].ordinal = (uint16_t)(2 - i);
    f->code.info[i].flags = sizes[2 - i] << 18;
  }
}

/* The kernel gets a + 8, a number, and a struct in whose last word b is. */
static cudaError_t launch_second(char *a, char *b, cudaStream_t s) {
  char *p = a + 8;
  int number = 7;
  uint64_t inside[3] = {1, 2, (uint64_t)(uintptr_t)b};
  void *args[] = {&p, &number, inside};
  return cudaLaunchKernel(&stub_b, one, one, args, 0, s);
}

static void a_compiled_kernel_can_stand_for_what_its_arguments_reach(void **state) {
  (void)state;
  static fat f;
  fill_fat(&f);
  void **handle = __cudaRegisterFatBinary(&f);
  __cudaRegisterFunction(handle, &stub_a, NULL, "_Z5firstPf", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(handle, &stub_b, NULL, "_Z6secondPf", -1, NULL, NULL, NULL, NULL, NULL);
  char *a = device_memory(), *b = device_memory(), *c = device_memory(), bytes[NBYTES];
  cudaStream_t s = stream(), t = stream();
  FAILS(launch_second(a, b, s), cudaErrorNotSupported);
  found(SIM_MISUSE, 1);
  setenv("SIM_KERNELS", "opaque", 1);
  OK(launch_second(a, b, s));
  assert_true(told("kernel _Z6secondPf is compiled code: it was followed, not computed. The 2 allocations"));
  found(SIM_WARNING, 1);
  OK(cudaMemcpyAsync(c, b, NBYTES, cudaMemcpyDeviceToDevice, t));
  assert_true(told("written by stream"));
  assert_true(told("cudaLaunchKernel, thread 1 from " PROGRAM));
  found(SIM_RACE, 1);
  OK(cudaDeviceSynchronize());
  for (size_t i = 0; i < 2; i++) {
    OK(cudaMemcpy(bytes, i == 0 ? a : b, NBYTES, cudaMemcpyDeviceToHost));
    assert_true(all_bytes(bytes, NBYTES, 0xEB));
  }
  /* What other streams read and write before counts as much, whichever argument reaches it. */
  for (size_t i = 0; i < 4; i++) {
    char *touched = i % 2 == 0 ? a : b;
    if (i < 2) OK(cudaMemcpyAsync(c, touched, NBYTES, cudaMemcpyDeviceToDevice, t));
    if (i >= 2) OK(cudaMemsetAsync(touched, 1, NBYTES, t));
    OK(launch_second(a, b, s));
    assert_true(told(i < 2 ? "first  read by stream" : "first  written by stream"));
    found(SIM_RACE, 1);
    OK(cudaDeviceSynchronize());
  }
  FAILS(cudaLaunchKernel(&stub_a, one, one, NULL, 0, s), cudaErrorNotSupported);
  assert_true(told("because its code does not say which arguments it takes"));
  found(SIM_MISUSE, 1);
  unsetenv("SIM_KERNELS");
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(c));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
  __cudaUnregisterFatBinary(handle);
}

/* Packs as LZ4 does, in two sequences: the first bytes as they are and a run of zeros, then the rest as it is. */
static uint32_t lz4_packed(const unsigned char *from, size_t n, size_t at, size_t zeros, unsigned char *out) {
  unsigned char *end = out;
  const size_t parts[2] = {at + 1, n - at - 1 - zeros};
  for (int i = 0; i < 2; i++) {
    *end++ = i == 0 ? 0xff : 0xf0;
    size_t left = parts[i] - 15;
    for (; left >= 255; left -= 255) *end++ = 255;
    *end++ = (unsigned char)left;
    memcpy(end, i == 0 ? from : from + n - parts[1], parts[i]);
    end += parts[i];
    if (i == 1) break;
    *end++ = 1;
    *end++ = 0;
    *end++ = (unsigned char)(zeros - 4 - 15);
  }
  return (uint32_t)(end - out);
}

static unsigned char *zstd_block(unsigned char *out, size_t kind, const unsigned char *from, size_t n, size_t kept) {
  const size_t head = kind | n << 3;
  for (int i = 0; i < 3; i++) *out++ = (unsigned char)(head >> i * 8);
  memcpy(out, from, kept);
  return out + kept;
}

/* Packs as Zstandard does (RFC 8878), in three blocks: as it is, one byte over and over, as it is. */
static uint32_t zstd_packed(const unsigned char *from, size_t n, size_t at, size_t zeros, unsigned char *out) {
  enum { LAST = 1, AS_IT_IS = 0, ONE_BYTE = 2 };
  const unsigned char head[] = {0x28, 0xb5, 0x2f, 0xfd, 0xa0, (unsigned char)n, (unsigned char)(n >> 8), 0, 0};
  const size_t rest = n - at - zeros;
  memcpy(out, head, sizeof head);
  unsigned char *end = zstd_block(out + sizeof head, AS_IT_IS, from, at, at);
  end = zstd_block(end, ONE_BYTE, from + at, zeros, 1);
  end = zstd_block(end, AS_IT_IS | LAST, from + n - rest, rest, rest);
  return (uint32_t)(end - out);
}

/* The machine code of a fat binary, compressed as by CUDA 12's compiler, or as by CUDA 13's, without the last bytes. */
static void compress_fat(fat *f, bool by_13, uint32_t cut) {
  unsigned char packed[sizeof f->code], *code = (unsigned char *)&f->code.elf;
  const size_t n = f->code.padded, zeros = 32, at = sizeof(Elf64_Ehdr);
  f->code.flags = by_13 ? 0x8000 : 0x2000;
  f->code.unpacked = n;
  f->code.packed = (by_13 ? zstd_packed : lz4_packed)(code, n, at, zeros, packed) - cut;
  memset(code, 0, n);
  memcpy(code, packed, f->code.packed);
}

static void compressed_code_is_read(bool by_13) {
  enum { CUTS = 300 };
  static fat all[2][CUTS];
  setenv("SIM_KERNELS", "opaque", 1);
  char *a = device_memory(), *b = device_memory();
  for (uint32_t cut = 0; cut < CUTS; cut++) {
    fat *f = &all[by_13][cut];
    fill_fat(f);
    compress_fat(f, by_13, cut);
    void **handle = __cudaRegisterFatBinary(f);
    __cudaRegisterFunction(handle, &stub_b, NULL, "_Z6secondPf", -1, NULL, NULL, NULL, NULL, NULL);
    assert_int_equal(launch_second(a, b, NULL), cut == 0 ? cudaSuccess : cudaErrorNotSupported);
    assert_true(told(cut == 0 ? "The 2 allocations that its arguments reach" : "its code cannot be decompressed"));
    found(cut == 0 ? SIM_WARNING : SIM_MISUSE, 1);
    __cudaUnregisterFatBinary(handle);
  }
  unsetenv("SIM_KERNELS");
  (void)cudaGetLastError();
  OK(cudaFree(a));
  OK(cudaFree(b));
}

static void code_of_cuda_12_is_decompressed(void **state) {
  (void)state;
  compressed_code_is_read(false);
}

/* By libzstd.so.1, which package managers and compilers need, too. */
static void code_of_cuda_13_is_decompressed(void **state) {
  (void)state;
  compressed_code_is_read(true);
}

/* Two pieces of memory, one behind the other at addresses that a program reserved. */
static CUdeviceptr mapped(size_t piece, CUmemGenericAllocationHandle memory[2]) {
  const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr at = 0;
  OK(cuMemAddressReserve(&at, 2 * piece, 0, 0, 0));
  for (size_t i = 0; i < 2; i++) {
    OK(cuMemCreate(&memory[i], piece, &prop, 0));
    OK(cuMemMap(at + i * piece, piece, 0, memory[i], 0));
  }
  OK(cuMemSetAccess(at, 2 * piece, &access, 1));
  return at;
}

static void an_argument_reaches_all_pieces_of_mapped_memory(void **state) {
  (void)state;
  enum { PIECE = 2 << 20 };
  static fat f;
  CUmemGenericAllocationHandle memory[2];
  fill_fat(&f);
  void **handle = __cudaRegisterFatBinary(&f);
  __cudaRegisterFunction(handle, &stub_b, NULL, "_Z6secondPf", -1, NULL, NULL, NULL, NULL, NULL);
  setenv("SIM_KERNELS", "opaque", 1);
  const CUdeviceptr at = mapped(PIECE, memory);
  cudaStream_t s = stream(), t = stream();
  for (size_t piece = 0; piece < 2; piece++) {
    char *inside = (char *)(uintptr_t)at + piece * PIECE, *other = (char *)(uintptr_t)at + (1 - piece) * PIECE;
    OK(launch_second(inside, NULL, s));
    assert_true(told("The 2 allocations that its arguments reach"));
    OK(cudaMemsetAsync(other, 1, 64, t));
    found(SIM_RACE, 1);
    OK(cudaDeviceSynchronize());
  }
  unsetenv("SIM_KERNELS");
  OK(cuMemUnmap(at, 2 * PIECE));
  OK(cuMemAddressFree(at, 2 * PIECE));
  for (size_t i = 0; i < 2; i++) OK(cuMemRelease(memory[i]));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
  __cudaUnregisterFatBinary(handle);
}

/* Wherever the file ends, and whatever its numbers are, nothing is read outside of it. */
static void a_broken_file_is_refused(void **state) {
  (void)state;
  setenv("SIM_KERNELS", "opaque", 1);
  for (size_t at = 0; at < offsetof(fat, code.info) - offsetof(fat, code); at += 2) {
    fat *broken = malloc(sizeof *broken); /* another one each time: what was read is kept */
    fill_fat(broken);
    if (at >= 16 || at < 6) memset((char *)&broken->code + at, 0xff, 2);
    broken->code.elf.e_shnum = at % 4 == 0 ? 2 : broken->code.elf.e_shnum;
    void **handle = __cudaRegisterFatBinary(broken), *p = NULL, *inside[3] = {NULL}, *args[] = {&p, &p, inside};
    __cudaRegisterFunction(handle, &stub_b, NULL, "_Z6secondPf", -1, NULL, NULL, NULL, NULL, NULL);
    (void)cudaLaunchKernel(&stub_b, one, one, args, 0, NULL);
    __cudaUnregisterFatBinary(handle);
    free(broken);
  }
  unsetenv("SIM_KERNELS");
  (void)cudaGetLastError();
  OK(cudaDeviceSynchronize());
  sim_reset();
}

static void a_kernel_is_known_while_its_library_is_loaded(void **state) {
  (void)state;
  void **handle = registered(), **other = __cudaRegisterFatBinary(image);
  static const char stub_c;
  const char *name = NULL;
  cudaKernel_t k = NULL;
  cudaFuncAttributes about;
  int blocks = 0;
  __cudaRegisterFunction(other, &stub_c, NULL, "_Z5thirdv", -1, NULL, NULL, NULL, NULL, NULL);
  OK(cudaFuncGetName(&name, &stub_a));
  assert_string_equal(name, "_Z5firstPf");
  OK(__cudaGetKernel(&k, &stub_a));
  FAILS(__cudaLaunchKernel(k, one, one, NULL, 0, NULL), cudaErrorNotSupported);
  found(SIM_MISUSE, 1);
  OK(cudaFuncGetAttributes(&about, &stub_a));
  assert_int_equal(about.maxThreadsPerBlock, 1024);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stub_a, 256, 0));
  assert_int_equal(blocks, 8);
  __cudaUnregisterFatBinary(handle);
  FAILS(cudaFuncGetName(&name, &stub_a), cudaErrorInvalidDeviceFunction);
  FAILS(cudaGetKernel(&k, &stub_b), cudaErrorInvalidDeviceFunction);
  OK(cudaFuncGetName(&name, &stub_c));
  assert_string_equal(name, "_Z5thirdv");
  __cudaUnregisterFatBinary(other);
}

static void configurations_are_taken_as_they_were_left(void **state) {
  (void)state;
  const dim3 two = {2, 3, 4};
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t s = NULL;
  FAILS(__cudaPopCallConfiguration(&grid, &block, &shared, &s), cudaErrorMissingConfiguration);
  OK(__cudaPushCallConfiguration(one, two, 5, CU_STREAM_LEGACY));
  OK(__cudaPushCallConfiguration(two, one, 6, CU_STREAM_PER_THREAD));
  OK(__cudaPopCallConfiguration(&grid, &block, &shared, &s));
  assert_true(grid.z == 4 && block.x == 1 && shared == 6 && s == CU_STREAM_PER_THREAD);
  OK(__cudaPopCallConfiguration(&grid, &block, &shared, &s));
  assert_true(grid.x == 1 && block.y == 3 && shared == 5 && s == CU_STREAM_LEGACY);
}

static void what_is_no_kernel_is_not_launched(void **state) {
  (void)state;
  const dim3 none = {0, 1, 1}, many = {1024, 2, 1};
  void **handle = registered();
  FAILS(cudaLaunchKernel(&stub_a, none, one, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernel(&stub_a, one, many, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernelExC(NULL, &stub_a, NULL), cudaErrorInvalidValue);
  __cudaUnregisterFatBinary(handle);
  FAILS(cudaLaunchKernel(&stub_a, one, one, NULL, 0, NULL), cudaErrorInvalidDeviceFunction);
  found(SIM_MISUSE, 1);
}

/* Each thread stores its number. */
static const char text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                           ".visible .entry number(.param .u64 to)\n{\n"
                           "  .reg .b32 %r<2>;\n  .reg .b64 %d<3>;\n"
                           "  ld.param.u64 %d1, [to];\n  cvta.to.global.u64 %d1, %d1;\n"
                           "  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %d2, %r1, 4;\n  add.u64 %d1, %d1, %d2;\n"
                           "  st.global.u32 [%d1], %r1;\n  ret;\n}\n";

static void a_kernel_of_ptx_runs(void **state) {
  (void)state;
  const dim3 threads = {8, 1, 1};
  cudaLibrary_t l = NULL;
  cudaKernel_t k = NULL;
  cudaFuncAttributes about;
  unsigned back[8];
  int blocks = 0;
  void *p = device_memory(), *args[] = {&p};
  OK(cudaLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
  FAILS(cudaLibraryGetKernel(&k, l, "letter"), cudaErrorSymbolNotFound);
  OK(cudaLibraryGetKernel(&k, l, "number"));
  OK(cudaLaunchKernel(k, one, threads, args, 0, NULL));
  OK(cudaMemcpy(back, p, sizeof back, cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < 8; i++) assert_int_equal(back[i], i);
  OK(cudaFuncGetAttributes(&about, k));
  assert_int_equal(about.constSizeBytes, sizeof p);
  FAILS(cudaLaunchKernel(k, one, (dim3){2000, 1, 1}, args, 0, NULL), cudaErrorInvalidConfiguration);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k, 65, 0));
  assert_int_equal(blocks, 21);
  OK(cudaLaunchCooperativeKernel(k, one, threads, args, 0, NULL));
  FAILS(cudaLaunchCooperativeKernel(k, (dim3){257, 1, 1}, threads, args, 0, NULL), cudaErrorCooperativeLaunchTooLarge);
  FAILS(cudaLaunchCooperativeKernel(k, one, (dim3){2000, 1, 1}, args, 0, NULL), cudaErrorInvalidConfiguration);
  OK(cudaDeviceSynchronize());
  OK(cudaLibraryUnload(l));
  OK(cudaFree(p));
}

/* PyTorch 2.15 is linked with these. */
static void a_library_comes_from_a_file_and_says_what_it_has(void **state) {
  (void)state;
  char file[] = "/tmp/sim-library-XXXXXX";
  cudaLibrary_t l = NULL;
  void *at = NULL;
  unsigned count = 0, value = 0;
  size_t nbytes = 0;
  FILE *out = fdopen(mkstemp(file), "w");
  fprintf(out, "%s.visible .global .u32 word = 9;\n", text);
  fclose(out);
  OK(cudaLibraryLoadFromFile(&l, file, NULL, NULL, 0, NULL, NULL, 0));
  unlink(file);
  OK(cudaLibraryGetKernelCount(&count, l));
  assert_int_equal(count, 1);
  OK(cudaLibraryGetGlobal(&at, &nbytes, l, "word"));
  assert_int_equal(nbytes, sizeof value);
  OK(cudaMemcpy(&value, at, sizeof value, cudaMemcpyDeviceToHost));
  assert_int_equal(value, 9);
  FAILS(cudaLibraryGetManaged(&at, &nbytes, l, "word"), cudaErrorSymbolNotFound);
  FAILS(cudaLibraryGetUnifiedFunction(&at, l, "number"), cudaErrorSymbolNotFound);
  FAILS(cudaLibraryGetKernelCount(NULL, l), cudaErrorInvalidValue);
  OK(cudaLibraryUnload(l));
  FAILS(cudaLibraryLoadFromFile(&l, file, NULL, NULL, 0, NULL, NULL, 0), cudaErrorFileNotFound);
  (void)cudaGetLastError();
}

RUN(SPEC(a_compiled_kernel_is_refused_by_its_name), SPEC(a_compiled_kernel_can_stand_for_what_its_arguments_reach),
    SPEC(an_argument_reaches_all_pieces_of_mapped_memory), SPEC(a_broken_file_is_refused),
    SPEC(code_of_cuda_12_is_decompressed), SPEC(code_of_cuda_13_is_decompressed),
    SPEC(a_kernel_is_known_while_its_library_is_loaded), SPEC(configurations_are_taken_as_they_were_left),
    SPEC(what_is_no_kernel_is_not_launched), SPEC(a_kernel_of_ptx_runs),
    SPEC(a_library_comes_from_a_file_and_says_what_it_has))
