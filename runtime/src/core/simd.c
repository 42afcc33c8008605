/* simd.c: which set of kernels this machine uses. The best one that it has, unless mf_simd_set says otherwise. */
#include "core/simd.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Clang's __builtin_cpu_supports knows no "f16c" up to version 14: CPUID leaf 1 has it in bit 29 of ECX. */
static bool has_f16c(void) {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") && has_f16c();
}

static bool has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

typedef struct simd_set {
  const char *name;
  const mf__simd *kernels;
  bool (*present)(void);
} simd_set;

static bool always(void) {
  return true;
}

/* The better ones first. */
static const simd_set sets[] = {
#if defined(__x86_64__)
    {"avx512", &mf__simd_avx512, has_avx512},
    {"avx2", &mf__simd_avx2, has_avx2},
    {"sse2", &mf__simd_base, always},
#elif defined(__aarch64__)
    {"neon", &mf__simd_base, always},
#endif
    {"plain", NULL, always},
};

static _Atomic(const simd_set *) current; /* NULL until somebody asks */

static const simd_set *chosen(void) {
  const simd_set *s = atomic_load_explicit(&current, memory_order_relaxed);
  if (s != NULL) return s;
  for (s = sets; !s->present();) s++;
  atomic_store_explicit(&current, s, memory_order_relaxed);
  return s;
}

const mf__simd *mf__simd_now(void) {
  return chosen()->kernels;
}

const char *mf_simd(void) {
  return chosen()->name;
}

/* The names of what this machine has, with commas between. */
static void list_present(char *to, size_t room) {
  size_t used = 0;
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
    if (sets[i].present())
      used += (size_t)snprintf(to + used, room - used, "%s%s", used == 0 ? "" : ", ", sets[i].name);
}

int mf_simd_set(const char *name, mf_error *err) {
  char names[64];
  for (size_t i = 0; name != NULL && i < sizeof sets / sizeof sets[0]; i++) {
    if (strcmp(sets[i].name, name) != 0 || !sets[i].present()) continue;
    atomic_store_explicit(&current, &sets[i], memory_order_relaxed);
    return MF_OK;
  }
  list_present(names, sizeof names);
  return mf__end(mf__fail(err, MF_EINVAL, "name is %.32s; one of %s expected", name == NULL ? "NULL" : name, names),
                 __func__, err);
}
