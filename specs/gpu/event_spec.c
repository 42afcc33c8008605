/* event_spec.c: asking after events and waiting for them, with several that are not done yet, while somebody else
 * captures, where calls fail, and with each generation of the driver. On HIP up to 7.2 a stream of ours is asked
 * instead of the event, of which there are four. */
#include "spec.h"

enum { NBYTES = 64, FILLS = 300, PROBES = 4, MANY = PROBES + 1 };

typedef struct work {
  mf_stream stream;
  void *event;
  char *memory;
} work;

/* So much that asking whether it is done does not finish it, as it may on a simulator. */
static work work_new(bool busy) {
  work w = {0};
  void *memory = NULL;
  CHECK(gpu->stream_create(&w.stream, &err) == MF_OK && gpu->event_create(&w.event, &err) == MF_OK);
  CHECK(gpu->memory_alloc(MF__DEVICE, NBYTES, w.stream, &memory, &err) == MF_OK);
  w.memory = memory;
  const mf__block_copy job = {.dst = memory, .width = NBYTES, .height = 1, .depth = 1};
  for (int i = 0; busy && i < FILLS; i++) CHECK(gpu->fill(&job, 1, 1, w.stream, &err) == MF_OK);
  CHECK(gpu->event_record(w.event, w.stream, &err) == MF_OK);
  if (!busy) CHECK(gpu->stream_synchronize(w.stream, &err) == MF_OK);
  return w;
}

static void work_end(const work *w) {
  CHECK(gpu->memory_free(MF__DEVICE, w->memory, w->stream, &err) == MF_OK);
  CHECK(gpu->stream_synchronize(w->stream, &err) == MF_OK);
  CHECK(gpu->event_destroy(w->event, &err) == MF_OK && gpu->stream_destroy(w->stream, &err) == MF_OK);
}

static bool is_done(const work *w) {
  bool done = false;
  CHECK(gpu->event_query(w->event, &done, &err) == MF_OK);
  return done;
}

/* A stream that waits for the legacy one, captured in relaxed mode: a call about the legacy stream would break it. */
static mf_stream capture_blocking(void) {
  int (*create)(void **, unsigned);
  void *blocking = NULL;
  *(void **)&create = driver_symbol(IS_HIP ? "hipStreamCreateWithFlags" : "cuStreamCreate");
  CHECK(create(&blocking, 0) == 0);
  capture_start((mf_stream)(intptr_t)blocking, CAPTURE_RELAXED);
  return (mf_stream)(intptr_t)blocking;
}

static void end_blocking(mf_stream blocking) {
  CHECK(capture_end(blocking) == 0);
  CHECK(gpu->stream_destroy(blocking, &err) == MF_OK);
}

static void finish(void) {
  gpu->device_forget(0);
  CHECK(sim_ask_findings() == 0);
  CHECK(sim_ask_left("events") == 0 && sim_ask_left("streams") == 0 && sim_ask_left("memory") == 0);
  CHECK(driver_last_error() == 0);
}

/* What is done is found done beside what is not, again and again, and whatever was waited for before. */
static void ask_beside_others(void) {
  mf__entered before;
  work busy[PROBES - 1];
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  const work done = work_new(false);
  CHECK(gpu->event_synchronize(done.event, &err) == MF_OK);
  for (int i = 0; i < PROBES - 1; i++) {
    CHECK(is_done(&done));
    busy[i] = work_new(true);
    CHECK(!is_done(&busy[i]));
  }
  const uint64_t streams = sim_ask_calls("hipStreamCreateWithFlags");
  for (int i = 0; i < 2 * PROBES; i++)
    CHECK(is_done(&done) && gpu->event_synchronize(done.event, &err) == MF_OK);
  CHECK(sim_ask_calls("hipStreamCreateWithFlags") <= streams + 1); /* none is made for each */
  const mf_stream captured = capture_blocking();
  for (int i = 0; i < PROBES - 1; i++) {
    CHECK(gpu->event_synchronize(busy[i].event, &err) == MF_OK && is_done(&busy[i]));
  }
  end_blocking(captured);
  for (int i = 0; i < PROBES - 1; i++) work_end(&busy[i]);
  work_end(&done);
  gpu->leave(&before);
  finish();
}

/* More are asked after than there are streams for it: each can be waited for all the same, the last one first. */
static void wait_beside_others(void) {
  mf__entered before;
  work busy[MANY];
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  for (int i = 0; i < MANY; i++) {
    busy[i] = work_new(true);
    CHECK(!is_done(&busy[i]));
  }
  if (IS_HIP) { /* a stream for this wait alone */
    sim_ask_fail("hipStreamCreateWithFlags:999:once");
    const int rc = gpu->event_synchronize(busy[MANY - 1].event, &err);
    CHECK(sim_ask_faults() == 0 ? rc == MF_OK : rc == MF_EDRIVER && strstr(err.message, "hipStreamCreate") != NULL);
    sim_ask_reset();
  }
  const mf_stream captured = capture_blocking();
  for (int i = MANY - 1; i >= 0; i--) CHECK(gpu->event_synchronize(busy[i].event, &err) == MF_OK);
  for (int i = 0; i < MANY; i++) CHECK(is_done(&busy[i]));
  end_blocking(captured);
  for (int i = 0; i < MANY; i++) work_end(&busy[i]);
  gpu->leave(&before);
  finish();
}

/* Another thread asks after an event that is not done just when this one does after one that is. */
static work other_work;
static bool other_was_done;

static void ask_meanwhile(void *unused) {
  (void)unused;
  other_was_done = is_done(&other_work);
}

static void ask_at_once(void) {
  mf__entered before;
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  const work done = work_new(false);
  other_work = work_new(true);
  CHECK(is_done(&done)); /* there is a stream to ask */
  other_was_done = true;
  sim_ask_at(IS_HIP ? "hipStreamWaitEvent" : "cuEventQuery", 1, ask_meanwhile);
  const bool found = is_done(&done);
  sim_ask_at(NULL, 0, NULL);
  CHECK(found && (!other_was_done || sim_ask_calls("hipEventQuery") > 0));
  CHECK(gpu->event_synchronize(other_work.event, &err) == MF_OK);
  work_end(&done);
  work_end(&other_work);
  gpu->leave(&before);
  finish();
}

/* A call that fails is told, or what is asked after counts as not done; nothing else follows from it. */
static bool fail_at(const work *done, uint64_t number) {
  char rule[32];
  bool is = true;
  snprintf(rule, sizeof rule, "*@%llu:999:once", (unsigned long long)number);
  sim_ask_reset();
  sim_ask_fail(rule);
  const int asked = gpu->event_query(done->event, &is, &err);
  CHECK(asked == MF_OK || (!is && err.driver_code == 999));
  const int waited = gpu->event_synchronize(done->event, &err);
  CHECK(waited == MF_OK || err.driver_code == 999);
  const bool struck = sim_ask_faults() > 0;
  CHECK(struck || (is && asked == MF_OK && waited == MF_OK));
  CHECK(sim_ask_findings() == 0);
  sim_ask_reset();
  CHECK(driver_last_error() == 0 && is_done(done));
  return struck;
}

static void fail_in_turn(void) {
  mf__entered before;
  uint64_t number = 1;
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  const work done = work_new(false);
  while (fail_at(&done, number)) number++;
  CHECK(number > 2);
  work_end(&done);
  gpu->leave(&before);
  finish();
}

/* What cannot be asked is not done. */
static void ask_where_none_can_enter(void) {
  mf__entered before;
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  const work busy = work_new(true);
  sim_ask_fail(IS_HIP ? "hipGetDevice:999:once" : "cuCtxGetCurrent:999:once");
  CHECK(!mf__event_done(gpu, 0, busy.event) && sim_ask_faults() == 1);
  sim_ask_reset();
  CHECK(gpu->event_synchronize(busy.event, &err) == MF_OK && mf__event_done(gpu, 0, busy.event));
  work_end(&busy);
  gpu->leave(&before);
  finish();
}

/* Between the event and the question whether it is done. */
static void finish_all(void *unused) {
  (void)unused;
  (void)driver_call(IS_HIP ? "hipDeviceSynchronize" : "cuCtxSynchronize", NULL);
}

/* The legacy stream is waited for in the place of another thread's. Whether that is done is not known without an event,
 * which a question that may stay open does not record. */
static void ask_another_threads_stream(void) {
  static const char *const questions[] = {"cuEventQuery", "hipStreamQuery", "hipEventQuery"}; /* by the generation */
  mf__entered before;
  bool done = false;
  mf__queue elsewhere = mf__queue_make(gpu, 0, MF_STREAM_PER_THREAD);
  elsewhere.thread++;
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  const work busy = work_new(false);
  const mf__block_copy job = {.dst = busy.memory, .width = NBYTES, .height = 1, .depth = 1};
  for (int i = 0; i < FILLS; i++) CHECK(gpu->fill(&job, 1, 1, MF_STREAM_DEFAULT, &err) == MF_OK);
  CHECK(gpu->event_record(busy.event, MF_STREAM_DEFAULT, &err) == MF_OK);
  CHECK(mf__queue_synchronize(&elsewhere, &err) == MF_OK && is_done(&busy));
  for (size_t i = 0; i < COUNT(questions) && !done; i++) {
    sim_ask_at(questions[i], 1, finish_all);
    CHECK(mf__queue_query(&elsewhere, &done, &err) == MF_OK);
  }
  sim_ask_at(NULL, 0, NULL);
  CHECK(done);
  const uint64_t calls = sim_ask_calls(NULL);
  CHECK(!mf__queue_done(&elsewhere) && sim_ask_calls(NULL) == calls);
  mf__event_trim(gpu, 0);
  work_end(&busy);
  gpu->leave(&before);
  finish();
}

#define NEWER "SIM_LEDGER=off SIM_DRIVER_VERSION=70300000"
#define OLDER "SIM_LEDGER=off SIM_DRIVER_VERSION=70299999"

static void in_each_generation(void (*fn)(void)) {
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off", fn);
  if (!IS_HIP) return;
  in_fork_with(NEWER, fn);
  in_fork_with(OLDER, fn);
}

static void what_is_done_is_found_done_beside_others(void **state) {
  (void)state;
  in_each_generation(ask_beside_others);
}

static void each_of_many_can_be_waited_for(void **state) {
  (void)state;
  in_each_generation(wait_beside_others);
}

static void two_can_ask_at_once(void **state) {
  (void)state;
  in_each_generation(ask_at_once);
}

static void each_call_fails_in_turn(void **state) {
  (void)state;
  in_each_generation(fail_in_turn);
}

static void what_cannot_be_asked_is_not_done(void **state) {
  (void)state;
  in_each_generation(ask_where_none_can_enter);
}

static void another_threads_stream(void **state) {
  (void)state;
  in_each_generation(ask_another_threads_stream);
}

#if IS_HIP
/* How often the driver is asked about the event itself: once for each question, or never. */
static void ask_an_event(uint64_t times) {
  mf__entered before;
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  const work done = work_new(false);
  CHECK(is_done(&done) && gpu->event_synchronize(done.event, &err) == MF_OK);
  CHECK(sim_ask_calls("hipEventQuery") == times && sim_ask_calls("hipEventSynchronize") == times);
  work_end(&done);
  gpu->leave(&before);
  finish();
}

static void ask_the_event(void) {
  ask_an_event(1);
}

static void ask_no_event(void) {
  ask_an_event(0);
}

static void an_event_is_asked_itself_where_that_breaks_no_capture(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with(NEWER, ask_the_event);
  in_fork_with(OLDER, ask_no_event);
}
#endif

int main(void) {
  const struct CMUnitTest specs[] = {
      cmocka_unit_test(what_is_done_is_found_done_beside_others),
      cmocka_unit_test(each_of_many_can_be_waited_for),
      cmocka_unit_test(two_can_ask_at_once),
      cmocka_unit_test(each_call_fails_in_turn),
      cmocka_unit_test(what_cannot_be_asked_is_not_done),
      cmocka_unit_test(another_threads_stream),
#if IS_HIP
      cmocka_unit_test(an_event_is_asked_itself_where_that_breaks_no_capture),
#endif
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
