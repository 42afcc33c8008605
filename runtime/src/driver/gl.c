/* gl.c: OpenGL's sync objects as fences of host memory. OpenGL is not opened here: the program says where its functions
 * are, and no header of OpenGL's is needed.
 *
 * Invariant: a function of OpenGL's is called only while the context that the fences are of is current on the calling
 * thread. It must not know what memory a fence is for. */
#include "driver/driver.h"

struct mf_gl {
  _Atomic int64_t refs; /* the program's, and one for each fence */
  _Atomic int32_t ended;
  mf_gl_calls call;
  void *context;
};

/* OpenGL 4.6 core, section 4.1, table 4.1 and 4.1.1 */
#define SYNC_GPU_COMMANDS_COMPLETE 0x9117u
#define SYNC_FLUSH_COMMANDS_BIT 1u
#define ALREADY_SIGNALED 0x911Au
#define TIMEOUT_EXPIRED 0x911Bu
#define CONDITION_SATISFIED 0x911Cu

int mf_gl_create(const mf_gl_calls *calls, mf_gl **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(calls);
  int rc = MF_OK;
  if (calls->fence_sync == NULL || calls->client_wait_sync == NULL || calls->delete_sync == NULL ||
      calls->current_context == NULL)
    rc = mf__fail(err, MF_EINVAL, "a function is NULL; fence_sync, client_wait_sync, delete_sync and current_context "
                                  "expected");
  void *context = rc == MF_OK ? calls->current_context() : NULL;
  if (rc == MF_OK && context == NULL)
    rc = mf__fail(err, MF_EINVAL, "no context of OpenGL is current on thread %lld", (long long)mf__thread_id());
  mf_gl *gl = rc == MF_OK ? mf__alloc(sizeof *gl) : NULL;
  if (rc == MF_OK && gl == NULL) rc = mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *gl);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  atomic_init(&gl->refs, 1);
  atomic_init(&gl->ended, 0);
  gl->call = *calls;
  gl->context = context;
  *out = gl;
  return MF_OK;
}

void mf_gl_release(mf_gl *gl) {
  if (gl != NULL && mf__refs_drop(&gl->refs)) mf__free(gl, sizeof *gl);
}

void mf_gl_end(mf_gl *gl) {
  if (gl != NULL) atomic_store_explicit(&gl->ended, 1, memory_order_release);
}

static bool has_ended(const mf_gl *gl) {
  return atomic_load_explicit(&gl->ended, memory_order_acquire) != 0;
}

static void *sync_of(uint64_t value) {
  return (void *)(uintptr_t)value;
}

static int32_t gl_wait(void *ctx, uint64_t value, int64_t ns) {
  mf_gl *gl = ctx;
  if (has_ended(gl)) return 0;
  if (gl->call.current_context() != gl->context) return -1;
  /* Without the flush, what nobody flushes is never reached. */
  const uint32_t said = gl->call.client_wait_sync(sync_of(value), SYNC_FLUSH_COMMANDS_BIT, (uint64_t)ns);
  if (said == ALREADY_SIGNALED || said == CONDITION_SATISFIED) return 0;
  return said == TIMEOUT_EXPIRED ? 1 : -2;
}

/* Where the context is not current, as where a collector of garbage drops a fence, its sync object goes with it. */
static void gl_drop(void *ctx, uint64_t value) {
  mf_gl *gl = ctx;
  if (!has_ended(gl) && gl->call.current_context() == gl->context) gl->call.delete_sync(sync_of(value));
  mf_gl_release(gl);
}

int mf_gl_fence(mf_gl *gl, mf_fence *out, mf_error *err) {
  MF__NEED(gl);
  MF__NEED(out);
  void *sync = NULL;
  int rc = MF_OK;
  *out = (mf_fence){0};
  if (has_ended(gl)) rc = mf__fail(err, MF_EINVAL, "the context has ended (mf_gl_end)");
  else if (gl->call.current_context() != gl->context)
    rc = mf__fail(err, MF_EINVAL, "the context is not current on this thread, %lld", (long long)mf__thread_id());
  if (rc == MF_OK) sync = gl->call.fence_sync(SYNC_GPU_COMMANDS_COMPLETE, 0);
  if (rc == MF_OK && sync == NULL) rc = mf__fail_driver(err, MF_EDRIVER, -1, "glFenceSync", "no sync object");
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  atomic_fetch_add_explicit(&gl->refs, 1, memory_order_relaxed);
  *out = (mf_fence){.ctx = gl, .value = (uint64_t)(uintptr_t)sync, .wait = gl_wait, .drop = gl_drop};
  return MF_OK;
}
