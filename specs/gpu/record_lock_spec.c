/* record_lock_spec.c: who uses a memory while another thread's operation on it is at a driver call waits until that has
 * queued its work, whatever the use is: otherwise it would find the record half written, or too early. Who has waited
 * for long is next. It stands before the system's sched_yield and nanosleep, which tell that a thread waits. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "gl_buffer.h"

enum { NBYTES = 96 * 1024, EARLY = 1, LATE = 9 }; /* so many that copies are staged */

typedef enum progress { NOT_YET, WAITS, SLEEPS, DONE } progress;

static _Atomic int progress_of_user;
static _Thread_local bool is_user;

/* ThreadSanitizer calls it before it is ready for instrumented code. */
__attribute__((visibility("default"), no_sanitize("thread"))) int sched_yield(void) {
  int (*real)(void);
  *(void **)&real = dlsym(RTLD_NEXT, "sched_yield");
  int before = NOT_YET;
  if (is_user) atomic_compare_exchange_strong(&progress_of_user, &before, WAITS);
  return real();
}

/* Of the thread that would take the record again at once; other operations take it once. */
static _Atomic bool gives_way, is_through = true;
static _Atomic int naps_for_nobody;

/* The user sleeps until the other thread gives way, or is through without that. That thread sleeps until the user,
 * which alone can have the record then, has used it. */
__attribute__((visibility("default"), no_sanitize("thread"))) int nanosleep(const struct timespec *time,
                                                                            struct timespec *left) {
  int (*real)(const struct timespec *, struct timespec *);
  *(void **)&real = dlsym(RTLD_NEXT, "nanosleep");
  if (is_user) {
    atomic_store(&progress_of_user, SLEEPS);
    while (!atomic_load(&gives_way) && !atomic_load(&is_through)) real(time, left);
  } else if (atomic_load(&progress_of_user) == SLEEPS) {
    atomic_store(&gives_way, true);
    while (atomic_load(&progress_of_user) != DONE) real(time, left);
  } else atomic_fetch_add(&naps_for_nobody, 1);
  return real(time, left);
}

typedef struct scene {
  mf_stream a, b; /* the operation's, and another */
  mf_tensor *t, *host, *copy;
  DLManagedTensorVersioned *given; /* to a consumer on b */
} scene;

/* What writes t's bytes, or reads them, and the call that queues it. */
typedef struct operation {
  int (*run)(scene *s);
  const char *cuda, *hip;
} operation;

static int fill_it(scene *s) {
  return try_fill(s->t, LATE);
}

static int copy_to_it(scene *s) {
  return mf_tensor_copy(s->t, s->host, &err);
}

static int copy_from_it(scene *s) {
  return mf_tensor_copy(s->host, s->t, &err);
}

static const operation operations[] = {{fill_it, "cuMemsetD8Async", "hipMemsetD8Async"},
                                       {copy_to_it, "cuMemcpyAsync", "hipMemcpyAsync"},
                                       {copy_from_it, "cuMemcpyAsync", "hipMemcpyAsync"}};

static int acquire_there(scene *s) {
  return mf_tensor_acquire(s->t, s->a, MF_READ, &err);
}

static int acquire_elsewhere(scene *s) {
  return mf_tensor_acquire(s->t, s->b, MF_WRITE, &err);
}

static int acquire_for_the_host(scene *s) {
  return mf_tensor_acquire(s->t, MF_STREAM_HOST, MF_READ, &err);
}

static int record_elsewhere(scene *s) {
  return mf_tensor_record(s->t, s->b, MF_READ, &err);
}

static int record_there(scene *s) {
  return mf_tensor_record(s->t, s->a, MF_READ, &err);
}

static int export_elsewhere(scene *s) {
  const mf_request request = {.stream = s->b};
  DLManagedTensorVersioned *out;
  const int rc = mf_tensor_export_to(s->t, &request, &out, &err);
  if (rc == MF_OK) out->deleter(out);
  return rc;
}

static int call_the_deleter(scene *s) {
  s->given->deleter(s->given);
  s->given = NULL;
  return MF_OK;
}

typedef int (*user)(scene *s);

static const user users[] = {acquire_there, acquire_elsewhere, acquire_for_the_host, record_elsewhere,
                             record_there,  export_elsewhere,  call_the_deleter};

typedef struct meeting {
  scene *s;
  user use;
  pthread_t thread;
  int rc;
  int until; /* how far the user is when the operation goes on */
  int seen;  /* of the user, while the operation was at its driver call */
} meeting;

static void *use_it(void *arg) {
  meeting *m = arg;
  is_user = true;
  m->rc = m->use(m->s);
  atomic_store(&progress_of_user, DONE);
  return NULL;
}

static void meet(void *ctx) {
  meeting *m = ctx;
  atomic_store(&progress_of_user, NOT_YET);
  if (pthread_create(&m->thread, NULL, use_it, m) != 0) abort();
  while ((m->seen = atomic_load(&progress_of_user)) < m->until) sched_yield();
}

static void play(const operation *o, user use_of_it) {
  scene s = {.a = stream_new(0), .b = stream_new(0), .host = create((DLDevice){kDLCPU, 0}, NBYTES)};
  use_stream(0, s.a);
  s.t = create(gpu(0), NBYTES);
  fill(s.host, LATE);
  const mf_request request = {.stream = s.b};
  OK(mf_tensor_export_to(s.t, &request, &s.given, &err));
  other_fill(0, s.given->dl_tensor.data, o->run == copy_from_it ? LATE : EARLY, NBYTES, s.b);
  if (use_of_it == acquire_there) { /* whose usual case is that it is alone */
    call_the_deleter(&s);
    fill(s.t, LATE);
  }
  meeting m = {.s = &s, .use = use_of_it, .until = WAITS};
  sim_ask_at(o->cuda, o->hip, 1, meet, &m);
  OK(o->run(&s));
  assert_int_equal(pthread_join(m.thread, NULL), 0);
  assert_int_equal(m.rc, MF_OK);
  assert_int_not_equal(m.seen, DONE);
  if (s.given != NULL) call_the_deleter(&s);
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(s.t, LATE);
  expect_filled(s.host, LATE);
  mf_tensor_release(s.t);
  mf_tensor_release(s.host);
  stream_end(0, s.a);
  stream_end(0, s.b);
}

static void whoever_comes_meanwhile_waits(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(operations); i++)
    for (size_t k = 0; k < COUNT(users); k++) play(&operations[i], users[k]);
}

/* A copy through staging buffers keeps the record for long, and a thread that makes one after the other has it nearly
 * always. */
static void whoever_sleeps_is_next(void **state) {
  (void)state;
  needs_simulator();
  const mf_scalar late = {.kind = MF_KIND_UINT, .u = LATE};
  scene s = {.a = stream_new(0), .b = stream_new(0)};
  use_stream(0, s.a);
  s.t = create(gpu(0), NBYTES);
  gives_way = is_through = false;
  naps_for_nobody = 0;
  meeting m = {.s = &s, .use = acquire_elsewhere, .until = SLEEPS};
  sim_ask_at("cuMemsetD8Async", "hipMemsetD8Async", 1, meet, &m);
  OK(mf_tensor_fill(s.t, &late, &err));
  OK(mf_tensor_record(s.t, s.a, MF_READ, &err));
  is_through = true;
  assert_int_equal(pthread_join(m.thread, NULL), 0);
  assert_int_equal(m.rc, MF_OK);
  assert_true(gives_way);
  assert_int_equal(naps_for_nobody, 0);
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(s.t, LATE);
  mf_tensor_release(s.t);
  stream_end(0, s.a);
  stream_end(0, s.b);
}

static int copy_within_the_device(scene *s) {
  return mf_tensor_copy(s->copy, s->t, &err);
}

static int fill_there(scene *s) {
  return try_fill(s->t, EARLY);
}

/* Whoever has found the tensor valid, and waits for the unmapping to end, comes too late: OpenGL has the buffer. */
static void whoever_waits_for_an_unmapping_uses_it_no_more(void **state) {
  static const user late[] = {acquire_there,    acquire_elsewhere, acquire_for_the_host, record_there,
                              record_elsewhere, export_elsewhere,  fill_there,           copy_within_the_device};
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  for (size_t i = 0; i < COUNT(late); i++) {
    scene s = {.a = stream_new(0), .b = stream_new(0)};
    s.t = mapped(b, s.a);
    OK(mf_tensor_create(mf_tensor_dltensor(s.t), 0, &s.copy, &err));
    use_stream(0, s.b);
    fill(s.t, LATE); /* for which the unmapping waits, and has the record meanwhile */
    meeting m = {.s = &s, .use = late[i], .until = WAITS};
    sim_ask_at("cuStreamWaitEvent", "hipStreamWaitEvent", 1, meet, &m);
    (void)mf_tensor_retain(s.t); /* the user's */
    assert_int_equal(unmapped(b), 1);
    assert_int_equal(pthread_join(m.thread, NULL), 0);
    assert_int_not_equal(m.seen, DONE);
    assert_int_equal(m.rc, MF_ECLOSED);
    mf_tensor_release(s.t);
    use_stream(0, MF_STREAM_DEFAULT);
    expect_floats(buffer, LATE);
    mf_tensor_release(s.copy);
    stream_end(0, s.a);
    stream_end(0, s.b);
  }
  OK(mf_gl_buffer_close(b, &err));
  gl_delete(buffer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(whoever_comes_meanwhile_waits),
      SPEC(whoever_sleeps_is_next),
      SPEC(whoever_waits_for_an_unmapping_uses_it_no_more),
  };
  return RUN(tests);
}
