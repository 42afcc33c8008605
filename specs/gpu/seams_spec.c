/* seams_spec.c: something happens inside of a driver call: another thread trims, captures, releases, waits; the process
 * forks; a signal comes; memory runs out; the next call fails. Each such event at each driver call of each operation,
 * cold and warm. The operation succeeds, or fails as it may and does nothing by halves; then it is done again, with the
 * same objects, and succeeds; and nothing is left.
 *
 * MOONFERRY_SEAM="operation event call" runs one case; a case that fails prints these words. A star is any operation or
 * event, and without a call it is each. */
#include <signal.h>
#include <unistd.h>

#include "operations.h"

#include "helping.h"

static helper *now_helping;
static pthread_t operating; /* the thread of the operation */
static char child_wrong[64];

/* Events in a thread of their own */

static void trims_the_gpu(helper *h) {
  const DLDevice device = gpu(0);
  mf_error e;
  if (mf_pool_trim(&device, &e) != MF_OK) say_wrong(h, "trim", &e);
}

static void trims_pinned(helper *h) {
  const DLDevice device = pinned();
  mf_error e;
  if (mf_pool_trim(&device, &e) != MF_OK) say_wrong(h, "trim", &e);
}

/* On a stream that others have given back, too. */
static void uses_memory(helper *h) {
  const DLDevice device = gpu(0);
  const mf_scalar two = {.kind = MF_KIND_UINT, .u = 2};
  mf_error e;
  mf_stream s;
  mf_tensor *t = NULL;
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t[]){NBYTES}};
  int rc = mf_stream_create(&device, &s, &e);
  if (rc != MF_OK) {
    say_wrong(h, "use", &e);
    return;
  }
  rc = mf_stream_swap(&device, s, NULL, &e);
  if (rc == MF_OK) rc = mf_tensor_create(&like, 0, &t, &e);
  if (rc == MF_OK) rc = mf_tensor_fill(t, &two, &e);
  mf_tensor_release(t);
  (void)mf_stream_swap(&device, MF_STREAM_DEFAULT, NULL, NULL);
  (void)mf_stream_destroy(&device, s, NULL);
  if (rc != MF_OK && rc != MF_ENOMEM) say_wrong(h, "use", &e); /* an operation may have set a limit */
}

static void releases_foreign_memory(helper *h) {
  mf_error e;
  mf_tensor *t;
  if (nlent >= NLENT) return;
  loan *l = lent[nlent++];
  if (mf_tensor_import(&l->managed, &t, &e) != MF_OK) say_wrong(h, "import", &e);
  else mf_tensor_release(t);
}

static void synchronizes(helper *h) {
  const DLDevice device = gpu(0);
  mf_error e;
  if (mf_device_synchronize(&device, &e) != MF_OK) say_wrong(h, "synchronize", &e);
}

static void captures(helper *h) {
  captures_stream(h, h->captured);
}

/* Events in the operation's own thread */

static void child_uses_what_it_has(void) {
  mf_error e;
  mf_tensor *t;
  const DLTensor like = {.device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t[]){NBYTES}};
  alarm(HANGS_SECONDS);
  mf_tensor_release(mf_tensor_retain(small_gpu));
  mf_tensor_release(strided);
  mf_tensor_release(small_host);
  mf_releases_run();
  if (mf_tensor_create(&like, 0, &t, &e) != MF_EDEVICE) _exit(1);
  if (strstr(e.message, "forked") == NULL) _exit(2);
  (void)mf_pools_trim(0, &e);
}

static void forks(helper *h) {
  const int status = status_in_fork(child_uses_what_it_has);
  if (status == 0) return;
  snprintf(child_wrong, sizeof child_wrong, "the child ended with %d", status);
  say_wrong(h, child_wrong, NULL);
}

static void no_host_memory(helper *h) {
  (void)h;
  mf_fault_arm(0, 0);
}

static void the_next_call_fails(helper *h) {
  (void)h;
  sim_ask_fail("*:999:once");
}

static void memory_is_limited(helper *h) {
  const DLDevice device = gpu(0), host = pinned();
  mf_error e;
  if (mf_pool_limit(&device, 1, &e) != MF_OK || mf_pool_limit(&host, 1, &e) != MF_OK) say_wrong(h, "limit", &e);
}

static atomic_int signals;

static void on_signal(int number) {
  (void)number;
  atomic_fetch_add(&signals, 1);
}

static void a_signal_comes(helper *h) {
  (void)h;
  pthread_kill(operating, SIGUSR1);
}

static const struct {
  const char *name;
  void (*act)(helper *h);
  bool here;    /* in the operation's thread */
  bool may_fail; /* the operation, with one of the statuses that it documents */
} events[] = {
    {"trims_the_gpu", trims_the_gpu, false, false},
    {"trims_pinned", trims_pinned, false, false},
    {"trims_everything", trims_everything, false, false},
    {"uses_memory", uses_memory, false, false},
    {"uses_the_same_tensor", uses_the_same_tensor, false, false},
    {"releases_foreign_memory", releases_foreign_memory, false, false},
    {"synchronizes", synchronizes, false, false},
    {"captures", captures, false, false},
    {"forks", forks, true, false},
    {"another_thread_forks", forks, false, false},
    {"no_host_memory", no_host_memory, true, true},
    {"the_next_call_fails", the_next_call_fails, true, true},
    {"memory_is_limited", memory_is_limited, true, true},
    {"a_signal_comes", a_signal_comes, true, false},
};

static bool event_here;

static void happen(void *ctx) {
  helper *h = ctx;
  if (event_here) h->act(h);
  else let_act(h);
}

/* One case */

static void event_end(helper *h, bool happened) {
  const DLDevice device = gpu(0), host = pinned();
  mf_fault_arm(-1, 0);
  OK(mf_pool_limit(&device, 0, &err));
  OK(mf_pool_limit(&host, 0, &err));
  helper_end(h, happened && !event_here);
}

static bool allowed(int rc) {
  return rc == MF_OK || rc == MF_ENOMEM || rc == MF_EDRIVER || rc == MF_EDEVICE || rc == MF_ECAPTURE;
}

/* False where the operation makes fewer calls than that. */
static bool one_case(size_t which, size_t event, uint64_t call) {
  helper h = {.lock = PTHREAD_MUTEX_INITIALIZER, .act = events[event].act, .stream = stream_new(0),
              .captured = other_stream(0, false)};
  moment_init(&h.changed);
  event_here = events[event].here;
  operating = pthread_self();
  now_helping = &h;
  mf_error said = {0};
  const uint64_t before = sim_ask_calls(NULL);
  sim_ask_at("*", "*", call, happen, &h);
  other_tolerate(events[event].act == the_next_call_fails);
  const int rc = operations[which].run(&said);
  other_tolerate(false);
  const bool happened = sim_ask_calls(NULL) - before >= call;
  sim_ask_at("*", "*", 1, NULL, NULL);
  event_end(&h, happened);
  if (sim_ask_findings() != 0 || h.wrong[0] != '\0' || !(events[event].may_fail ? allowed(rc) : rc == MF_OK))
    fail_msg("MOONFERRY_SEAM=\"%s %s %d\": %d, %s; %s", operations[which].name, events[event].name, (int)call, rc,
             rc == MF_OK ? "" : said.message, h.wrong);
  sim_ask_reset();
  const int again = operations[which].run(&said);
  if (again != MF_OK)
    fail_msg("MOONFERRY_SEAM=\"%s %s %d\": done again: %d, %s", operations[which].name, events[event].name, (int)call,
             again, said.message);
  stream_end(0, h.stream);
  other_stream_end(h.captured);
  return happened;
}

static bool is_chosen(size_t which, size_t event, uint64_t *call) {
  char operation_name[64], event_name[64];
  const char *chosen = getenv("MOONFERRY_SEAM");
  *call = 0;
  if (chosen == NULL) return true;
  int number = 0;
  if (sscanf(chosen, "%63s %63s %d", operation_name, event_name, &number) < 2) return false;
  *call = (uint64_t)number;
  return (*operation_name == '*' || strcmp(operation_name, operations[which].name) == 0) &&
         (*event_name == '*' || strcmp(event_name, events[event].name) == 0);
}

static uint64_t ncases;

/* One call in so many, others with each seed. A sanitizer makes a case some twenty times as slow and, of threads, takes
 * 15 MB for it; there a pair of an operation and an event has one call, and a third of the pairs have none. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 256 };
#else
enum { STRIDE = 24 };
#endif

static uint64_t first_call(size_t which, size_t event) {
  return 1 + (which * 13 + event * 29 + seed_of(1)) % one_in(STRIDE);
}

static void each_call(size_t which, size_t event, bool warm) {
  enum { MOST = 120 };
  uint64_t only;
  if (!is_chosen(which, event, &only)) return;
  for (uint64_t call = only == 0 ? first_call(which, event) : only; call < MOST; call += one_in(STRIDE)) {
    open_tensors();
    mf_error said;
    const DLDevice device = gpu(0);
    OK(mf_stream_swap(&device, mine, NULL, &err));
    if (warm) assert_int_equal(operations[which].run(&said), MF_OK);
    else trim_all();
    const bool happened = one_case(which, event, call);
    use_stream(0, MF_STREAM_DEFAULT);
    close_tensors();
    if (!happened || only != 0) break;
    ncases++;
  }
}

static void each_event(bool warm) {
  struct sigaction action = {.sa_handler = on_signal}, former;
  ncases = 0;
  sigaction(SIGUSR1, &action, &former);
  for (size_t which = 0; which < COUNT(operations); which++) {
    for (size_t event = 0; event < COUNT(events); event++)
      if (is_drawn(which + event)) each_call(which, event, warm);
    nothing_left();
  }
  sigaction(SIGUSR1, &former, NULL);
  print_message("%d cases, one call in %d\n", (int)ncases, (int)one_in(STRIDE));
}

static void the_first_time(void **state) {
  (void)state;
  needs_simulator();
  each_event(false);
}

static void and_again(void **state) {
  (void)state;
  needs_simulator();
  each_event(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(the_first_time), SPEC(and_again)};
  return RUN(tests);
}
