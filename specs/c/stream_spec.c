/* stream_spec.c: copies and casts that are too large for the caches, in each of the ways that go past them: whole rows,
 * a row of one element, tiles, and planes whose short rows follow each other; by each set of instructions, by one
 * thread and by three. Every element arrives, and nothing beside them is written. kernel_spec.c has those that are
 * smaller. */
#include "spec.h"

typedef struct layout {
  const char *name;
  int64_t shape[3], dst[3], src[3]; /* strides */
} layout;

static const layout layouts[] = {
    {"rows with gaps between them", {3, 800, 4096}, {800 * 4100, 4100, 1}, {800 * 4500, 4500, 1}},
    {"rows of one element each", {3, 999, 4100}, {999 * 4100, 4100, 1}, {999, 1, 0}},
    {"a crossed plane", {1, 3001, 2999}, {0, 2999, 1}, {0, 1, 3001}},
    {"a crossed plane of whole lines", {1, 3072, 2944}, {0, 2944, 1}, {0, 1, 3072}},
    {"a crossed plane to every second element", {1, 1201, 999}, {0, 1998, 2}, {0, 1, 1201}},
    {"short rows, plane after plane", {250, 800, 37}, {800 * 37, 37, 1}, {1, 250 * 37, 250}},
    {"short rows of every second element", {900, 700, 30}, {700 * 30, 30, 1}, {700 * 64, 64, 2}},
    {"short rows, from a source that is farther", {129, 1600, 35}, {1600 * 35, 35, 1}, {1, 140 * 36, 140}},
    {"short rows, whose elements are nowhere close in the source", {3000, 60, 20}, {60 * 23, 23, 1}, {1, 3000, 180000}},
};

static int64_t extent(const int64_t *shape, const int64_t *strides) {
  int64_t last = 0;
  for (int i = 0; i < 3; i++) last += (shape[i] - 1) * strides[i];
  return last + 1;
}

/* The loops over each byte are the program's time; what they touch is the spec's own, and no sanitizer has to look. */
#if defined(__SANITIZE_ADDRESS__)
#define UNWATCHED __attribute__((no_sanitize("address", "undefined")))
#else
#define UNWATCHED
#endif

/* Whether the element at ${made} has the ${of} bytes at ${src} and zeros behind them. */
UNWATCHED static inline bool is_element(const char *made, const char *src, int64_t size, int64_t of) {
  bool same = true;
  for (int64_t n = 0; n < size; n++) same &= made[n] == (n < of ? src[n] : 0);
  return same;
}

/* Unsigned integers of so many bytes, which come from fewer or as many. What is written beside the elements is as wrong
 * as a wrong element. */
UNWATCHED static bool is_right(const layout *l, const char *dst, const char *src, int64_t size, int64_t of,
                               int64_t count) {
  int64_t written = 0, kept = 0;
  for (int64_t i = 0; i < l->shape[0]; i++)
    for (int64_t j = 0; j < l->shape[1]; j++)
      for (int64_t k = 0; k < l->shape[2]; k++, written++) {
        const int64_t to = i * l->dst[0] + j * l->dst[1] + k * l->dst[2];
        const int64_t from = i * l->src[0] + j * l->src[1] + k * l->src[2];
        if (!is_element(dst + to * size, src + from * of, size, of)) return false;
      }
  for (int64_t at = 0; at < count * size; at++) kept += (unsigned char)dst[at] == 0xee;
  return kept >= (count - written) * size;
}

UNWATCHED static void draw(char *bytes, int64_t count) {
  uint64_t state = 88172645463325252u;
  for (int64_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = (char)(state >> 57); /* of 7 bits, so never 0xee */
  }
}

/* Both sides begin so many bytes behind where memory would be aligned. */
static void moved(const layout *l, int64_t size, int64_t of, int64_t behind) {
  const int64_t there = extent(l->shape, l->dst), from = extent(l->shape, l->src);
  char *memory[] = {malloc((size_t)(from * of + behind)), malloc((size_t)(there * size + behind))};
  assert_true(memory[0] != NULL && memory[1] != NULL);
  char *src = memory[0] + behind, *dst = memory[1] + behind;
  draw(src, from * of);
  memset(dst, 0xee, (size_t)(there * size));
  DLTensor view = {.data = dst, .device = {kDLCPU, 0}, .ndim = 3, .dtype = {kDLUInt, (uint8_t)(8 * size), 1},
                   .shape = (int64_t *)l->shape, .strides = (int64_t *)l->dst};
  mf_tensor *t, *u;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &spec_err));
  view.data = src;
  view.dtype.bits = (uint8_t)(8 * of);
  view.strides = (int64_t *)l->src;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &u, &spec_err));
  OK(size == of ? mf_tensor_copy(t, u, &spec_err) : mf_tensor_astype(t, u, &spec_err));
  if (!is_right(l, dst, src, size, of, there))
    fail_msg("%s of %d bytes from %d, %d behind, %s, %d threads", l->name, (int)size, (int)of, (int)behind, mf_simd(),
             (int)mf_threads());
  mf_tensor_release(t);
  mf_tensor_release(u);
  free(memory[0]);
  free(memory[1]);
}

/* A sanitizer takes ten times as long, and one thread has no race. */
#if defined(__SANITIZE_THREAD__)
enum { OFTEN = 60, FEWEST = 3 };
#elif defined(__SANITIZE_ADDRESS__)
enum { OFTEN = 60, FEWEST = 1 };
#else
enum { OFTEN = 20, FEWEST = 1 };
#endif

/* Elements of four bytes, casts of them to eight, and of a quarter to all, with the best set; all else as the seed
 * draws it. Those of eight bytes, and what becomes them, lie one byte behind where they would be aligned. */
static void each_way(void **state) {
  static const char *const sets[] = {"avx512", "avx2", "sse2", "neon", "plain"};
  size_t best = 0;
  (void)state;
  while (strcmp(sets[best], mf_simd()) != 0) best++;
  for (size_t s = 0; s < COUNT(sets); s++) {
    if (mf_simd_set(sets[s], NULL) != MF_OK) continue;
    for (int32_t threads = FEWEST; threads <= 3; threads += 2) {
      OK(mf_threads_set(threads, &spec_err));
      for (size_t i = 0; i < COUNT(layouts); i++)
        for (int64_t size = 1; size <= 8; size *= 2)
          for (int64_t of = 1; of <= size; of *= 2) {
            const bool always = s <= best && size >= 4 && (of == size / 4 || of == 4);
            if (always || spec_between(0, OFTEN) == 0) moved(&layouts[i], size, of, size / 8);
          }
    }
  }
  OK(mf_threads_set(1, &spec_err));
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(each_way)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
