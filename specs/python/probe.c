/* probe.c: what the Python specs need in C: a deleter and a capsule destructor that count, and a way to
 * call a deleter where no interpreter is, on a foreign thread and after Py_Finalize.
 *
 * It sees DLPack structs only as bytes at known offsets, so that it needs no header, and it never frees
 * or changes one: the specs own them and can look at them afterwards. It must not know Moonferry, whose
 * ledger it is handed as a pointer. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEGACY_CTX = 48, LEGACY_DELETER = 56, VERSIONED_CTX = 8, VERSIONED_DELETER = 16 };

extern int PyCapsule_IsValid(void *capsule, const char *name);
extern void *PyCapsule_GetPointer(void *capsule, const char *name);
extern const char *PyCapsule_GetName(void *capsule);
extern int Py_IsInitialized(void);

extern char _Py_NoneStruct;
extern void Py_IncRef(void *object);
extern void *PyExc_BufferError;
extern void *PyExc_KeyboardInterrupt;
extern void *PyExc_MemoryError;
extern void PyErr_SetString(void *type, const char *message);

typedef void (*delete_fn)(void *);
typedef void (*ledger_fn)(int64_t *);

static void *field(void *managed, size_t offset) {
  void *value;
  memcpy(&value, (char *)managed + offset, sizeof value);
  return value;
}

static void count(void *counter) {
  atomic_fetch_add((_Atomic int64_t *)counter, 1);
}

/* Waits for the semaphore that its context is. */
void probe_delete_waiting(void *managed) {
  sem_wait(field(managed, LEGACY_CTX));
}

void probe_delete_legacy(void *managed) {
  count(field(managed, LEGACY_CTX));
}

void probe_delete_versioned(void *managed) {
  count(field(managed, VERSIONED_CTX));
}

static void delete_at(void *managed, size_t offset) {
  void *bits = field(managed, offset);
  delete_fn fn;
  memcpy(&fn, &bits, sizeof fn);
  if (fn != NULL) fn(managed);
}

/* The destructor that the standard asks of a producer's capsule: it deletes only what nobody took. */
void probe_destroy_capsule(void *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    delete_at(PyCapsule_GetPointer(capsule, "dltensor"), LEGACY_DELETER);
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    delete_at(PyCapsule_GetPointer(capsule, "dltensor_versioned"), VERSIONED_DELETER);
  }
}

/* One that deletes whatever the name is, as some libraries' did. */
void probe_destroy_always(void *capsule) {
  delete_at(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)), VERSIONED_DELETER);
}

static int64_t deleted_on_thread;

static void *delete_on_this_thread(void *managed) {
  delete_at(managed, VERSIONED_DELETER);
  deleted_on_thread++;
  return NULL;
}

/* How many deleters came back to the thread that probe_delete_on_thread made. */
int64_t probe_deleted_on_thread(void) {
  return deleted_on_thread;
}

/* Calls the deleter of a versioned struct on a thread that Python has never seen, and waits for it. */
int probe_delete_on_thread(void *managed) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, delete_on_this_thread, managed) != 0) return -1;
  return pthread_join(thread, NULL);
}

/* The owning slot of a foreign exchange table, well behaved and not; it hands out what probe_offer was given. */
static void *offered;
static int64_t calls;

void probe_offer(void *managed) {
  offered = managed;
  calls = 0;
}

int64_t probe_calls(void) {
  return calls;
}

int probe_slot_gives(void *object, void **out) {
  (void)object;
  calls++;
  *out = offered;
  return 0;
}

static int fail(void *type, void **out) {
  calls++;
  *out = NULL;
  PyErr_SetString(type, "the slot refuses");
  return -1;
}

int probe_slot_raises(void *object, void **out) {
  (void)object;
  return fail(PyExc_BufferError, out);
}

int probe_slot_has_no_memory(void *object, void **out) {
  (void)object;
  return fail(PyExc_MemoryError, out);
}

int probe_slot_is_interrupted(void *object, void **out) {
  (void)object;
  return fail(PyExc_KeyboardInterrupt, out);
}

int probe_work_has_no_memory(int32_t type, int32_t id, void **stream) {
  (void)type;
  (void)id;
  return fail(PyExc_MemoryError, stream);
}

int probe_work_is_interrupted(int32_t type, int32_t id, void **stream) {
  (void)type;
  (void)id;
  return fail(PyExc_KeyboardInterrupt, stream);
}

int probe_slot_fails_silently(void *object, void **out) {
  (void)object;
  (void)out;
  calls++;
  return -1;
}

int probe_slot_gives_nothing(void *object, void **out) {
  (void)object;
  calls++;
  *out = NULL;
  return 0;
}

/* What takes a struct, says whether it did, and calls the deleter so many times before that. */
static int take(void *managed, void **out, int deletes, int rc) {
  for (int i = 0; i < deletes; i++) ((delete_fn)field(managed, VERSIONED_DELETER))(managed);
  if (rc == 0) Py_IncRef(&_Py_NoneStruct);
  *out = rc == 0 ? &_Py_NoneStruct : NULL;
  return rc;
}

int probe_take_refuses(void *managed, void **out) {
  return take(managed, out, 0, -1);
}

int probe_take_refuses_and_deletes(void *managed, void **out) {
  return take(managed, out, 1, -1);
}

int probe_take_refuses_and_deletes_twice(void *managed, void **out) {
  return take(managed, out, 2, -1);
}

int probe_take_gives_and_deletes(void *managed, void **out) {
  return take(managed, out, 1, 0);
}

static struct {
  void *managed;
  ledger_fn ledger;
  pthread_t thread;
  int threaded;
} late;

static void report(void) {
  int64_t ledger[4];
  late.ledger(ledger);
  printf("initialized=%d ledger=%lld,%lld,%lld,%lld\n", Py_IsInitialized(), (long long)ledger[0], (long long)ledger[1],
         (long long)ledger[2], (long long)ledger[3]);
  fflush(stdout);
}

static void at_exit(void) {
  if (late.threaded) {
    pthread_join(late.thread, NULL);
  } else {
    delete_at(late.managed, VERSIONED_DELETER);
  }
  report();
}

static void *wait_for_the_end(void *managed) {
  while (Py_IsInitialized()) usleep(1000);
  delete_at(managed, VERSIONED_DELETER);
  return NULL;
}

/* Deletes a versioned struct when the process exits, which is after Py_Finalize, from the main thread or
 * from a foreign one, and prints what is then left in the ledger. */
int probe_delete_at_exit(void *managed, ledger_fn ledger, int threaded) {
  late.managed = managed;
  late.ledger = ledger;
  late.threaded = threaded;
  if (threaded && pthread_create(&late.thread, NULL, wait_for_the_end, managed) != 0) return -1;
  return atexit(at_exit);
}
