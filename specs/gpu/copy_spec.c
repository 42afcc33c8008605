/* copy_spec.c: copies and fills in which a device takes part. Every pair of memories and layouts must give what the
 * same copy gives on the host, gaps between the elements included, with nothing unordered, under every seed
 * (MOONFERRY_SPEC_SEEDS, 8 if it is not set). The host's own copies are specs/c/copy_spec.c's. */
#include "places.h"

static void one_copy(place from, place to, uint64_t seed) {
  const char *dtype = dtypes[draw() % (COUNT(dtypes))];
  int64_t shape[5];
  int32_t ndim;
  side src, dst;
  char what[128];
  any_shape(&ndim, shape);
  snprintf(what, sizeof what, "seed %llu, %s from %s to %s", (unsigned long long)seed, dtype, place_names[from],
           place_names[to]);
  find_way(&src.way, ndim, shape, draw() % 4 == 0 ? PLAIN : draw() % 6 == 0 ? REPEAT : 0);
  find_way(&dst.way, ndim, shape, draw() % 3 == 0 ? PLAIN : 0);
  side_open(&src, from, dtype, shape);
  side_open(&dst, to, dtype, shape);
  if (src.host_view != NULL && dst.host_view != NULL) {
    OK(mf_tensor_copy(dst.host_view, src.host_view, &err));
    use_any_stream();
    if (mf_tensor_copy(dst.device_view, src.device_view, &err) != MF_OK) fail_msg("%s: %s", what, err.message);
    use_any_stream();
    same_bytes(dst.device, dst.host, what);
    same_bytes(src.device, src.host, what);
  }
  side_close(&src);
  side_close(&dst);
}

static void any_layout_anywhere_to_any_layout_anywhere(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(8); seed++) {
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    for (place from = 0; from < NPLACES; from++)
      for (place to = 0; to < NPLACES; to++)
        for (int i = 0; i < 4 && have(from) && have(to); i++) one_copy(from, to, seed);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

/* Two views of one memory. */
static void one_overlap(place at, uint64_t seed) {
  const char *dtype = draw() % 8 == 0 ? "int4+" : dtypes[draw() % 7];
  int64_t shape[2] = {between(1, 6), between(1, 6)}, parent[2] = {24, 24};
  way a, b;
  mf_tensor *host = random_host(dtype, 2, parent), *device = at_place(host, at);
  find_way(&a, 2, shape, 0);
  find_way(&b, 2, shape, draw() % 2 == 0 ? PLAIN : 0);
  mf_tensor *views[] = {go(&a, host, shape), go(&b, host, shape), go(&a, device, shape), go(&b, device, shape)};
  mf_tensor *parts[4];
  for (int i = 0; i < 4; i++) { /* PLAIN ways are of a smaller parent */
    const mf_index whole[] = {{.kind = MF_INDEX_SLICE, .stop = shape[0], .step = 1},
                              {.kind = MF_INDEX_SLICE, .stop = shape[1], .step = 1}};
    OK(mf_tensor_index(views[i], whole, 2, &parts[i], &err));
  }
  bool same = true;
  for (int i = 0; i < 2; i++)
    same = same && mf_tensor_dltensor(parts[0])->shape[i] == mf_tensor_dltensor(parts[1])->shape[i];
  if (same) {
    OK(mf_tensor_copy(parts[0], parts[1], &err));
    use_any_stream();
    OK(mf_tensor_copy(parts[2], parts[3], &err));
    use_any_stream();
    char what[64];
    snprintf(what, sizeof what, "seed %llu, %s on %s", (unsigned long long)seed, dtype, place_names[at]);
    same_bytes(device, host, what);
  }
  for (int i = 0; i < 4; i++) {
    mf_tensor_release(views[i]);
    mf_tensor_release(parts[i]);
  }
  mf_tensor_release(host);
  mf_tensor_release(device);
}

static void overlapping_views_as_if_read_first(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(8); seed++) {
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    for (place at = PINNED; at < NPLACES; at++)
      for (int i = 0; i < 10 && have(at); i++) one_overlap(at, seed);
  }
}

/* int16 elements over memory that stays its owner's, ${first} elements behind its beginning. */
static mf_tensor *laid_over(mf_tensor *memory, int64_t first, int64_t *shape, const int64_t *strides) {
  const DLTensor *bytes = mf_tensor_dltensor(memory);
  const DLTensor view = {.data = (int16_t *)bytes->data + first, .device = bytes->device, .ndim = 2,
                         .dtype = dtype_of("int16"), .shape = shape, .strides = (int64_t *)(uintptr_t)strides};
  mf_tensor *out;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &out, &err));
  return out;
}

static void wait_for(place at) {
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), at == GPU1}, &err));
}

static const mf_scalar hex_1234 = {.kind = MF_KIND_INT, .i = 0x1234};

/* A destination of 4 x 3 whose places repeat as the strides say, over 64 bytes. */
static void one_repeated(place at, const int64_t *strides, bool fill) {
  int64_t shape[] = {4, 3}, room[] = {64};
  mf_tensor *memory[2], *views[2], *src = random_host("int16", 2, shape);
  memory[0] = random_host("uint8", 1, room);
  memory[1] = at_place(memory[0], at);
  for (int i = 0; i < 2; i++) {
    views[i] = laid_over(memory[i], 0, shape, strides);
    wait_for(at);
    OK(mf_tensor_copy(views[i], src, &err));
    mf_tensor *placed = at_place(src, i == 0 ? CPU : at);
    OK(mf_tensor_copy(views[i], placed, &err));
    mf_tensor_release(placed);
    if (fill) OK(mf_tensor_fill(views[i], &hex_1234, &err));
  }
  wait_for(at);
  same_bytes(memory[1], memory[0], "repeated");
  for (int i = 0; i < 2; i++) {
    mf_tensor_release(views[i]);
    mf_tensor_release(memory[i]);
  }
  mf_tensor_release(src);
}

static void where_places_repeat_the_last_stays(void **state) {
  static const int64_t strides[][2] = {{0, 1}, {3, 0}, {0, 0}, {1, 1}, {1, 2}, {2, 1}};
  (void)state;
  for (size_t i = 0; i < COUNT(strides); i++)
    for (place at = GPU0; at < NPLACES; at++)
      for (int fill = 0; fill < 2 && have(at); fill++) one_repeated(at, strides[i], fill);
}

/* Windows over one row of elements: a fill has each place once, and nothing goes by the host. */
static void windows_are_filled_where_they_are(void **state) {
  static const int64_t strides[][2] = {{1, 1}, {2, 1}, {3, 1}, {-1, 1}, {1, 3}, {4, 2}, {1, 7}};
  int64_t shape[] = {7, 3}, room[] = {128};
  (void)state;
  for (size_t i = 0; i < COUNT(strides); i++) {
    mf_tensor *memory[2], *views[2];
    memory[0] = random_host("uint8", 1, room);
    memory[1] = at_place(memory[0], GPU0);
    wait_for(GPU0);
    for (int k = 0; k < 2; k++) views[k] = laid_over(memory[k], 10, shape, strides[i]);
    OK(mf_tensor_fill(views[0], &hex_1234, &err));
    const uint64_t before = sim_ask_calls(named("cuMemcpyAsync", "hipMemcpyAsync"));
    OK(mf_tensor_fill(views[1], &hex_1234, &err));
    assert_int_equal(sim_ask_calls(named("cuMemcpyAsync", "hipMemcpyAsync")), before);
    wait_for(GPU0);
    same_bytes(memory[1], memory[0], "windows");
    for (int k = 0; k < 2; k++) {
      mf_tensor_release(views[k]);
      mf_tensor_release(memory[k]);
    }
  }
}

static void clones_stay_on_their_device(void **state) {
  int64_t shape[] = {5, 7};
  (void)state;
  for (place at = PINNED; at < NPLACES; at++) {
    mf_tensor *turned, *clone, *host_turned, *host_clone;
    if (!have(at)) continue;
    mf_tensor *host = random_host("float32", 2, shape), *t = at_place(host, at);
    OK(mf_tensor_permute_dims(host, NULL, 0, &host_turned, &err));
    OK(mf_tensor_clone(host_turned, &host_clone, &err));
    OK(mf_tensor_permute_dims(t, NULL, 0, &turned, &err));
    OK(mf_tensor_clone(turned, &clone, &err));
    assert_int_equal(mf_tensor_dltensor(clone)->device.device_type, device_at(at).device_type);
    assert_int_equal(mf_tensor_dltensor(clone)->device.device_id, device_at(at).device_id);
    assert_true(mf_tensor_is_contiguous(clone));
    same_bytes(clone, host_clone, place_names[at]);
    mf_tensor *all[] = {host, t, turned, clone, host_turned, host_clone};
    for (int i = 0; i < 6; i++) mf_tensor_release(all[i]);
  }
}

/* Each in a byte of its own, in an order that only the host changes where there is no kernel. */
static void padded_elements_in_another_order(void **state) {
  enum { NDIM = 15 };
  const uint64_t padded = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
  int64_t shape[NDIM];
  mf_tensor *host, *host_turned, *there_turned, *copies[2], *back;
  (void)state;
  for (int i = 0; i < NDIM; i++) shape[i] = 2;
  const DLTensor like = {.device = {kDLCPU, 0}, .ndim = NDIM, .dtype = dtype_of("uint4"), .shape = shape};
  const DLTensor like_there = {.device = device_at(GPU0), .ndim = NDIM, .dtype = dtype_of("uint4"), .shape = shape};
  OK(mf_tensor_create(&like, padded, &host, &err));
  unsigned char *data = mf_tensor_dltensor(host)->data;
  for (int i = 0; i < 1 << NDIM; i++) data[i] = (unsigned char)(i * 7 % 16);
  mf_tensor *there = at_place(host, GPU0);
  OK(mf_tensor_permute_dims(host, NULL, 0, &host_turned, &err));
  OK(mf_tensor_permute_dims(there, NULL, 0, &there_turned, &err));
  OK(mf_tensor_create(&like, padded, &copies[0], &err));
  OK(mf_tensor_create(&like_there, padded, &copies[1], &err));
  OK(mf_tensor_copy(copies[0], host_turned, &err));
  OK(mf_tensor_copy(copies[1], there_turned, &err));
  back = at_place(copies[1], CPU);
  assert_int_equal(mf_tensor_nbytes(back), 1 << NDIM);
  assert_memory_equal(mf_tensor_dltensor(back)->data, mf_tensor_dltensor(copies[0])->data, 1 << NDIM);
  mf_tensor *all[] = {host, there, host_turned, there_turned, copies[0], copies[1], back};
  for (int i = 0; i < 7; i++) mf_tensor_release(all[i]);
}

/* The same where places repeat: the last to come to each stays. */
static void padded_elements_where_places_repeat(void **state) {
  enum { ROWS = 5, COLUMNS = 6, N = ROWS + COLUMNS };
  const uint64_t padded = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
  int64_t shape[] = {ROWS, COLUMNS}, whole_shape[] = {N}, strides[] = {1, 1};
  mf_tensor *whole[2], *views[2], *source;
  (void)state;
  DLTensor like = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = dtype_of("uint4"), .shape = shape};
  OK(mf_tensor_create(&like, padded, &source, &err));
  unsigned char *data = mf_tensor_dltensor(source)->data;
  for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = (unsigned char)(i % 16);
  for (int i = 0; i < 2; i++) {
    const DLTensor line = {
        .device = device_at(i == 0 ? CPU : GPU0), .ndim = 1, .dtype = dtype_of("uint4"), .shape = whole_shape};
    const mf_scalar three = {.kind = MF_KIND_INT, .i = 3};
    OK(mf_tensor_create(&line, padded, &whole[i], &err));
    OK(mf_tensor_fill(whole[i], &three, &err));
    like.device = line.device;
    like.data = mf_tensor_dltensor(whole[i])->data;
    like.strides = strides;
    OK(mf_tensor_wrap(&like, padded, NULL, NULL, &views[i], &err));
    if (i == 1) OK(mf_device_synchronize(&line.device, &err)); /* what is wrapped has another record */
    OK(mf_tensor_copy(views[i], source, &err));
    if (i == 1) OK(mf_device_synchronize(&line.device, &err));
  }
  mf_tensor *back = at_place(whole[1], CPU);
  assert_memory_equal(mf_tensor_dltensor(back)->data, mf_tensor_dltensor(whole[0])->data, N);
  mf_tensor *all[] = {source, back, views[0], views[1], whole[0], whole[1]};
  for (int i = 0; i < 6; i++) mf_tensor_release(all[i]);
}

/* Large copies: the staging buffers, and the threads that fill them. */

static void one_large(place at, const char *dtype, const int64_t *shape, bool turned) {
  int64_t other_shape[] = {shape[1], shape[0]};
  mf_tensor *host = random_host(dtype, 2, shape), *from = host, *to, *back = create_shaped(CPU, dtype, 2, shape);
  mf_tensor *back_view = back;
  if (turned) {
    OK(mf_tensor_permute_dims(host, NULL, 0, &from, &err));
    OK(mf_tensor_permute_dims(back, NULL, 0, &back_view, &err));
  }
  use_any_stream();
  to = create_shaped(at, dtype, 2, turned ? other_shape : shape);
  OK(mf_tensor_copy(to, from, &err));
  memset(mf_tensor_dltensor(host)->data, 0, 4096); /* it was read: this changes nothing */
  use_any_stream();
  OK(mf_tensor_copy(back_view, to, &err));
  memset(mf_tensor_dltensor(back)->data, 0, 4096);
  assert_memory_equal(mf_tensor_dltensor(back)->data, mf_tensor_dltensor(host)->data, (size_t)mf_tensor_nbytes(host));
  mf_tensor *all[] = {host, back, to, turned ? from : NULL, turned ? back_view : NULL};
  for (int i = 0; i < 5; i++) mf_tensor_release(all[i]);
}

static void large_copies_of_pageable_memory(void **state) {
  static const int64_t shapes[][2] = {{1, 65536}, {1, 65537}, {300, 401}, {1024, 1025}, {2049, 1023}, {5000, 1111}};
  (void)state;
  for (size_t i = 0; i < COUNT(shapes); i++) {
    sim_ask_seed(i);
    random_state = seed_of(i);
    for (place at = GPU0; at < NPLACES && have(at); at++) {
      one_large(at, "float32", shapes[i], false);
      one_large(at, i % 2 == 0 ? "float32" : "uint8x3", shapes[i], true);
    }
  }
}

static void large_copies_in_turn_on_two_streams(void **state) {
  int64_t shape[] = {200, 700};
  (void)state;
  for (uint64_t seed = 0; seed < 4; seed++) {
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    mf_tensor *there = create_shaped(GPU0, "float32", 2, shape), *back = create_shaped(CPU, "float32", 2, shape);
    for (int round = 0; round < 4; round++) {
      mf_tensor *host = random_host("float32", 2, shape);
      use_stream(0, streams[0][1]);
      OK(mf_tensor_copy(there, host, &err));
      use_stream(0, streams[0][2]);
      OK(mf_tensor_copy(back, there, &err));
      assert_memory_equal(mf_tensor_dltensor(back)->data, mf_tensor_dltensor(host)->data, 560000);
      mf_tensor_release(host);
    }
    mf_tensor_release(there);
    mf_tensor_release(back);
  }
}

/* Both sides have gaps, and neither fits into what small copies use. */
static void large_copies_of_strided_memory(void **state) {
  static const int64_t shapes[][3] = {{1, 200, 700}, {30, 40, 50}};
  (void)state;
  for (uint64_t seed = 0; seed < 8; seed++) {
    const int64_t *shape = shapes[seed / 2 % 2];
    side src, dst;
    const bool up = seed % 2 == 0;
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    find_way(&src.way, 3, shape, 0);
    find_way(&dst.way, 3, shape, 0);
    side_open(&src, up ? CPU : GPU0, "float32", shape);
    side_open(&dst, up ? GPU0 : CPU, "float32", shape);
    OK(mf_tensor_copy(dst.host_view, src.host_view, &err));
    use_any_stream();
    OK(mf_tensor_copy(dst.device_view, src.device_view, &err));
    same_bytes(dst.device, dst.host, "large");
    side_close(&src);
    side_close(&dst);
  }
}

/* Fills */

/* So many rows of elements at odd places take a kernel's simulator a second and more: only the first of a place has as
 * many as that. */
static void shape_of_fill(bool first, int32_t *ndim, int64_t *shape) {
  enum { MANY = 2000 };
  int64_t n;
  do {
    any_shape(ndim, shape);
    n = 1;
    for (int32_t i = 0; i < *ndim; i++) n *= shape[i];
  } while (!first && n > MANY);
}

static void one_fill(place at, bool first, uint64_t seed) {
  static const char *const fillable[] = {"uint8",      "bool", "int16", "float32", "float64",
                                         "complex128", "int4", "int1",  "int3"};
  const char *dtype = fillable[draw() % (COUNT(fillable))];
  const mf_scalar value = {.kind = strcmp(dtype, "bool") == 0 ? MF_KIND_BOOL : MF_KIND_INT,
                           .i = draw() % 3 == 0              ? 0
                                : strcmp(dtype, "bool") == 0 ? 1
                                                             : between(-100, 100)};
  int64_t shape[5];
  int32_t ndim;
  side t;
  char what[128];
  shape_of_fill(first, &ndim, shape);
  snprintf(what, sizeof what, "seed %llu, fill of %s on %s", (unsigned long long)seed, dtype, place_names[at]);
  find_way(&t.way, ndim, shape, draw() % 3 == 0 ? PLAIN : 0);
  side_open(&t, at, dtype, shape);
  if (t.host_view != NULL) {
    OK(mf_tensor_fill(t.host_view, &value, &err));
    use_any_stream();
    if (mf_tensor_fill(t.device_view, &value, &err) != MF_OK) fail_msg("%s: %s", what, err.message);
    use_any_stream();
    same_bytes(t.device, t.host, what);
  }
  side_close(&t);
}

static void fills_of_any_layout(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(8); seed++) {
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    for (place at = PINNED; at < NPLACES; at++)
      for (int i = 0; i < 20 && have(at); i++) one_fill(at, i == 0, seed);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

/* Both bytes of four half bytes, of which the first three were written: the fourth is another view's. */
static void expect_half_bytes(mf_tensor *whole, unsigned first, unsigned second) {
  const mf_request on_host = {.device = {kDLCPU, 0}, .copy = MF_COPY_ALWAYS};
  mf_tensor *host;
  OK(mf_tensor_to(whole, &on_host, &host, &err));
  const unsigned char *bytes = mf_tensor_dltensor(host)->data;
  assert_int_equal(bytes[0], first);
  assert_int_equal(bytes[1], second);
  mf_tensor_release(host);
}

static void write_three_of_four(mf_tensor *whole, mf_tensor *part) {
  const mf_scalar four = {.kind = MF_KIND_UINT, .u = 4}, ten = {.kind = MF_KIND_UINT, .u = 10};
  int64_t three[] = {3};
  mf_tensor *src = create_shaped(CPU, "uint4", 1, three);
  memset(mf_tensor_dltensor(src)->data, 0x77, 2);
  OK(mf_tensor_fill(whole, &ten, &err));
  OK(mf_tensor_copy(part, src, &err));
  expect_half_bytes(whole, 0x77, 0xa7);
  OK(mf_tensor_fill(part, &four, &err));
  expect_half_bytes(whole, 0x44, 0xa4);
  mf_tensor_release(src);
  mf_tensor_release(part);
}

static void the_half_byte_beside_a_view_stays(void **state) {
  int64_t four[] = {4}, three[] = {3};
  const mf_index items[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = 3, .step = 1}};
  (void)state;
  for (place at = PINNED; at < NPLACES; at++) {
    mf_tensor *part;
    if (!have(at)) continue;
    mf_tensor *whole = create_shaped(at, "uint4", 1, four);
    OK(mf_tensor_index(whole, items, 1, &part, &err));
    write_three_of_four(whole, part);
    DLTensor view = *mf_tensor_dltensor(whole);
    view.shape = three;
    OK(mf_tensor_wrap(&view, 0, NULL, NULL, &part, &err));
    write_three_of_four(whole, part);
    mf_tensor_release(whole);
  }
}

/* The host's part */

static void shared_memory_is_read_when_it_is_written(void **state) {
  int64_t shape[] = {1000}, coords[] = {999};
  (void)state;
  for (place at = PINNED; at <= MANAGED; at++) {
    mf_scalar value;
    if (!have(at)) continue;
    sim_ask_seed(0);
    mf_tensor *gpu = create_shaped(GPU0, "int32", 1, shape), *t = create_shaped(at, "int32", 1, shape);
    const mf_scalar seven = {.kind = MF_KIND_INT, .i = 7}, eight = {.kind = MF_KIND_INT, .i = 8};
    OK(mf_tensor_fill(gpu, &seven, &err));
    OK(mf_tensor_copy(t, gpu, &err));
    OK(mf_tensor_get(t, coords, 1, &value, &err));
    assert_int_equal(value.i, 7);
    OK(mf_tensor_copy(gpu, t, &err));
    OK(mf_tensor_put(t, coords, 1, &eight, &err)); /* behind the copy, which reads 7 */
    OK(mf_tensor_copy(t, gpu, &err));
    OK(mf_tensor_get(t, coords, 1, &value, &err));
    assert_int_equal(value.i, 7);
    mf_tensor_release(gpu);
    mf_tensor_release(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(any_layout_anywhere_to_any_layout_anywhere),
      WITH_STREAMS(overlapping_views_as_if_read_first),
      WITH_STREAMS(where_places_repeat_the_last_stays),
      WITH_STREAMS(windows_are_filled_where_they_are),
      WITH_STREAMS(clones_stay_on_their_device),
      WITH_STREAMS(padded_elements_in_another_order),
      WITH_STREAMS(padded_elements_where_places_repeat),
      WITH_STREAMS(large_copies_of_pageable_memory),
      WITH_STREAMS(large_copies_in_turn_on_two_streams),
      WITH_STREAMS(large_copies_of_strided_memory),
      WITH_STREAMS(fills_of_any_layout),
      WITH_STREAMS(the_half_byte_beside_a_view_stays),
      WITH_STREAMS(shared_memory_is_read_when_it_is_written),
  };
  return RUN(tests);
}
