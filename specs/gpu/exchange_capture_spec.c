/* exchange_capture_spec.c: the cells of exchange_spec.c in which a stream is being captured into a graph: the
 * consumer's own, ours that wrote last, or both in one capture. What a capture can order is captured: after the launch
 * the bytes are right and nothing is unordered, under every seed (MOONFERRY_SPEC_SEEDS, 20 if it is not set). All else
 * is refused with MF_ECAPTURE, nothing is given out, and the capture is still a good one. */
#include "device.h"

enum { NBYTES = 1024, FIRST = 0x11, SECOND = 0x22 };

typedef enum kind { GPU0, GPU1, PINNED, MANAGED, NKINDS } kind;
typedef enum number { LEGACY, PER_THREAD, BLOCKING, OWN, NO_ORDER, NONE, SAME, NVALUES } number;
typedef enum capturing { CONSUMER, PRODUCER, JOINED, NCAPTURES } capturing;

static const char *const kind_names[] = {"gpu 0", "gpu 1", "pinned", "managed"};
static const char *const value_names[] = {"1", "2", "blocking", "non-blocking", "-1", "None", "the producer's"};
static const char *const capturing_names[] = {"consumer", "producer", "both"};

typedef struct cell {
  kind kind;
  bool theirs; /* the other library made the memory */
  bool done;   /* what was queued before the capture is over */
  bool early;  /* the consumer calls its deleter within the capture */
  number value;
  capturing who;
  uint64_t seed;
} cell;

typedef struct scene {
  const cell *cell;
  mf_stream ours;
  int64_t consumer;
  unsigned char *seen;
  mf_tensor *t;
  DLManagedTensorVersioned *given;
  void *graph;
} scene;

static char *text_of(const cell *c) {
  static char text[256];
  (void)snprintf(text, sizeof text, "%s, %s, stream %s, %s captured, earlier work %s, deleter %s, seed %llu",
                 kind_names[c->kind], c->theirs ? "theirs" : "ours", value_names[c->value], capturing_names[c->who],
                 c->done ? "done" : "pending", c->early ? "early" : "late", (unsigned long long)c->seed);
  return text;
}

static int ordinal_of(const cell *c) {
  return c->kind == GPU1;
}

static DLDevice device_of(const cell *c) {
  const int types[] = {other_device_type(), other_device_type(), other_pinned_type(), other_managed_type()};
  return (DLDevice){(DLDeviceType)types[c->kind], ordinal_of(c)};
}

/* The memory */

typedef struct foreign {
  DLManagedTensorVersioned managed;
  int64_t shape[1], strides[1];
} foreign;

static void foreign_delete(DLManagedTensorVersioned *self) {
  const DLTensor *t = &self->dl_tensor;
  if ((int)t->device.device_type == other_pinned_type()) other_pinned_free(t->data);
  else other_free(t->device.device_id, t->data);
  free(self);
}

static mf_tensor *import_theirs(const scene *s) {
  const int ordinal = ordinal_of(s->cell);
  foreign *f = calloc(1, sizeof *f);
  mf_tensor *t;
  *f = (foreign){.shape = {NBYTES}, .strides = {1}};
  f->managed.version = (DLPackVersion){1, 0};
  f->managed.deleter = foreign_delete;
  f->managed.dl_tensor = (DLTensor){.data = s->cell->kind == PINNED ? other_pinned(NBYTES)
                                                                    : other_alloc(ordinal, NBYTES),
                                    .device = device_of(s->cell), .ndim = 1, .dtype = {kDLUInt, 8, 1},
                                    .shape = f->shape, .strides = f->strides};
  other_fill(ordinal, f->managed.dl_tensor.data, FIRST, NBYTES, s->ours); /* our stream, as it was told */
  OK(mf_tensor_import(&f->managed, &t, &err));
  return t;
}

/* On our stream, whatever memory it is. */
static void write_ours(const scene *s, int byte) {
  OK(mf_tensor_acquire(s->t, s->ours, MF_WRITE, &err));
  other_fill(ordinal_of(s->cell), data_of(s->t), byte, NBYTES, s->ours);
}

static void scene_open(scene *s) {
  const cell *c = s->cell;
  const int ordinal = ordinal_of(c);
  const int64_t fixed[NVALUES] = {[LEGACY] = 1, [PER_THREAD] = 2, [NONE] = 1};
  s->ours = stream_new(ordinal);
  use_stream(ordinal, s->ours);
  s->consumer = c->value == SAME ? s->ours : fixed[c->value];
  if (s->consumer == 0) s->consumer = other_stream(ordinal, c->value == BLOCKING);
  s->seen = other_pinned(NBYTES);
  s->t = c->theirs ? import_theirs(s) : create(device_of(c), NBYTES);
  if (!c->theirs) write_ours(s, FIRST);
  if (c->done) other_sync(ordinal, s->ours);
}

static void scene_close(scene *s) {
  const cell *c = s->cell;
  const int ordinal = ordinal_of(c);
  mf_tensor_release(s->t);
  other_graph_end(ordinal, s->graph);
  synchronize(ordinal);
  other_pinned_free(s->seen);
  use_stream(ordinal, MF_STREAM_DEFAULT);
  if (c->value == BLOCKING || c->value == OWN || c->value == NO_ORDER) other_stream_end(s->consumer);
  stream_end(ordinal, s->ours);
  if (sim_ask_findings() != 0) fail_msg("%s: the simulator reports what stands above", text_of(c));
}

/* The exchange */

static int64_t captured_stream(const scene *s) {
  return s->cell->who == CONSUMER ? s->consumer : s->ours;
}

typedef enum verdict { REFUSAL, ALLOWED, EITHER } verdict;

/* Work outside that is not known to be done may be when it is asked for, but for the strictly lazy seed 0. */
static verdict verdict_of(const cell *c) {
  if (c->value == NO_ORDER || c->value == SAME || c->who == JOINED) return ALLOWED;
  if (c->who == PRODUCER) return REFUSAL;
  if (c->done) return ALLOWED;
  return c->seed == 0 && sim_ask_is_there() ? REFUSAL : EITHER;
}

static int export(scene *s) {
  const cell *c = s->cell;
  const bool zero = c->value == LEGACY && other_device_type() == kDLROCM;
  const int64_t told = c->value == NONE ? MF_NUMBER_NONE : c->value == NO_ORDER ? -1 : zero ? 0 : s->consumer;
  mf_request request = {.device = {0}};
  OK(mf_stream_from_number(&mf_tensor_dltensor(s->t)->device, told, &request.stream, &err));
  return mf_tensor_export_to(s->t, &request, &s->given, &err);
}

static void consume(const scene *s) {
  const int ordinal = ordinal_of(s->cell);
  if (s->cell->value == NO_ORDER) return; /* on its own, and it does nothing */
  other_copy(ordinal, s->seen, s->given->dl_tensor.data, NBYTES, s->consumer);
  other_fill(ordinal, s->given->dl_tensor.data, SECOND, NBYTES, s->consumer);
}

/* Within the capture. */
static bool give(scene *s) {
  const cell *c = s->cell;
  const int rc = export(s);
  const verdict want = verdict_of(c);
  if (want == REFUSAL || (want == EITHER && rc != MF_OK)) {
    if (rc != MF_ECAPTURE) fail_msg("%s: %s instead of MF_ECAPTURE", text_of(c), mf_status_name(rc));
    if (s->given != NULL || strstr(err.message, "captured") == NULL) fail_msg("%s: %s", text_of(c), err.message);
    return false;
  }
  if (rc != MF_OK) fail_msg("%s: %s", text_of(c), err.message);
  consume(s);
  if (c->early) s->given->deleter(s->given);
  return true;
}

static void expect_seen(const scene *s, int want) {
  for (int i = 0; i < NBYTES; i++)
    if (s->seen[i] != want) fail_msg("%s: the consumer finds %#x, not %#x", text_of(s->cell), s->seen[i], want);
}

static void run(const cell *c) {
  const int ordinal = ordinal_of(c);
  scene s = {.cell = c};
  scene_open(&s);
  const int64_t captured = captured_stream(&s);
  other_capture(ordinal, captured);
  if (c->who == JOINED) other_after(ordinal, s.consumer, s.ours);
  if (c->who != CONSUMER) write_ours(&s, FIRST + 1);
  other_fill(ordinal, s.seen, 0, NBYTES, captured);
  if (c->who == JOINED) other_after(ordinal, s.consumer, s.ours);
  const bool given = give(&s);
  if (c->who == JOINED) other_after(ordinal, s.ours, s.consumer);
  s.graph = other_capture_end(ordinal, captured); /* whatever was refused, it is a good one */
  if (given && !c->early) s.given->deleter(s.given);
  OK(mf_tensor_acquire(s.t, captured, MF_WRITE, &err));
  other_launch(ordinal, s.graph, captured);
  const int before = c->who == CONSUMER ? FIRST : FIRST + 1;
  const bool used = given && c->value != NO_ORDER;
  expect_filled(s.t, used ? SECOND : before);
  other_sync(ordinal, captured);
  expect_seen(&s, used ? before : 0);
  scene_close(&s);
}

/* A stream that no capture can be of, and a consumer that works on another one than it said, are no cells. */
static bool is_cell(const cell *c) {
  const bool named = c->value == LEGACY || c->value == NONE;
  if (c->value == PER_THREAD && other_device_type() == kDLROCM) return false;
  if (c->who == CONSUMER) return !named && c->value != NO_ORDER;
  return c->who == PRODUCER || (!named && c->value != NO_ORDER && c->value != SAME);
}

static void every_value(kind k, bool theirs) {
  cell c = {.kind = k, .theirs = theirs};
  for (c.seed = 0; c.seed < seeds(20); c.seed++)
    for (int v = 0; v < NVALUES * NCAPTURES * 4; v++) {
      c.value = (number)(v % NVALUES);
      c.who = (capturing)(v / NVALUES % NCAPTURES);
      c.done = v / (NVALUES * NCAPTURES) % 2 != 0;
      c.early = v / (NVALUES * NCAPTURES) / 2 != 0;
      sim_ask_seed(c.seed);
      if (is_cell(&c)) run(&c);
    }
}

static bool exists(kind k) {
  return k == GPU1 ? other_devices() > 1 : k != MANAGED || other_managed_type() != 0;
}

static void gpu_0(void **state) {
  (void)state;
  every_value(GPU0, false);
  every_value(GPU0, true);
}

static void gpu_1(void **state) {
  (void)state;
  needs_devices(2);
  every_value(GPU1, false);
  every_value(GPU1, true);
}

static void pinned_memory(void **state) {
  (void)state;
  every_value(PINNED, false);
  every_value(PINNED, true);
}

static void managed_memory(void **state) {
  (void)state;
  skip_unless(exists(MANAGED), "there is none here");
  every_value(MANAGED, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(gpu_0), SPEC(gpu_1), SPEC(pinned_memory), SPEC(managed_memory)};
  return RUN(tests);
}
