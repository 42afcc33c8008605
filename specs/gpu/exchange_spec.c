/* exchange_spec.c: every exchange in every order. A cell is a kind of memory, who wrote it first, what stream the
 * consumer gave, on which stream we read afterwards, and whether the consumer is done by then. In each cell the
 * other library reads and writes what it was given on its own stream, we read that on another one, everything is
 * released while all of it is still queued, and the memory is used anew at once. The bytes must be right and nothing
 * unordered, under every seed (MOONFERRY_SPEC_SEEDS, 20 if it is not set).
 *
 * The other library calls the driver itself (other.h). Ends with both ledgers at zero. */
#include "device.h"

enum { NBYTES = 1024, FIRST = 0x11, SECOND = 0x22, THIRD = 0x33 };

typedef enum kind { GPU0, GPU1, PINNED, MANAGED } kind;
typedef enum number { LEGACY, PER_THREAD, BLOCKING, OWN, NO_ORDER, NONE, NVALUES } number;
typedef enum stage { BEFORE, AFTER, NSTAGES } stage;

static const char *const kind_names[] = {"gpu 0", "gpu 1", "pinned", "managed"};
static const char *const value_names[] = {"1", "2", "blocking", "non-blocking", "-1", "None"};

typedef struct cell {
  kind kind;
  bool theirs;    /* the other library made and wrote the memory */
  number value;   /* what the consumer gives to __dlpack__ */
  bool same;      /* we read on the stream that we wrote on */
  stage deleter;  /* when the consumer is done: before or after we read */
  uint64_t seed;
} cell;

static int device_of(kind k) {
  return k == GPU1 ? 1 : 0;
}

static DLDevice dl_device(kind k) {
  if (k == PINNED) return pinned();
  if (k == MANAGED) return managed();
  return gpu(device_of(k));
}

static DLTensor like(DLDevice device) {
  static int64_t shape[] = {NBYTES};
  return (DLTensor){.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
}

/* The streams of a cell: where we write, where we read, where the other library produces and consumes. */
typedef struct streams {
  mf_stream ours, reader;
  int64_t producer, consumer;
  bool made;
} streams;

static streams open_streams(const cell *c) {
  streams s = {.consumer = c->value == PER_THREAD ? 2 : 1};
  s.ours = stream_new(device_of(c->kind));
  s.reader = s.ours;
  if (!c->same) s.reader = stream_new(device_of(c->kind));
  s.producer = other_stream(device_of(c->kind), false);
  s.made = c->value == BLOCKING || c->value == OWN || c->value == NO_ORDER;
  if (s.made) s.consumer = other_stream(device_of(c->kind), c->value == BLOCKING);
  return s;
}

static void close_streams(const cell *c, const streams *s) {
  use_stream(device_of(c->kind), MF_STREAM_DEFAULT);
  stream_end(device_of(c->kind), s->ours);
  if (!c->same) stream_end(device_of(c->kind), s->reader);
  other_stream_end(s->producer);
  if (s->made) other_stream_end(s->consumer);
}

/* The other library as a producer: its deleter frees at once, so that it must not come early. */
typedef struct foreign {
  DLManagedTensorVersioned managed;
  int64_t shape[1], strides[1];
  kind kind;
} foreign;

static void foreign_delete(DLManagedTensorVersioned *self) {
  foreign *f = (foreign *)self;
  if (f->kind == PINNED) other_pinned_free(f->managed.dl_tensor.data);
  else other_free(device_of(f->kind), f->managed.dl_tensor.data);
  free(f);
}

static mf_tensor *import_theirs(const cell *c, const streams *s) {
  mf_tensor *t;
  foreign *f = calloc(1, sizeof *f);
  const int device = device_of(c->kind);
  f->kind = c->kind;
  f->shape[0] = NBYTES;
  f->strides[0] = 1;
  f->managed.version = (DLPackVersion){1, 0};
  f->managed.deleter = foreign_delete;
  f->managed.dl_tensor = like(dl_device(c->kind));
  f->managed.dl_tensor.shape = f->shape;
  f->managed.dl_tensor.strides = f->strides;
  f->managed.dl_tensor.data = c->kind == PINNED ? other_pinned(NBYTES) : other_alloc(device, NBYTES);
  other_fill(device, f->managed.dl_tensor.data, FIRST, NBYTES, s->producer);
  other_after(device, s->ours, s->producer); /* as a producer must that was given our stream */
  OK(mf_tensor_import(&f->managed, &t, &err));
  return t;
}

static mf_tensor *produce(const cell *c, const streams *s) {
  use_stream(device_of(c->kind), s->ours);
  if (c->theirs) return import_theirs(c, s);
  mf_tensor *t = create(dl_device(c->kind), NBYTES);
  fill(t, FIRST);
  return t;
}

static int64_t number_of(const cell *c, const streams *s) {
  if (c->value == NONE) return MF_NUMBER_NONE;
  if (c->value == NO_ORDER) return -1;
  if (c->value == LEGACY && other_device_type() == kDLROCM) return 0;
  return s->consumer;
}

/* What the consumer does with what it was given: reads it to `seen`, then writes it. */
static void consume(const cell *c, const streams *s, const DLTensor *given, unsigned char *seen) {
  const int device = device_of(c->kind);
  const bool host = c->value == NONE && (c->kind == PINNED || c->kind == MANAGED);
  if (host) {
    sim_ask_host(given->data, NBYTES, true);
    memcpy(seen, given->data, NBYTES);
    memset(given->data, SECOND, NBYTES);
    return;
  }
  if (c->value == NO_ORDER) other_after(device, s->consumer, s->ours);
  other_copy(device, seen, given->data, NBYTES, s->consumer);
  other_fill(device, given->data, SECOND, NBYTES, s->consumer);
  if (c->value != NO_ORDER) return;
  other_after(device, s->ours, s->consumer);
  /* Nobody tells us of this use, so that for the host it must be over. */
  if (c->kind == PINNED || c->kind == MANAGED) other_sync(device, s->consumer);
}

static mf_tensor *read_back(const cell *c, mf_tensor *t, mf_stream stream) {
  mf_tensor *host = create(dl_device(PINNED), NBYTES);
  const mf_request on_host = {.device = {kDLCPU, 0}, .stream = stream};
  mf_tensor *copy;
  use_stream(device_of(c->kind), stream);
  if (c->kind != PINNED && c->kind != MANAGED) {
    OK(mf_tensor_copy(host, t, &err));
    return host;
  }
  mf_tensor_release(host);
  const mf_request copied = {.device = on_host.device, .copy = MF_COPY_ALWAYS};
  OK(mf_tensor_to(t, &copied, &copy, &err));
  return copy;
}

/* The memory that was just released is likely to be given out again. */
static mf_tensor *use_anew(const cell *c, mf_stream stream) {
  use_stream(device_of(c->kind), stream);
  mf_tensor *t = create(dl_device(c->kind), NBYTES);
  fill(t, THIRD);
  return t;
}

static void expect_bytes(const cell *c, const unsigned char *bytes, int want, const char *who) {
  for (int i = 0; i < NBYTES; i++)
    if (bytes[i] != want)
      fail_msg("%s, %s first, stream %s, %s reader, consumer done %s, seed %llu: %s finds %#x, not %#x",
               kind_names[c->kind],
               c->theirs ? "theirs" : "ours", value_names[c->value], c->same ? "same" : "other",
               c->deleter == BEFORE ? "before" : "after", (unsigned long long)c->seed, who, bytes[i], want);
}

static void expect_tensor(const cell *c, mf_tensor *t, int want, const char *who) {
  const mf_request on_host = {.device = {kDLCPU, 0}};
  mf_tensor *host;
  OK(mf_tensor_to(t, &on_host, &host, &err));
  expect_bytes(c, mf_tensor_dltensor(host)->data, want, who);
  mf_tensor_release(host);
  mf_tensor_release(t);
}

static void run(const cell *c) {
  const streams s = open_streams(c);
  unsigned char *seen = other_pinned(NBYTES);
  DLManagedTensorVersioned *given;
  mf_request request = {.device = {0}};
  mf_tensor *t = produce(c, &s);
  OK(mf_stream_from_number(&mf_tensor_dltensor(t)->device, number_of(c, &s), &request.stream, &err));
  OK(mf_tensor_export_to(t, &request, &given, &err));
  consume(c, &s, &given->dl_tensor, seen);
  if (c->deleter == BEFORE) given->deleter(given);
  mf_tensor *second = read_back(c, t, s.reader);
  if (c->deleter == AFTER) given->deleter(given);
  mf_tensor_release(t);
  mf_tensor *third = use_anew(c, s.reader);
  expect_tensor(c, second, SECOND, "our reader");
  expect_tensor(c, third, THIRD, "the next user");
  if (c->value != NONE || c->kind == GPU0 || c->kind == GPU1) other_sync(device_of(c->kind), s.consumer);
  expect_bytes(c, seen, FIRST, "the consumer");
  synchronize(device_of(c->kind));
  other_pinned_free(seen);
  close_streams(c, &s);
  if (sim_ask_findings() != 0)
    expect_bytes(c, (const unsigned char[NBYTES]){0}, 1, "the race checker (a report above); it");
}

static bool exists(kind k) {
  return k == GPU1 ? other_devices() > 1 : dl_device(k).device_type != 0;
}

static void every_value(kind k, bool theirs) {
  skip_unless(exists(k) && !(theirs && k == MANAGED), "the other library has no such memory here");
  for (uint64_t seed = 0; seed < seeds(20); seed++)
    for (int v = 0; v < NVALUES; v++)
      for (int same = 0; same < 2; same++)
        for (int d = 0; d < NSTAGES; d++) {
          const cell c = {k, theirs, (number)v, same != 0, (stage)d, seed};
          if (v == PER_THREAD && other_device_type() == kDLROCM) continue;
          sim_ask_seed(seed);
          run(&c);
        }
}

static void gpu_0_ours(void **state) {
  (void)state;
  every_value(GPU0, false);
}

static void gpu_0_theirs(void **state) {
  (void)state;
  every_value(GPU0, true);
}

static void gpu_1_ours(void **state) {
  (void)state;
  every_value(GPU1, false);
}

static void gpu_1_theirs(void **state) {
  (void)state;
  every_value(GPU1, true);
}

static void pinned_ours(void **state) {
  (void)state;
  every_value(PINNED, false);
}

static void pinned_theirs(void **state) {
  (void)state;
  every_value(PINNED, true);
}

static void managed_ours(void **state) {
  (void)state;
  every_value(MANAGED, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(gpu_0_ours),
      SPEC(gpu_0_theirs),
      SPEC(gpu_1_ours),
      SPEC(gpu_1_theirs),
      SPEC(pinned_ours),
      SPEC(pinned_theirs),
      SPEC(managed_ours),
  };
  return RUN(tests);
}
