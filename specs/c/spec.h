/* spec.h: what every C spec shares.
 *
 * A spec is one program of cmocka tests about one noun of the header. Each test runs on a strict allocator
 * (guards, poison, exact old sizes) and ends with the ledger at zero and with every foreign deleter and
 * release callback called exactly once. Knows the public header only.
 */
#ifndef MOONFERRY_SPEC_H
#define MOONFERRY_SPEC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moonferry.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A shape, strides or coordinates written in place: the number of values, then the values. */
#define NVALUES(...) (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define DIMS(...) NVALUES(__VA_ARGS__), (int64_t[]){__VA_ARGS__}
/* The same in the order of the API: the values, then their number. */
#define TO(...) (int64_t[]){__VA_ARGS__}, NVALUES(__VA_ARGS__)

#define SPEC(test) cmocka_unit_test_setup_teardown(test, spec_setup, spec_teardown)

int spec_group_setup(void **state);
int spec_setup(void **state);
int spec_teardown(void **state);

/* The error that OK and FAILS watch: pass &spec_err to the call inside them. */
extern mf_error spec_err;
mf_error *spec_err_arm(void);
void spec_check(int rc, int want, const char *saying, const char *expr, const char *file, int line);

/* The call succeeds and leaves the error alone; or fails with a status, a terminated message (that contains
 * a text) and the name of the call. */
#define OK(expr) (spec_err_arm(), spec_check((expr), MF_OK, NULL, #expr, __FILE__, __LINE__))
#define FAILS(status, expr) (spec_err_arm(), spec_check((expr), status, NULL, #expr, __FILE__, __LINE__))
#define SAYS(status, text, expr) \
  (spec_err_arm(), spec_check((expr), status, text, #expr, __FILE__, __LINE__))

/* As FAILS, and the output pointer, which was not NULL before, is NULL. */
#define REFUSES(status, out, expr)            \
  do {                                        \
    *(void **)&(out) = (void *)(uintptr_t)16; \
    FAILS(status, expr);                      \
    assert_null(out);                         \
  } while (0)

/* How often a random test repeats itself: less where ThreadSanitizer makes each round much slower. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS_OF(n) ((n) / 20)
#else
#define ROUNDS_OF(n) (n)
#endif

/* Random numbers, from a seed that is printed (MOONFERRY_SPEC_SEED chooses another). */
uint64_t spec_random(void);
int64_t spec_between(int64_t low, int64_t high);
void spec_random_bytes(void *out, size_t nbytes);

/* The strict allocator: live blocks, and the function to install. */
int64_t spec_strict_live(void);
void *spec_strict_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes);

/* Memory between two pages without access, that it ends at: whole pages from `start`. */
typedef struct spec_region {
  unsigned char *start;
  size_t nbytes;
} spec_region;

spec_region spec_guarded(size_t nbytes);
void spec_unguard(spec_region r);

/* The size of a page of memory. */
size_t spec_page_nbytes(void);

/* The calling thread's number, as the system names it. */
int64_t spec_thread_id(void);

/* Tensors. */
DLDataType spec_dtype(const char *name);
mf_tensor *spec_create(const char *dtype, int32_t ndim, const int64_t *shape);
mf_tensor *spec_wrap(void *data, const char *dtype, int32_t ndim, const int64_t *shape,
                     const int64_t *strides);

/* The oracle of layouts. Coordinates run in row-major order; spec_next returns false after the last. Bit
 * offsets count from `data`. Elements are read and written bit by bit, as ceil(bits / 8) bytes. */
bool spec_first(int32_t ndim, const int64_t *shape, int64_t *coords);
bool spec_next(int32_t ndim, const int64_t *shape, int64_t *coords);
int64_t spec_bit(const DLTensor *view, uint64_t flags, const int64_t *coords);
void spec_read(const DLTensor *view, uint64_t flags, const int64_t *coords, unsigned char *out);
void spec_write(void *data, int64_t bit, int64_t nbits, const unsigned char *from);
size_t spec_element_nbytes(const DLTensor *view);

/* A random layout with its memory: rank 0..max_ndim, extents 0..4, strides of any sign. `block` is exactly
 * as large as the layout needs; element 0 is at view.data. */
typedef struct spec_layout {
  DLTensor view;
  int64_t shape[MF_MAX_NDIM];
  int64_t strides[MF_MAX_NDIM];
  unsigned char *block;
  size_t block_nbytes;
} spec_layout;

void spec_layout_random(spec_layout *l, DLDataType dtype, uint64_t flags, int32_t max_ndim);
void spec_layout_strides(spec_layout *l, bool distinct);
void spec_layout_memory(spec_layout *l, uint64_t flags);
mf_tensor *spec_layout_wrap(const spec_layout *l, uint64_t flags);

/* A release callback that must run exactly once before the test ends: pass spec_once_run and its result. */
typedef struct spec_once spec_once;
spec_once *spec_once_new(void);
void spec_once_run(void *once);
int spec_once_calls(const spec_once *once);
void spec_once_never(spec_once *once);

/* A managed struct, as a producer lends it. Its deleter frees struct, arrays and memory, aborts on a second
 * call, and fails the test if it was not called by its end. */
typedef struct spec_loan {
  DLManagedTensorVersioned *versioned; /* one of the two */
  DLManagedTensor *legacy;
  DLTensor *view; /* inside the struct; faults are written here before the import */
  int64_t *shape;
  int64_t *strides;
  void *memory; /* freed by the deleter; may be NULL */
  struct spec_loan_state *state;
} spec_loan;

spec_loan *spec_lend(const DLTensor *like, uint64_t flags, bool legacy);
spec_loan *spec_lend_compact(const char *dtype, int32_t ndim, const int64_t *shape, bool legacy);
int spec_import(spec_loan *loan, mf_tensor **out, mf_error *err);
int spec_loan_calls(const spec_loan *loan);
/* The import was refused: checks that struct and arrays are as they were and the deleter was not called, then
 * takes the loan back. */
void spec_loan_refused(spec_loan *loan);
/* The deleter is NULL: the test itself frees the struct at its end. */
void spec_loan_no_deleter(spec_loan *loan);

/* Runs ${call} again and again with allocation 0, 1, ... failing, once and sticky, until it succeeds. Each
 * failure must be MF_ENOMEM and leave the ledger as it was; ${call} must undo its own success. Returns how
 * many allocations the call makes. */
typedef int (*spec_call)(void *ctx, mf_error *err);
int64_t spec_each_failure(spec_call call, void *ctx);

#endif /* MOONFERRY_SPEC_H */
