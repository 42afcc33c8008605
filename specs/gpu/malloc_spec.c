/* malloc_spec.c: the system's memory that the runtime takes beside the ledger, for what outlives every tensor: pools,
 * the headers of their blocks, the list of these. Each allocation fails in turn, which is an error and loses nothing;
 * and what is no longer needed is given back. The spec stands before malloc and sees what the library calls. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include "device.h"

enum { NBYTES = 4096 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define CAN_STAND_BEFORE 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAN_STAND_BEFORE 0
#else
#define CAN_STAND_BEFORE 1
#endif
#else
#define CAN_STAND_BEFORE 1
#endif

static uintptr_t library_from, library_to; /* where the library's code is */
static int64_t living;                     /* how much it has of calloc's; other memory it may keep for later */
static int64_t fails_in = -1;              /* so many allocations from now, and later ones; -1: none does */
static int failed;
static void (*when_a_lock_is_made)(void);

#if CAN_STAND_BEFORE
static void *made[4096];
static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;

extern void *__libc_malloc(size_t nbytes);
extern void *__libc_calloc(size_t n, size_t nbytes);
extern void *__libc_realloc(void *old, size_t nbytes);
extern void __libc_free(void *p);

static bool is_the_librarys(const void *caller) {
  return (uintptr_t)caller >= library_from && (uintptr_t)caller < library_to;
}

static bool fails(const void *caller) {
  if (fails_in < 0 || !is_the_librarys(caller)) return false;
  if (fails_in > 0) {
    fails_in--;
    return false;
  }
  failed++;
  return true;
}

static void *noted(const void *caller, void *p) {
  if (p == NULL || !is_the_librarys(caller)) return p;
  pthread_mutex_lock(&made_lock);
  if (living == (int64_t)COUNT(made)) abort();
  made[living++] = p;
  pthread_mutex_unlock(&made_lock);
  return p;
}

/* By its address: the library's last call of a function may be a jump, which looks as if its caller had called. */
static void forgotten(const void *p) {
  pthread_mutex_lock(&made_lock);
  int64_t at = 0;
  while (at < living && made[at] != p) at++;
  if (at < living) made[at] = made[--living];
  pthread_mutex_unlock(&made_lock);
}

#define PUBLIC __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

PUBLIC void *malloc(size_t nbytes) {
  return fails(CALLER) ? NULL : __libc_malloc(nbytes);
}

PUBLIC void *calloc(size_t n, size_t nbytes) {
  return fails(CALLER) ? NULL : noted(CALLER, __libc_calloc(n, nbytes));
}

PUBLIC void *realloc(void *old, size_t nbytes) {
  return fails(CALLER) ? NULL : __libc_realloc(old, nbytes);
}

PUBLIC void free(void *p) {
  if (p != NULL) forgotten(p);
  __libc_free(p);
}

PUBLIC int pthread_mutex_init(pthread_mutex_t *lock, const pthread_mutexattr_t *attr) {
  int (*real)(pthread_mutex_t *, const pthread_mutexattr_t *);
  void (*then)(void) = is_the_librarys(CALLER) ? when_a_lock_is_made : NULL;
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_init");
  if (then != NULL) {
    when_a_lock_is_made = NULL;
    then();
  }
  return real(lock, attr);
}
#endif

static int find_code(struct dl_phdr_info *info, size_t size, void *ctx) {
  const uintptr_t known = (uintptr_t)(void (*)(void))mf_releases_run;
  (void)size;
  (void)ctx;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type != PT_LOAD || known < from || known >= from + info->dlpi_phdr[i].p_memsz) continue;
    library_from = from;
    library_to = from + info->dlpi_phdr[i].p_memsz;
  }
  return 0;
}

static void needs_malloc(void) {
  skip_unless(CAN_STAND_BEFORE, "somebody else stands before malloc");
}

/* The first who asks for a pool makes it, if only to find nothing in it; of two at once one does, and the other's is
 * given back. This comes first, while nobody has asked. */

static void ask_for_the_pool(void) {
  (void)stats(pinned());
}

static void *ask_as_another_thread(void *arg) {
  (void)arg;
  ask_for_the_pool();
  return NULL;
}

static void let_another_be_first(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, ask_as_another_thread, NULL) != 0) abort();
  pthread_join(thread, NULL);
}

static void two_who_make_a_pool_have_one(void **state) {
  (void)state;
  needs_malloc();
  const DLDevice device = pinned();
  const int64_t before = living;
  fails_in = 0;
  REFUSED(mf_pool_trim(&device, &err), MF_ENOMEM, "pool");
  fails_in = -1;
  when_a_lock_is_made = let_another_be_first;
  ask_for_the_pool();
  assert_null(when_a_lock_is_made);
  assert_int_equal(living, before + 1);
  mf_tensor *t = create(pinned(), NBYTES);
  assert_true(stats(pinned()).used_bytes >= NBYTES);
  mf_tensor_release(t);
}

/* Each allocation fails in turn */

static int make_memory(void) {
  mf_tensor *t = NULL;
  const int rc = create_at(gpu(0), NBYTES, &t);
  assert_true((rc == MF_OK) == (t != NULL));
  mf_tensor_release(t);
  return rc;
}

static int make_host_memory(void) {
  mf_tensor *t = NULL;
  const int rc = create_at(pinned(), NBYTES, &t);
  mf_tensor_release(t);
  return rc;
}

static int make_a_stream(void) {
  const DLDevice device = gpu(0);
  mf_stream s;
  const int rc = mf_stream_create(&device, &s, &err);
  if (rc == MF_OK) stream_end(0, s);
  return rc;
}

/* The last round is one in which nothing fails. */
static int fail_in_turn(int (*operation)(void)) {
  int rounds = 0, rc;
  do {
    failed = 0;
    fails_in = rounds;
    rc = operation();
    fails_in = -1;
    assert_true(rc == MF_OK || (rc == MF_ENOMEM && failed > 0 && err.message[0] != '\0'));
    synchronize(0);
    trim_all();
    assert_int_equal(sim_ask_left("memory"), 0);
    rounds++;
  } while (failed > 0 && rounds < 100);
  assert_int_equal(rc, MF_OK);
  return rounds - 1;
}

static void each_allocation_fails_in_turn(void **state) {
  (void)state;
  needs_malloc();
  assert_true(fail_in_turn(make_memory) >= 2);
  assert_true(fail_in_turn(make_host_memory) >= 2);
  assert_true(fail_in_turn(make_a_stream) >= 1);
  const int64_t before = living;
  (void)fail_in_turn(make_memory);
  (void)fail_in_turn(make_host_memory);
  (void)fail_in_turn(make_a_stream);
  assert_int_equal(living, before);
}

/* The next of many, where the allocations that it takes fail from each one on: now and then the list of blocks has to
 * grow. What was taken before the one that fails goes back. */
static mf_tensor *next_of_many(int64_t each) {
  mf_tensor *t = NULL;
  for (int n = 0; t == NULL; n++) {
    const int64_t ours = living, drivers = sim_ask_left("memory");
    failed = 0;
    fails_in = n;
    const int rc = create_at(gpu(0), NBYTES, &t);
    fails_in = -1;
    assert_true(rc == MF_OK || (rc == MF_ENOMEM && failed > 0));
    synchronize(0);
    trim_all(); /* a block that was made may be kept */
    assert_int_equal(living, ours + (rc == MF_OK ? each : 0));
    if (other_is_simulated()) assert_int_equal(sim_ask_left("memory"), drivers + (rc == MF_OK ? NBYTES : 0));
    if (rc == MF_OK && failed > 0) {
      mf_tensor_release(t);
      t = NULL;
      synchronize(0);
      trim_all();
    }
  }
  return t;
}

static void many_blocks_fail_one_by_one(void **state) {
  enum { MANY = 140 }; /* the list doubles from 64 on */
  mf_tensor *all[MANY];
  (void)state;
  needs_malloc();
  all[0] = create(gpu(0), NBYTES);
  const int64_t before = living;
  all[1] = create(gpu(0), NBYTES);
  const int64_t each = living - before;
  for (int i = 2; i < MANY; i++) all[i] = next_of_many(each);
  for (int i = 0; i < MANY; i++) mf_tensor_release(all[i]);
}

/* A child has no use for the headers of blocks that it cannot give back. */

static mf_tensor *inherited;
static int64_t without_it;

static void child(void) {
  mf_tensor_release(inherited);
  if (living != without_it) _exit(2);
}

static void a_forked_child_keeps_no_header(void **state) {
  (void)state;
  needs_malloc();
  (void)make_memory(); /* what is made once is made */
  synchronize(0);
  trim_all();
  without_it = living;
  inherited = create(gpu(0), NBYTES);
  in_fork(child);
  mf_tensor_release(inherited);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(two_who_make_a_pool_have_one),
      SPEC(each_allocation_fails_in_turn),
      SPEC(many_blocks_fail_one_by_one),
      SPEC(a_forked_child_keeps_no_header),
  };
  (void)dl_iterate_phdr(find_code, NULL);
  return RUN(tests);
}
