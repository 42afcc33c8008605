/* fatbin.c: which arguments a compiled kernel takes, as its code says.
 *
 * A fat binary is a list of the same code for several architectures; of those, one ELF file is read, never run. NVIDIA
 * does not document the forms: what is known of them is what the compiler's public tools (cuobjdump, nvdisasm) show, so
 * what does not look as expected is not guessed at, and its launches stay refused. Invariant: nothing is read outside
 * of the file. It must not know what a launch does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fatbin.h"

#define WRAPPED 0x466243b1u
#define FAT 0xba55ed50u

enum { MACHINE_CODE = 2, LZ4 = 0x2000, ZSTD = 0x8000, PARAMETER = 0x17, WITH_SIZE = 4, SIZE_SHIFT = 18,
  MOST_BYTES = 32764 };

typedef struct wrapper {
  uint32_t magic, version;
  const void *code;
  const void *unused;
} wrapper;

typedef struct fat_header {
  uint32_t magic;
  uint16_t version, nbytes;
  uint64_t rest;
} fat_header;

typedef struct fat_entry {
  uint16_t kind, version;
  uint32_t header;
  uint64_t padded;
  uint32_t packed, unused[5];
  uint64_t flags, more, unpacked;
} fat_entry;

_Static_assert(sizeof(fat_entry) == 64 && offsetof(fat_entry, flags) == 40 && offsetof(fat_entry, unpacked) == 56, "");

typedef struct elf_file {
  struct elf_file *next;
  const void *of; /* the fat binary */
  const unsigned char *bytes; /* NULL: there is none that can be read */
  size_t n;
  unsigned char *own; /* its bytes, where they were decompressed */
  const char *why;
} elf_file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static elf_file *files;

static bool zstd_unpack(const unsigned char *from, size_t n, unsigned char *to, size_t wanted, const char **why) {
  size_t (*decompress)(void *, size_t, const void *, size_t) = NULL;
  void *zstd = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  void *found = zstd == NULL ? NULL : dlsym(zstd, "ZSTD_decompress");
  memcpy(&decompress, &found, sizeof found);
  if (decompress == NULL) *why = "its code is compressed, and libzstd.so.1 is not there";
  return decompress != NULL && decompress(to, wanted, from, n) == wanted;
}

/* Zstandard since CUDA 13, LZ4 before it. */
static unsigned char *unpacked(const unsigned char *from, const fat_entry *e, const char **why) {
  unsigned char *out = malloc(e->unpacked + 1);
  *why = "its code cannot be decompressed";
  if (out == NULL) return NULL;
  if ((e->flags & ZSTD) != 0 ? zstd_unpack(from, e->packed, out, e->unpacked, why)
                             : lz4_unpack(from, e->packed, out, e->unpacked))
    return out;
  free(out);
  return NULL;
}

/* The first machine code that can be read. */
static void read_fat(elf_file *f, const unsigned char *at) {
  fat_header h;
  memcpy(&h, at, sizeof h);
  f->why = "its library has no machine code";
  if (h.magic != FAT || h.nbytes < sizeof h) return;
  const unsigned char *end = at + h.nbytes + h.rest;
  for (at += h.nbytes; (size_t)(end - at) >= sizeof(fat_entry);) {
    fat_entry e;
    memcpy(&e, at, sizeof e);
    const size_t left = (size_t)(end - at);
    if (e.header < sizeof e || e.header > left || e.padded > left - e.header || e.packed > e.padded) return;
    const unsigned char *code = at + e.header;
    at = code + e.padded;
    if (e.kind != MACHINE_CODE) continue;
    const bool plain = (e.flags & (LZ4 | ZSTD)) == 0;
    if (!plain) f->own = unpacked(code, &e, &f->why);
    f->bytes = plain ? code : f->own;
    f->n = plain ? e.padded : e.unpacked;
    if (f->bytes != NULL) return;
  }
}

static const elf_file *file_of(const void *image) {
  wrapper w;
  memcpy(&w.magic, image, sizeof w.magic);
  if (w.magic != WRAPPED) return NULL;
  memcpy(&w, image, sizeof w);
  pthread_mutex_lock(&lock);
  elf_file *f = files;
  while (f != NULL && f->of != w.code) f = f->next;
  if (f == NULL && (f = calloc(1, sizeof *f)) != NULL) {
    *f = (elf_file){.next = files, .of = w.code};
    files = f;
    read_fat(f, w.code);
  }
  pthread_mutex_unlock(&lock);
  return f;
}

void kernel_forget(const void *image) {
  wrapper w;
  memcpy(&w.magic, image, sizeof w.magic);
  if (w.magic != WRAPPED) return;
  memcpy(&w, image, sizeof w);
  pthread_mutex_lock(&lock);
  elf_file **link = &files;
  while (*link != NULL && (*link)->of != w.code) link = &(*link)->next;
  elf_file *f = *link;
  if (f != NULL) *link = f->next;
  pthread_mutex_unlock(&lock);
  if (f != NULL) free(f->own);
  free(f);
}

static bool inside(const elf_file *f, uint64_t at, uint64_t n) {
  return at <= f->n && n <= f->n - at;
}

static bool section_at(const elf_file *f, const Elf64_Ehdr *h, unsigned i, Elf64_Shdr *out) {
  const uint64_t at = h->e_shoff + (uint64_t)i * sizeof *out;
  if (i >= h->e_shnum || h->e_shentsize != sizeof *out || h->e_shoff > f->n) return false;
  if (!inside(f, at, sizeof *out)) return false;
  memcpy(out, f->bytes + at, sizeof *out);
  return out->sh_type == SHT_NOBITS || inside(f, out->sh_offset, out->sh_size);
}

/* The section that says what the kernel is called with. */
static bool find_info(const elf_file *f, const char *name, Elf64_Shdr *out) {
  Elf64_Ehdr h;
  Elf64_Shdr names;
  char wanted[2048];
  if (!inside(f, 0, sizeof h)) return false;
  memcpy(&h, f->bytes, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || !section_at(f, &h, h.e_shstrndx, &names)) return false;
  const int n = snprintf(wanted, sizeof wanted, ".nv.info.%s", name) + 1;
  for (unsigned i = 0; i < h.e_shnum && n < (int)sizeof wanted; i++) {
    if (!section_at(f, &h, i, out) || out->sh_name > names.sh_size) continue;
    if ((size_t)n > names.sh_size - out->sh_name) continue;
    if (memcmp(f->bytes + names.sh_offset + out->sh_name, wanted, (size_t)n) == 0) return true;
  }
  return false;
}

static int read_parameters(const unsigned char *at, const unsigned char *end, kernel_parameter *out, int most) {
  int n = 0;
  while (end - at >= 4) {
    uint16_t size;
    uint32_t words[3];
    memcpy(&size, at + 2, sizeof size);
    const bool sized = at[0] == WITH_SIZE;
    const unsigned char *data = at + 4, *next = data + (sized ? size : 0);
    if (sized && size > end - data) return -1;
    if (sized && at[1] == PARAMETER && size == sizeof words) {
      memcpy(words, data, sizeof words);
      if (n == most || (words[1] & 0xffff) >= (unsigned)most || words[2] >> SIZE_SHIFT > MOST_BYTES) return -1;
      out[n++] = (kernel_parameter){words[1] & 0xffff, words[2] >> SIZE_SHIFT};
    }
    at = next;
  }
  return n;
}

int kernel_parameters(const void *image, const char *name, kernel_parameter *out, int most, const char **why) {
  Elf64_Shdr info;
  const elf_file *f = file_of(image);
  *why = f == NULL ? "its library's form is not known" : f->why;
  if (f == NULL || f->bytes == NULL) return -1;
  *why = "its code does not say which arguments it takes";
  if (!find_info(f, name, &info) || info.sh_type == SHT_NOBITS) return -1;
  const unsigned char *at = f->bytes + info.sh_offset;
  return read_parameters(at, at + info.sh_size, out, most);
}
