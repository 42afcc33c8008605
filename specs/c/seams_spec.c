/* seams_spec.c: something happens inside of an operation on host memory, at each call of the allocator and at each
 * deleter and release callback: another thread uses the same tensors, releases, trims, forks; a signal comes; there is
 * no memory; and in deleters and callbacks, which may call this library, this thread does so. The operation succeeds,
 * or fails for want of memory and does nothing by halves; then it is done again, with the same objects, and succeeds;
 * and nothing is left.
 *
 * MOONFERRY_SEAM="operation event point" runs one case; a case that fails prints these words. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, sigaction */

#include "moment.h"
#include "spec.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NLENT = 24 };

/* Where something can happen */

typedef struct seam {
  int64_t wanted, reached; /* points of this operation */
  bool in_callbacks;       /* only these count */
  bool happened, here, joined;
  void (*act)(void);
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool acted;
  bool no_memory, no_more_memory;
} seam;

static _Thread_local bool is_operating, runs_due, made_due;
static seam now = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic(const char *) wrong; /* what an event says */

static void *act_in_thread(void *unused) {
  now.act();
  pthread_mutex_lock(&now.lock);
  now.acted = true;
  pthread_cond_broadcast(&now.changed);
  pthread_mutex_unlock(&now.lock);
  return unused;
}

/* What a lock of the runtime keeps from acting now acts as soon as the operation lets it. */
static void let_act(void) {
  if (pthread_create(&now.thread, NULL, act_in_thread, NULL) != 0) abort();
  now.joined = false;
  moment_wait(&now.changed, &now.lock, &now.acted);
}

static void point(bool callback) {
  if (!is_operating) return;
  if (now.happened || (now.in_callbacks && !callback)) return;
  if (++now.reached != now.wanted) return;
  now.happened = true;
  if (now.here) now.act();
  else let_act();
}

static void *striking(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
  if (new_nbytes > 0 || old_nbytes > 0) point(false);
  if (new_nbytes > 0 && is_operating && now.no_memory) {
    now.no_memory = now.no_more_memory;
    return NULL;
  }
  return spec_strict_realloc(ctx, ptr, old_nbytes, new_nbytes);
}

/* The objects: Moonferry's own memory, and structs of somebody else's whose deleters can be struck. */

typedef struct lent {
  DLManagedTensorVersioned managed;
  DLManagedTensor legacy;
  int64_t shape[2];
  float elements[6];
  atomic_int taken, deleted;
} lent;

static lent all_lent[NLENT];
static atomic_int nlent;
static mf_tensor *subject, *other, *foreign;

/* What is due comes one after the other. */
static void released(void *ctx) {
  static _Thread_local int depth;
  lent *l = ctx;
  if (depth++ > 0 && runs_due && made_due) atomic_store(&wrong, "a deleter that was due came within another one");
  point(true);
  depth--;
  atomic_fetch_add(&l->deleted, 1);
}

static void delete_versioned(DLManagedTensorVersioned *m) { released(m->manager_ctx); }
static void delete_legacy(DLManagedTensor *m) { released(m->manager_ctx); }

static lent *lend(void) {
  const int n = atomic_fetch_add(&nlent, 1);
  if (n >= NLENT) abort();
  lent *l = &all_lent[n];
  memset(l, 0, sizeof *l);
  l->shape[0] = 2;
  l->shape[1] = 3;
  const DLTensor view = {
      .data = l->elements, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = l->shape};
  l->managed = (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                          .manager_ctx = l, .deleter = delete_versioned, .dl_tensor = view};
  l->legacy = (DLManagedTensor){.manager_ctx = l, .deleter = delete_legacy, .dl_tensor = view};
  return l;
}

/* A tensor that came of this is the caller's, and so is the struct until then. */
static int take(lent *l, int rc) {
  atomic_store(&l->taken, rc == MF_OK);
  return rc;
}

static int import(mf_tensor **out, mf_error *e) {
  lent *l = lend();
  return take(l, mf_tensor_import(&l->managed, out, e));
}

static int import_legacy(mf_tensor **out, mf_error *e) {
  lent *l = lend();
  return take(l, mf_tensor_import_legacy(&l->legacy, out, e));
}

static int wrap(mf_tensor **out, mf_error *e) {
  lent *l = lend();
  return take(l, mf_tensor_wrap(&l->managed.dl_tensor, 0, released, l, out, e));
}

/* Operations */

static int end(int rc, mf_tensor *t) {
  if (rc == MF_OK) mf_tensor_release(t);
  return rc;
}

#define MAKES(name, call)            \
  static int name(mf_error *e) {     \
    mf_tensor *out = NULL;           \
    const int rc = (call);           \
    return end(rc, out);             \
  }

static const mf_index second = {.kind = MF_INDEX_AT, .start = 1};
static const mf_request a_copy = {.copy = MF_COPY_ALWAYS};
static DLDataType bytes = {kDLUInt, 8, 1};

MAKES(create, mf_tensor_create(mf_tensor_dltensor(subject), 0, &out, e))
MAKES(clone, mf_tensor_clone(subject, &out, e))
MAKES(clone_foreign, mf_tensor_clone(foreign, &out, e))
MAKES(index_, mf_tensor_index(subject, &second, 1, &out, e))
MAKES(permute, mf_tensor_permute_dims(foreign, NULL, 0, &out, e))
MAKES(reshape, mf_tensor_reshape(subject, (int64_t[]){6}, 1, &out, e))
MAKES(broadcast, mf_tensor_broadcast_to(subject, (int64_t[]){4, 2, 3}, 3, &out, e))
MAKES(squeeze, mf_tensor_squeeze(subject, NULL, 0, &out, e))
MAKES(expand, mf_tensor_expand_dims(subject, 0, &out, e))
MAKES(diagonal, mf_tensor_diagonal(subject, 0, (int32_t[]){0, 1}, &out, e))
MAKES(reinterpret, mf_tensor_reinterpret(subject, &bytes, &out, e))
MAKES(make_readonly, mf_tensor_as_readonly(foreign, &out, e))
MAKES(to, mf_tensor_to(foreign, &a_copy, &out, e))
MAKES(import_and_release, import(&out, e))
MAKES(import_legacy_and_release, import_legacy(&out, e))
MAKES(wrap_and_release, wrap(&out, e))

static int copy(mf_error *e) { return mf_tensor_copy(other, subject, e); }
static int copy_foreign(mf_error *e) { return mf_tensor_copy(foreign, subject, e); }
static int trim(mf_error *e) { return mf_pools_trim(0, e); }

/* Through memory in between. */
static int copy_overlapping(mf_error *e) {
  mf_tensor *t, *flipped = NULL;
  const mf_index back = {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1};
  int rc = mf_tensor_clone(subject, &t, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_index(t, &back, 1, &flipped, e);
  if (rc == MF_OK) rc = mf_tensor_copy(t, flipped, e);
  mf_tensor_release(flipped);
  mf_tensor_release(t);
  return rc;
}

static int cast(mf_error *e) {
  DLTensor like = *mf_tensor_dltensor(subject);
  mf_tensor *t;
  like.dtype = bytes;
  int rc = mf_tensor_create(&like, 0, &t, e);
  return rc == MF_OK ? end(mf_tensor_astype(t, subject, e), t) : rc;
}

static int fill_put_get(mf_error *e) {
  const mf_scalar one = {.kind = MF_KIND_FLOAT, .f = 1};
  mf_scalar got;
  int rc = mf_tensor_fill(other, &one, e);
  if (rc == MF_OK) rc = mf_tensor_put(other, (int64_t[]){1, 2}, 2, &one, e);
  return rc == MF_OK ? mf_tensor_get(foreign, (int64_t[]){1, 2}, 2, &got, e) : rc;
}

static int equal(mf_error *e) {
  int32_t same;
  return mf_tensor_equal(subject, foreign, &same, e);
}

static int export_and_delete(mf_error *e) {
  DLManagedTensorVersioned *m;
  const int rc = mf_tensor_export(foreign, 0, &m, e);
  if (rc == MF_OK) m->deleter(m);
  return rc;
}

static int export_a_copy(mf_error *e) {
  DLManagedTensorVersioned *m;
  const int rc = mf_tensor_export_to(subject, &a_copy, &m, e);
  if (rc == MF_OK) m->deleter(m);
  return rc;
}

/* The last reference is an export's; the deleter of it calls the other one. */
static int export_the_last(mf_error *e) {
  DLManagedTensor *m;
  mf_tensor *t;
  int rc = import(&t, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_export_legacy(t, &m, e);
  mf_tensor_release(t);
  if (rc == MF_OK) m->deleter(m);
  return rc;
}

/* The same struct goes round: what comes back is a tensor of the same memory. */
static int round_trip(mf_error *e) {
  DLManagedTensorVersioned *m;
  mf_tensor *t;
  int rc = mf_tensor_export(foreign, 0, &m, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_import(m, &t, e);
  if (rc != MF_OK) m->deleter(m);
  return end(rc, t);
}

static int view_outlives(mf_error *e) {
  mf_tensor *t, *view;
  int rc = wrap(&t, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_permute_dims(t, NULL, 0, &view, e);
  mf_tensor_release(t);
  return end(rc, view);
}

static void run_due(void) {
  runs_due = true;
  mf_releases_run();
  runs_due = false;
}

static int release_later_and_run(mf_error *e) {
  mf_tensor *a, *b;
  int rc = import(&a, e);
  if (rc != MF_OK) return rc;
  rc = wrap(&b, e);
  (void)mf_tensor_release_later(a);
  if (rc == MF_OK) (void)mf_tensor_release_later(b);
  run_due();
  return rc;
}

static int delete_later(mf_error *e) {
  DLManagedTensorVersioned *m;
  mf_tensor *t;
  int rc = import(&t, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_export(t, 0, &m, e);
  mf_tensor_release(t);
  if (rc != MF_OK) return rc;
  mf_export_delete_later(m);
  m->deleter(m);
  run_due();
  return rc;
}

static int invalidate(mf_error *e) {
  int32_t in_use;
  mf_tensor *t;
  const int rc = wrap(&t, e);
  return rc == MF_OK ? end(mf_tensor_invalidate(t, &in_use, e), t) : rc;
}

static const struct {
  const char *name;
  int (*run)(mf_error *e);
} operations[] = {
    {"create", create}, {"clone", clone}, {"clone_foreign", clone_foreign}, {"index", index_}, {"permute", permute},
    {"reshape", reshape}, {"broadcast", broadcast}, {"squeeze", squeeze}, {"expand", expand}, {"diagonal", diagonal},
    {"reinterpret", reinterpret}, {"make_readonly", make_readonly}, {"to", to},
    {"import_and_release", import_and_release}, {"import_legacy_and_release", import_legacy_and_release},
    {"wrap_and_release", wrap_and_release}, {"copy", copy}, {"copy_foreign", copy_foreign},
    {"copy_overlapping", copy_overlapping}, {"cast", cast}, {"fill_put_get", fill_put_get}, {"equal", equal},
    {"export_and_delete", export_and_delete}, {"export_a_copy", export_a_copy}, {"export_the_last", export_the_last},
    {"round_trip", round_trip}, {"view_outlives", view_outlives}, {"release_later_and_run", release_later_and_run},
    {"delete_later", delete_later}, {"invalidate", invalidate}, {"trim", trim},
};

/* Events */

#define MUST(call) if ((call) != MF_OK) atomic_store(&wrong, #call)

static void uses_the_tensors(void) {
  DLManagedTensorVersioned *m;
  mf_tensor *t, *view;
  mf_error e;
  int32_t same = 0;
  MUST(mf_tensor_clone(subject, &t, &e));
  MUST(mf_tensor_equal(t, subject, &same, &e));
  if (!same) atomic_store(&wrong, "a copy of what nobody writes is another one");
  mf_tensor_release(t);
  MUST(mf_tensor_permute_dims(foreign, NULL, 0, &view, &e));
  MUST(mf_tensor_export(view, 0, &m, &e));
  mf_tensor_release(view);
  m->deleter(m);
}

static void imports_and_releases(void) {
  mf_tensor *t;
  mf_error e;
  MUST(import(&t, &e));
  mf_tensor_release(t);
  MUST(wrap(&t, &e));
  (void)mf_tensor_release_later(t);
  mf_releases_run();
}

static void makes_one_due(void) {
  mf_tensor *t;
  mf_error e;
  MUST(import(&t, &e));
  (void)mf_tensor_release_later(t);
  made_due = true;
  mf_releases_run();
  made_due = false;
}

static void trims(void) {
  mf_error e;
  MUST(mf_pools_trim(0, &e));
}

static void forks(void) {
  int status = 0;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(200);
    is_operating = false;
    uses_the_tensors();
    imports_and_releases();
    mf_tensor_release(subject);
    _exit(atomic_load(&wrong) != NULL);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) atomic_store(&wrong, "the child");
}

static atomic_int signals;

static void on_signal(int number) {
  (void)number;
  atomic_fetch_add(&signals, 1);
}

static void a_signal_comes(void) { raise(SIGUSR1); }
static void no_memory(void) { now.no_memory = true; }
static void no_memory_from_now_on(void) { now.no_memory = now.no_more_memory = true; }

static const struct {
  const char *name;
  void (*act)(void);
  bool here;         /* in the operation's thread */
  bool in_callbacks; /* calls this library, which an allocator may not */
  bool may_fail;     /* the operation, for want of memory */
} events[] = {
    {"uses_the_tensors", uses_the_tensors, true, true, false},
    {"imports_and_releases", imports_and_releases, true, true, false},
    {"makes_one_due", makes_one_due, true, true, false},
    {"runs_what_is_due", mf_releases_run, true, true, false},
    {"trims", trims, true, true, false},
    {"forks", forks, true, true, false},
    {"another_thread_uses_the_tensors", uses_the_tensors, false, false, false},
    {"another_thread_imports_and_releases", imports_and_releases, false, false, false},
    {"another_thread_runs_what_is_due", mf_releases_run, false, false, false},
    {"another_thread_trims", trims, false, false, false},
    {"another_thread_forks", forks, false, false, false},
    {"a_signal_comes", a_signal_comes, true, false, false},
    {"no_memory", no_memory, true, false, true},
    {"no_memory_from_now_on", no_memory_from_now_on, true, false, true},
};

/* Cases */

static void open_objects(void) {
  const mf_scalar two = {.kind = MF_KIND_FLOAT, .f = 2};
  atomic_store(&nlent, 0);
  atomic_store(&wrong, NULL);
  subject = spec_create("float32", DIMS(2, 3));
  other = spec_create("float32", DIMS(2, 3));
  OK(mf_tensor_fill(subject, &two, &spec_err));
  OK(import(&foreign, &spec_err));
}

static void close_objects(const char *operation, const char *event, int64_t at) {
  mf_tensor_release(subject);
  mf_tensor_release(other);
  mf_tensor_release(foreign);
  mf_releases_run();
  for (int i = 0; i < atomic_load(&nlent); i++) {
    const int taken = atomic_load(&all_lent[i].taken), deleted = atomic_load(&all_lent[i].deleted);
    if (taken != deleted)
      fail_msg("MOONFERRY_SEAM=\"%s %s %d\": taken %d, deleted %d", operation, event, (int)at, taken, deleted);
  }
}

static bool is_fine(int rc, bool may_fail) { return rc == MF_OK || (may_fail && rc == MF_ENOMEM); }

/* False where the operation has fewer points. */
static bool one_case(size_t which, size_t event, int64_t at) {
  const char *operation_name = operations[which].name, *event_name = events[event].name;
  mf_error said = {0};
  open_objects();
  now.reached = 0;
  now.happened = now.acted = now.no_memory = now.no_more_memory = false;
  now.joined = true;
  now.here = events[event].here;
  now.in_callbacks = events[event].in_callbacks;
  now.act = events[event].act;
  now.wanted = at;
  is_operating = true;
  const int rc = operations[which].run(&said);
  is_operating = false;
  now.no_memory = now.no_more_memory = false;
  if (!now.joined) pthread_join(now.thread, NULL);
  const char *saying = atomic_load(&wrong);
  if (saying != NULL || !is_fine(rc, events[event].may_fail))
    fail_msg("MOONFERRY_SEAM=\"%s %s %d\": %d, %s; %s", operation_name, event_name, (int)at, rc,
             rc == MF_OK ? "" : said.message, saying == NULL ? "" : saying);
  const int again = operations[which].run(&said);
  if (again != MF_OK)
    fail_msg("MOONFERRY_SEAM=\"%s %s %d\": done again: %d, %s", operation_name, event_name, (int)at, again,
             said.message);
  const bool happened = now.happened;
  close_objects(operation_name, event_name, at);
  return happened;
}

static bool is_chosen(size_t which, size_t event, int64_t *at) {
  char operation_name[64], event_name[64];
  const char *chosen = getenv("MOONFERRY_SEAM");
  int number = 0;
  *at = 0;
  if (chosen == NULL) return true;
  if (sscanf(chosen, "%63s %63s %d", operation_name, event_name, &number) != 3) return false;
  *at = number;
  return strcmp(operation_name, operations[which].name) == 0 && strcmp(event_name, events[event].name) == 0;
}

static void each_event_at_each_point(void **state) {
  struct sigaction action = {.sa_handler = on_signal}, former;
  int ncases = 0;
  (void)state;
  moment_init(&now.changed);
  OK(mf_allocator_set(striking, NULL, &spec_err));
  sigaction(SIGUSR1, &action, &former);
  for (size_t which = 0; which < COUNT(operations); which++) {
    for (size_t event = 0; event < COUNT(events); event++) {
      int64_t only;
      if (!is_chosen(which, event, &only)) continue;
      for (int64_t at = only == 0 ? 1 : only; one_case(which, event, at); at++, ncases++) {
        if (only != 0) break;
      }
    }
  }
  sigaction(SIGUSR1, &former, NULL);
  OK(mf_allocator_set(spec_strict_realloc, NULL, &spec_err));
  print_message("%d cases, %d signals\n", ncases, atomic_load(&signals));
  if (getenv("MOONFERRY_SEAM") == NULL) assert_true(ncases > 500 && atomic_load(&signals) > 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(each_event_at_each_point)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
