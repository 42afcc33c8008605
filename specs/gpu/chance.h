/* chance.h: the tensors of programs at random (chance_spec.c), and the model of what they must hold. device.h comes
 * first. */
#ifndef GPU_CHANCE_H
#define GPU_CHANCE_H

#include <pthread.h>
#include <stdatomic.h>

enum { ROWS = 9, COLUMNS = 14, CELLS = ROWS * COLUMNS };

static const DLDataType dtypes[] = {{kDLUInt, 8, 1}, {kDLInt, 32, 1}, {kDLUInt, 16, 1}};

/* A tensor of ROWS x COLUMNS, and what it must hold: numbers that each dtype has. */
typedef struct item {
  mf_tensor *t;
  int32_t values[CELLS];
  atomic_int graphs; /* that use it, so that it stays */
  pthread_rwlock_t lock;
} item;

/* The tensors that a step uses, and which of them it changes: other threads may use them, too. */
typedef struct hold {
  item *x, *y;
  bool writes_x, writes_y;
} hold;

static void hold_one(item *x, bool writes) {
  if (x == NULL) return;
  assert_int_equal(writes ? pthread_rwlock_wrlock(&x->lock) : pthread_rwlock_rdlock(&x->lock), 0);
}

static void hold_begin(hold *h) {
  if (h->x == h->y) {
    h->writes_x |= h->writes_y;
    h->y = NULL;
  }
  const bool in_order = h->y == NULL || h->x < h->y;
  hold_one(in_order ? h->x : h->y, in_order ? h->writes_x : h->writes_y);
  hold_one(in_order ? h->y : h->x, in_order ? h->writes_y : h->writes_x);
}

static void hold_end(const hold *h) {
  if (h->x != NULL) pthread_rwlock_unlock(&h->x->lock);
  if (h->y != NULL) pthread_rwlock_unlock(&h->y->lock);
}

/* Every ${step}th row and column from the first of each on, or the last ones first. */
typedef struct window {
  int64_t first[2], step[2];
} window;

typedef struct graph {
  void *launches; /* NULL: none */
  item *dst, *src;
  window to, from;
  int64_t shape[2];
  mf_tensor *dst_view, *src_view;
  int gpu;
} graph;

static bool on_gpu(const mf_tensor *t) {
  return mf_tensor_dltensor(t)->device.device_type == (DLDeviceType)other_device_type();
}

static int gpu_of(const mf_tensor *t) {
  return mf_tensor_dltensor(t)->device.device_id;
}

static uint64_t random_below(uint64_t *random, uint64_t n) {
  return random_of(random) % n;
}

static window any_window(uint64_t *random, const int64_t *shape) {
  static const int64_t whole[] = {ROWS, COLUMNS};
  window w;
  for (int i = 0; i < 2; i++) {
    const int64_t last = shape[i] - 1;
    w.step[i] = last == 0 ? 1 : 1 + (int64_t)random_below(random, (uint64_t)((whole[i] - 1) / last));
    const int64_t reach = last * w.step[i];
    w.first[i] = (int64_t)random_below(random, (uint64_t)(whole[i] - reach));
    if (random_below(random, 3) != 0) continue;
    w.first[i] += reach;
    w.step[i] = -w.step[i];
  }
  return w;
}

static int64_t cell(const window *w, int64_t row, int64_t column) {
  return (w->first[0] + row * w->step[0]) * COLUMNS + w->first[1] + column * w->step[1];
}

static void model_copy(item *dst, const window *to, const item *src, const window *from, const int64_t *shape) {
  int32_t taken[CELLS];
  for (int64_t r = 0, n = 0; r < shape[0]; r++)
    for (int64_t c = 0; c < shape[1]; c++) taken[n++] = src->values[cell(from, r, c)];
  for (int64_t r = 0, n = 0; r < shape[0]; r++)
    for (int64_t c = 0; c < shape[1]; c++) dst->values[cell(to, r, c)] = taken[n++];
}

/* One byte for each cell. */
static void written(item *x, int byte) {
  for (int i = 0; i < CELLS; i++) x->values[i] = byte;
}

static int32_t value_of(const mf_tensor *host, int64_t i) {
  const unsigned char *p = data_of(host);
  const int nbytes = mf_tensor_dltensor(host)->dtype.bits / 8;
  int32_t wide = 0;
  uint16_t half;
  memcpy(&half, p + i * nbytes, nbytes < 2 ? 1 : 2);
  if (nbytes == 4) memcpy(&wide, p + i * 4, 4);
  return nbytes == 4 ? wide : nbytes == 2 ? half : p[i];
}

#endif
