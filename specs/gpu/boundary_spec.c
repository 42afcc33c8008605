/* boundary_spec.c: something happens between two scopes of the runtime's, when nobody is inside of the device: another
 * thread trims, captures, or uses the same memory. Each such event before and behind each scope of each operation, cold
 * and warm. The operation succeeds, or is refused because of the capture, which stays whole; and the same operation
 * then works, and nothing is left. seams_spec.c has what happens inside of the driver's calls. */
#include <pthread.h>

#include "../c/moment.h"
#include "left.h"
#include "operations.h"

typedef struct helper {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  void (*act)(struct helper *h);
  int64_t blocking;
  mf_stream stream;
  bool captures, acted, returned;
  char wrong[300];
} helper;

static helper *helping;
static int until; /* so many boundaries are yet to come before it happens */

static void say_wrong(helper *h, const char *what, const mf_error *e) {
  snprintf(h->wrong, sizeof h->wrong, "%s: %s", what, e->message);
}

static void has_acted(helper *h) {
  pthread_mutex_lock(&h->lock);
  h->acted = true;
  pthread_cond_broadcast(&h->changed);
  pthread_mutex_unlock(&h->lock);
}

static bool has_happened(helper *h) {
  pthread_mutex_lock(&h->lock);
  const bool acted = h->acted;
  pthread_mutex_unlock(&h->lock);
  return acted;
}

static void *help(void *arg) {
  helper *h = arg;
  h->act(h);
  has_acted(h);
  return NULL;
}

/* The events */

static void trims(helper *h) {
  mf_error e;
  if (mf_pools_trim(0, &e) != MF_OK) say_wrong(h, "trim", &e);
}

static void uses_it(helper *h) {
  const mf_request request = {.stream = h->stream};
  DLManagedTensorVersioned *m;
  mf_error e;
  if (mf_tensor_export_to(small_gpu, &request, &m, &e) != MF_OK) say_wrong(h, "export", &e);
  else m->deleter(m);
}

static void captures(helper *h, int64_t stream) {
  other_capture(0, stream);
  has_acted(h);
  pthread_mutex_lock(&h->lock);
  while (!h->returned) pthread_cond_wait(&h->changed, &h->lock);
  pthread_mutex_unlock(&h->lock);
  const bool whole = other_capture_is_whole(0, stream);
  if (whole) other_graph_end(0, other_capture_end(0, stream));
  else other_capture_give_up(0, stream);
  if (!whole) snprintf(h->wrong, sizeof h->wrong, "the capture is broken");
}

/* Beside which the legacy stream may not be used. */
static void captures_another_stream(helper *h) {
  captures(h, h->blocking);
}

static void captures_its_stream(helper *h) {
  captures(h, mine);
}

static const struct {
  const char *name;
  void (*act)(helper *h);
  bool captures;
} events[] = {{"trims", trims, false},
              {"uses_it", uses_it, false},
              {"captures_another_stream", captures_another_stream, true},
              {"captures_its_stream", captures_its_stream, true}};

/* What a lock of the runtime keeps from acting now acts as soon as the operation lets it. A capture needs none, and
 * would be broken by rights where it began just before a call. */
static void at_boundary(void) {
  helper *h = helping;
  if (--until != 0) return;
  if (pthread_create(&h->thread, NULL, help, h) != 0) abort();
  do moment_wait(&h->changed, &h->lock, &h->acted);
  while (h->captures && !has_happened(h));
}

static void helper_end(helper *h) {
  pthread_mutex_lock(&h->lock);
  h->returned = true;
  pthread_cond_broadcast(&h->changed);
  pthread_mutex_unlock(&h->lock);
  if (until <= 0) pthread_join(h->thread, NULL);
  pthread_cond_destroy(&h->changed);
}

/* False where the operation has fewer boundaries than that. */
static bool one_case(size_t which, size_t event, int boundary) {
  helper h = {.lock = PTHREAD_MUTEX_INITIALIZER, .act = events[event].act, .captures = events[event].captures,
              .blocking = other_stream(0, true), .stream = stream_new(0)};
  mf_error said = {0};
  moment_init(&h.changed);
  helping = &h;
  until = boundary;
  when_entering = when_left = at_boundary;
  const int rc = operations[which].run(&said);
  when_entering = when_left = NULL;
  const bool happened = until <= 0;
  helper_end(&h);
  if (sim_ask_findings() != 0 || h.wrong[0] != '\0' || (rc != MF_OK && !(rc == MF_ECAPTURE && events[event].captures)))
    fail_msg("%s, %s at boundary %d: %d, %s; %s", operations[which].name, events[event].name, boundary, rc,
             rc == MF_OK ? "" : said.message, h.wrong);
  sim_ask_reset();
  const int again = operations[which].run(&said);
  if (again != MF_OK)
    fail_msg("%s, %s at boundary %d: done again: %d, %s", operations[which].name, events[event].name, boundary, again,
             said.message);
  stream_end(0, h.stream);
  other_stream_end(h.blocking);
  return happened;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 32 };
#else
enum { STRIDE = 4 };
#endif

static void each_boundary(size_t which, size_t event, bool warm) {
  const DLDevice device = gpu(0);
  int boundary = 1 + (int)((which * 13 + event * 29 + seed_of(1)) % one_in(STRIDE));
  for (bool happened = true; happened; boundary += (int)one_in(STRIDE)) {
    open_tensors();
    mf_error said;
    OK(mf_stream_swap(&device, mine, NULL, &err));
    if (warm) assert_int_equal(operations[which].run(&said), MF_OK);
    else trim_all();
    happened = one_case(which, event, boundary);
    use_stream(0, MF_STREAM_DEFAULT);
    close_tensors();
  }
}

static void each_event(bool warm) {
  needs_simulator();
  for (size_t which = 0; which < COUNT(operations); which++) {
    for (size_t event = 0; event < COUNT(events); event++) each_boundary(which, event, warm);
    nothing_left();
  }
}

static void the_first_time(void **state) {
  (void)state;
  each_event(false);
}

static void and_again(void **state) {
  (void)state;
  each_event(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(the_first_time), SPEC(and_again)};
  return RUN(tests);
}
