/* boundary_spec.c: something happens between two scopes of the runtime's, when nobody is inside of the device: another
 * thread trims, captures, or uses the same memory. Each such event before and behind each scope of each operation, cold
 * and warm. The operation succeeds, or is refused because of the capture, which stays whole; and the same operation
 * then works, and nothing is left. seams_spec.c has what happens inside of the driver's calls. */
#include "left.h"
#include "operations.h"

#include "helping.h"

static helper *helping;
static int until; /* so many boundaries are yet to come before it happens */

/* Beside which the legacy stream may not be used. */
static void captures_another_stream(helper *h) {
  captures_stream(h, h->captured);
}

static void captures_its_stream(helper *h) {
  captures_stream(h, mine);
}

static const struct {
  const char *name;
  void (*act)(helper *h);
  bool captures;
} events[] = {{"trims_everything", trims_everything, false},
              {"uses_the_same_tensor", uses_the_same_tensor, false},
              {"captures_another_stream", captures_another_stream, true},
              {"captures_its_stream", captures_its_stream, true}};

static bool must_act; /* before the operation goes on */

static bool has_acted(helper *h) {
  pthread_mutex_lock(&h->lock);
  const bool acted = h->acted;
  pthread_mutex_unlock(&h->lock);
  return acted;
}

/* A capture needs no lock of the runtime's, and would be broken by rights where it began just before a call. */
static void at_boundary(void) {
  helper *h = helping;
  if (--until != 0) return;
  let_act(h);
  while (must_act && !has_acted(h)) moment_wait(&h->changed, &h->lock, &h->acted);
}

/* False where the operation has fewer boundaries than that. */
static bool one_case(size_t which, size_t event, int boundary) {
  helper h = {.lock = PTHREAD_MUTEX_INITIALIZER, .act = events[event].act, .captured = other_stream(0, true),
              .stream = stream_new(0)};
  mf_error said = {0};
  moment_init(&h.changed);
  helping = &h;
  must_act = events[event].captures;
  until = boundary;
  when_entering = when_left = at_boundary;
  const int rc = operations[which].run(&said);
  when_entering = when_left = NULL;
  const bool happened = until <= 0;
  helper_end(&h, happened);
  if (sim_ask_findings() != 0 || h.wrong[0] != '\0' || (rc != MF_OK && !(rc == MF_ECAPTURE && events[event].captures)))
    fail_msg("%s, %s at boundary %d: %d, %s; %s", operations[which].name, events[event].name, boundary, rc,
             rc == MF_OK ? "" : said.message, h.wrong);
  sim_ask_reset();
  const int again = operations[which].run(&said);
  if (again != MF_OK)
    fail_msg("%s, %s at boundary %d: done again: %d, %s", operations[which].name, events[event].name, boundary, again,
             said.message);
  stream_end(0, h.stream);
  other_stream_end(h.captured);
  return happened;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { DENSE = 0, STRIDE = 32 };
#else
enum { DENSE = 16, STRIDE = 4 };
#endif

/* After the first ones, some of the rest, which the seed chooses. */
static int next_boundary(int boundary, int first, int stride) {
  return boundary < DENSE ? boundary + 1 : boundary == DENSE ? boundary + 1 + first : boundary + stride;
}

static void each_boundary(size_t which, size_t event, bool warm) {
  const DLDevice device = gpu(0);
  const int stride = (int)one_in(STRIDE);
  const int first = (int)((which * 13 + event * 29 + seed_of(1)) % (uint64_t)stride);
  bool happened = true;
  for (int at = next_boundary(0, first, stride); happened; at = next_boundary(at, first, stride)) {
    open_tensors();
    mf_error said;
    OK(mf_stream_swap(&device, mine, NULL, &err));
    if (warm) assert_int_equal(operations[which].run(&said), MF_OK);
    else trim_all();
    happened = one_case(which, event, at);
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
