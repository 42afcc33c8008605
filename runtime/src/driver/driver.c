/* driver.c: does what is the same for every GPU driver: opens its library once and keeps the reason when that fails,
 * finds its functions, and knows after a fork that the driver is lost. It must not know the calls of any driver.
 *
 * Invariant: a table is complete before its driver is called open, and a driver that was open before a fork is
 * never open in the child, because a driver's threads, mappings and locks do not survive one. */
#include "driver/driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSED, OPEN, REFUSED, FORKED };

/* The drivers that were asked for; each at most once. */
static mf__driver *known[MF__NBACKENDS + 1]; /* and hiprtc */
static int32_t nknown;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void) {
  pthread_mutex_lock(&known_lock);
  for (int32_t i = 0; i < nknown; i++) pthread_mutex_lock(&known[i]->lock);
}

static void unlock_all(void) {
  for (int32_t i = nknown; i-- > 0;) pthread_mutex_unlock(&known[i]->lock);
  pthread_mutex_unlock(&known_lock);
}

static void in_child(void) {
  for (int32_t i = 0; i < nknown; i++)
    if (atomic_load(&known[i]->state) == OPEN) atomic_store(&known[i]->state, FORKED);
  unlock_all();
}

static void watch_forks(void) {
  mf__at_fork(before_fork, unlock_all, in_child);
}

/* Puts the driver into the list before its lock is ever taken. */
static void remember(mf__driver *driver) {
  bool there = false;
  pthread_once(&fork_once, watch_forks);
  pthread_mutex_lock(&known_lock);
  for (int32_t i = 0; i < nknown; i++) there = there || known[i] == driver;
  if (!there) known[nknown++] = driver;
  pthread_mutex_unlock(&known_lock);
}

/* Keeps the message that a file is absent only where there is no other one, which says more. */
static void *open_file(mf__driver *driver, const char *file, mf_error *err) {
  char why[sizeof err->message];
  bool absent;
  void *library = mf__library_open(file, why, sizeof why, &absent);
  driver->file = file;
  driver->absent = driver->absent && absent;
  if (library != NULL) return library;
  if (err->status == MF_OK || !absent)
    (void)mf__fail(err, MF_EDEVICE, "there is no %s driver here: %s (%s %s)", driver->name, why, driver->variable,
                   mf__is_privileged() ? "is ignored: this program has raised privileges" : "names another file");
  return NULL;
}

static int open_library(mf__driver *driver, mf_error *err) {
  /* A program with raised privileges loads no library that its caller names. */
  const char *chosen = mf__environment(driver->variable);
  driver->absent = true;
  if (chosen != NULL && *chosen != '\0') {
    driver->library = open_file(driver, chosen, err);
  } else {
    for (const char *const *file = driver->files; *file != NULL && driver->library == NULL; file++)
      driver->library = open_file(driver, *file, err);
  }
  return driver->library != NULL ? MF_OK : MF_EDEVICE;
}

static int32_t start(mf__driver *driver) {
  int rc = open_library(driver, &driver->why);
  if (rc == MF_OK) rc = driver->start(driver, &driver->why);
  if (driver->count > MF__MAX_ORDINALS) driver->count = MF__MAX_ORDINALS;
  /* Registered after the driver's handlers, so that it is called before them (C11, 7.22.4.2). */
  if (rc == MF_OK) mf__at_exit(mf__trim_at_exit);
  return rc == MF_OK ? OPEN : REFUSED;
}

static int refuse(const mf__driver *driver, int32_t state, mf_error *err) {
  if (state == FORKED)
    return mf__fail(err, MF_EDEVICE,
                    "this process was forked after the %s driver was started, which does not work in a child: start a "
                    "new process instead (in Python multiprocessing: \"spawn\")",
                    driver->name);
  if (err != NULL) *err = driver->why;
  return driver->why.status;
}

int mf__driver_open(mf__driver *driver, mf_error *err) {
  int32_t state = atomic_load_explicit(&driver->state, memory_order_acquire);
  if (state == OPEN) return MF_OK;
  if (state == CLOSED) {
    remember(driver);
    const int before = mf__uncancelled_begin();
    pthread_mutex_lock(&driver->lock);
    state = atomic_load_explicit(&driver->state, memory_order_relaxed);
    if (state == CLOSED) atomic_store_explicit(&driver->state, state = start(driver), memory_order_release);
    pthread_mutex_unlock(&driver->lock);
    mf__uncancelled_end(before);
  }
  return state == OPEN ? MF_OK : refuse(driver, state, err);
}

bool mf__driver_usable(const mf__driver *driver) {
  return atomic_load_explicit(&driver->state, memory_order_acquire) == OPEN;
}

mf__function mf__driver_symbol(void *library, const char *name, int32_t version) {
  mf__function function = NULL;
  void *found = mf__library_symbol(library, name);
  (void)version;
  memcpy(&function, &found, sizeof function);
  return function;
}

int mf__driver_fill(const mf__driver *driver, const mf__symbols *symbols, void *table, mf_error *err) {
  for (size_t i = 0; i < symbols->count; i++) {
    const mf__symbol *symbol = &symbols->list[i];
    const mf__function found = symbols->lookup(symbols->from, symbol->name, symbol->version);
    if (found == NULL && !symbol->optional)
      return mf__fail(err, MF_EDEVICE, "the %s driver %s has no %s, which is needed", driver->name, driver->file,
                      symbol->name);
    memcpy((char *)table + symbol->offset, &found, sizeof found);
  }
  return MF_OK;
}

int mf__driver_status(int32_t code) {
  enum { OUT_OF_MEMORY = 2, FIRST_OF_CAPTURE = 900, LAST_OF_CAPTURE = 908 };
  if (code == 0) return MF_OK;
  if (code == OUT_OF_MEMORY) return MF_ENOMEM;
  return code >= FIRST_OF_CAPTURE && code <= LAST_OF_CAPTURE ? MF_ECAPTURE : MF_EDRIVER;
}

int mf__driver_handle_check(mf_stream stream, mf_error *err) {
  enum { FIRST_PAGE = 4096, ALIGNED = 8 };
  if (stream >= FIRST_PAGE && stream % ALIGNED == 0) return MF_OK;
  return mf__fail(err, MF_EINVAL, "stream is %lld; 1, 2 or a stream's handle expected", (long long)stream);
}

int mf__driver_explain(mf_error *err, int32_t status, const char *format, ...) {
  char meaning[sizeof err->message];
  va_list args;
  if (err == NULL) return status;
  const mf_error said = *err;
  va_start(args, format);
  vsnprintf(meaning, sizeof meaning, format, args);
  va_end(args);
  (void)mf__fail(err, status, "%s: %s", meaning, said.message);
  err->driver_code = said.driver_code;
  err->call = said.call;
  return status;
}

int mf__driver_dead_stream(mf_stream stream, int32_t code, int rc, mf_error *err) {
  enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, CONTEXT_IS_DESTROYED = 709 };
  if (code != INVALID_VALUE && code != INVALID_CONTEXT && code != INVALID_HANDLE && code != CONTEXT_IS_DESTROYED)
    return rc;
  return mf__driver_explain(err, MF_EINVAL, "stream is %#llx, which is no living stream", (unsigned long long)stream);
}

int mf__driver_implicit(int rc, int32_t code, mf_error *err) {
  enum { STREAM_CAPTURE_IMPLICIT = 906 };
  if (code != STREAM_CAPTURE_IMPLICIT) return rc;
  return mf__driver_explain(err, MF_ECAPTURE,
                            "the legacy default stream cannot be used while a blocking stream is being captured; "
                            "acquire what it used for the host (MF_STREAM_HOST) before");
}

int mf__driver_captured(mf_stream stream, bool invalidated, const uint64_t *id, mf_error *err) {
  const unsigned long long shown = (unsigned long long)stream;
  if (invalidated)
    return mf__fail(err, MF_ECAPTURE,
                    "the capture of stream %#llx was broken by an earlier call; it must be ended first", shown);
  if (*id == 0)
    return mf__fail(err, MF_ECAPTURE,
                    "stream %#llx is being captured, and this driver cannot say into which graph", shown);
  return MF_OK;
}

int mf__driver_count(mf__driver *driver, int32_t *out, mf_error *err) {
  const int rc = mf__driver_open(driver, err);
  *out = rc == MF_OK ? driver->count : 0;
  return rc;
}

int mf__driver_enter(mf__driver *driver, int32_t ordinal, mf_error *err) {
  const int rc = mf__driver_open(driver, err);
  if (rc != MF_OK) return rc;
  if (ordinal < 0 || ordinal >= driver->count)
    return mf__fail(err, MF_EDEVICE, "device_id is %d; 0 to %d expected for %s", ordinal, driver->count - 1,
                    driver->device);
  mf__gate_enter(&driver->gates[ordinal]);
  return MF_OK;
}

void mf__driver_leave(mf__driver *driver, int32_t ordinal) {
  mf__gate_leave(&driver->gates[ordinal]);
}

enum { UNDECIDED, DECIDED };

/* Guards the decision about pools, which is made once for each device. */
static pthread_mutex_t pooling_lock = PTHREAD_MUTEX_INITIALIZER;

int mf__driver_pool(mf__pooling *p, int32_t ordinal, mf__pool_create_fn create, void **out, mf_error *err) {
  int rc = MF_OK;
  if (atomic_load_explicit(&p->state, memory_order_acquire) == UNDECIDED) {
    pthread_mutex_lock(&pooling_lock);
    if (atomic_load_explicit(&p->state, memory_order_relaxed) == UNDECIDED) {
      rc = create(ordinal, &p->pool, err);
      if (rc == MF_OK) atomic_store_explicit(&p->state, DECIDED, memory_order_release);
    }
    pthread_mutex_unlock(&pooling_lock);
  }
  *out = rc == MF_OK ? p->pool : NULL;
  return rc;
}

void *mf__driver_pool_made(mf__pooling *p) {
  return atomic_load_explicit(&p->state, memory_order_acquire) == DECIDED ? p->pool : NULL;
}

void *mf__driver_pool_forget(mf__pooling *p) {
  void *pool = mf__driver_pool_made(p);
  atomic_store_explicit(&p->state, UNDECIDED, memory_order_release);
  return pool;
}

static int relax(mf__relaxation *r, mf__exchange_fn exchange, mf_error *err) {
  enum { RELAXED = 2 };
  int mode = RELAXED;
  const int rc = exchange(&mode, err);
  if (rc != MF_OK && mode != RELAXED) (void)exchange(&mode, NULL); /* it was done all the same */
  if (rc != MF_OK) return rc;
  if (!r->owed) r->former = mode;
  r->depth = 1;
  return MF_OK;
}

static int give_mode_back(mf__relaxation *r, mf__exchange_fn exchange, mf_error *err) {
  int mode = r->former;
  const int rc = exchange(&mode, err);
  mode = r->former;
  r->owed = rc != MF_OK && exchange(&mode, NULL) != MF_OK;
  r->depth = 0;
  return rc;
}

int mf__driver_relax(mf__relaxation *r, bool on, mf__exchange_fn exchange, mf_error *err) {
  if (on && r->depth == 0) return relax(r, exchange, err);
  if (!on && r->depth == 1) return give_mode_back(r, exchange, err);
  r->depth += on ? 1 : -1;
  return MF_OK;
}

mf__rows mf__driver_rows(const mf__block_copy *job, int32_t unit) {
  mf__rows rows = {job->dst, (size_t)job->width, (size_t)job->height, (size_t)job->dst_pitch, (size_t)job->dst_slice,
                   job->depth};
  if (rows.height == 1 && rows.depth > 1) {
    rows.height = (size_t)rows.depth;
    rows.pitch = rows.slice;
    rows.depth = 1;
  }
  if (rows.depth > 1 && rows.slice == rows.height * rows.pitch) {
    rows.height *= (size_t)rows.depth;
    rows.depth = 1;
  }
  if (rows.height > 1 && rows.pitch == rows.width * (size_t)unit) {
    rows.width *= rows.height;
    rows.height = 1;
  }
  return rows;
}

int mf__driver_array_dtype(int32_t format, DLDataType *out, mf_error *err) {
  static const struct {
    uint8_t number, code, bits;
  } formats[] = {{0x01, kDLUInt, 8}, {0x02, kDLUInt, 16}, {0x03, kDLUInt, 32},  {0x08, kDLInt, 8},
                 {0x09, kDLInt, 16}, {0x0a, kDLInt, 32},  {0x10, kDLFloat, 16}, {0x20, kDLFloat, 32}};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].number == format) {
      *out = (DLDataType){formats[i].code, formats[i].bits, 1};
      return MF_OK;
    }
  return mf__fail(err, MF_EDTYPE, "the texture's array has format %#x; integers of 8 to 32 bits, or floats, expected",
                  (unsigned)format);
}

int mf__driver_copy_fd(int fd, int *out, mf_error *err) {
  *out = mf__fd_copy(fd);
  return *out >= 0 ? MF_OK : mf__fail(err, MF_EINVAL, "fd is %d; an open file descriptor expected", fd);
}
