/* hip_context.c: opens the HIP runtime, enters the device that its calls are made on, and turns the result of a call
 * into a status. It must not know what the calls are made for.
 *
 * Invariant: the calling thread's current device after leave is the one before enter, whatever failed between. And a
 * failure of ours does not stay behind as the thread's last error, which the program would take for one of its calls:
 * HIP puts each error there, over one that the program had not looked at (HIP documentation, "Error handling"). */
#include "driver/hip.h"

mf__hip_table mf__hip;

static const mf__symbol symbols[] = {
#define SYMBOL(result, name, params) {#name, 0, false, offsetof(mf__hip_table, name)},
    MF__HIP_REQUIRED(SYMBOL)
#undef SYMBOL
#define SYMBOL(result, name, params) {#name, 0, true, offsetof(mf__hip_table, name)},
    MF__HIP_OPTIONAL(SYMBOL)
#undef SYMBOL
};

int32_t mf__hip_version;
_Thread_local int32_t mf__hip_ordinal MF__TLS;

/* Takes the thread's last error away if it is the one that a call of ours has just left there. */
void mf__hip_clear(hipError_t code) {
  if (mf__hip.hipPeekAtLastError() == code) (void)mf__hip.hipGetLastError();
}

int mf__hip_answer(hipError_t code, const char *call, mf_error *err) {
  if (code == hipSuccess) return MF_OK;
  const char *text = mf__hip.hipGetErrorString(code);
  mf__hip_clear(code);
  return mf__fail_driver(err, mf__driver_status(code), code, call, text != NULL ? text : "unknown to this runtime");
}

/* "Not ready" is no failure of a query. */
int mf__hip_answer_done(hipError_t code, const char *call, bool *done, mf_error *err) {
  *done = code == hipSuccess;
  if (code != hipErrorNotReady) return mf__hip_answer(code, call, err);
  mf__hip_clear(code);
  return MF_OK;
}

/* Some runtimes give the low 32 bits of a size that an int cannot hold. What is not positive then limits nothing. */
static int ask_pitches(const mf__driver *driver, mf_error *err) {
  int rc = MF_OK;
  for (int32_t i = 0; rc == MF_OK && i < driver->count; i++) {
    int pitch = INT32_MAX;
    rc = MF__HIP_ASK(hipDeviceGetAttribute, (&pitch, hipDeviceAttributeMaxPitch, i));
    if (pitch > 0) mf__pitch_limit(pitch);
  }
  return rc;
}

static int start(mf__driver *driver, mf_error *err) {
  enum { MINOR = 100000 };
  const mf__symbols wanted = {symbols, sizeof symbols / sizeof *symbols, mf__driver_symbol, driver->library};
  int number = 0;
  int rc = mf__driver_fill(driver, &wanted, &mf__hip, err);
  if (rc != MF_OK) return rc;
  rc = MF__HIP_ASK(hipInit, (0));
  if (rc == MF_OK) rc = MF__HIP_ASK(hipRuntimeGetVersion, (&number));
  if (rc == MF_OK) rc = MF__HIP_ASK(hipGetDeviceCount, (&driver->count));
  if (rc == MF_OK && driver->count <= 0)
    return mf__fail(err, MF_EDEVICE, "the HIP runtime %s finds no device", driver->file);
  mf__hip_version = number / MINOR;
  if (rc == MF_OK) rc = ask_pitches(driver, err);
  if (rc != MF_OK) err->status = MF_EDEVICE;
  return rc == MF_OK ? MF_OK : MF_EDEVICE;
}

static const char *const files[] = {MF__FILE("libamdhip64.so.7", "amdhip64_7.dll"),
                                    MF__FILE("libamdhip64.so.6", "amdhip64_6.dll"),
                                    MF__FILE("libamdhip64.so.5", "amdhip64.dll"),
                                    MF__FILE("libamdhip64.so", NULL), NULL};
mf__driver mf__hip_driver = MF__DRIVER("HIP", "rocm", "MOONFERRY_HIP_LIBRARY", files, start);

int mf__hip_count(int32_t *out, mf_error *err) {
  return mf__driver_count(&mf__hip_driver, out, err);
}

bool mf__hip_usable(void) {
  return mf__driver_usable(&mf__hip_driver);
}

/* Makes a device current, or again the one that was; a second attempt is for a failure that struck once. */
static void restore(int device) {
  for (int attempt = 0; attempt < 2; attempt++) {
    const hipError_t code = mf__hip.hipSetDevice(device);
    if (code == hipSuccess) return;
    mf__hip_clear(code);
  }
}

int mf__hip_make_current(int32_t ordinal, mf__entered *before, mf_error *err) {
  int device = 0;
  int rc = MF__HIP_ASK(hipGetDevice, (&device));
  if (rc != MF_OK) return rc;
  *before = (mf__entered){(void *)(intptr_t)device, mf__hip_ordinal, device != ordinal};
  if (before->changed) rc = MF__HIP_ASK(hipSetDevice, (ordinal));
  if (rc == MF_OK) mf__hip_ordinal = ordinal;
  if (rc != MF_OK) restore(device);
  return rc;
}

void mf__hip_make_former(const mf__entered *before) {
  mf__hip_ordinal = before->ordinal;
  if (before->changed && mf__hip_usable()) restore((int)(intptr_t)before->context);
}

int mf__hip_enter(int32_t ordinal, mf__entered *before, mf_error *err) {
  int rc = mf__driver_enter(&mf__hip_driver, ordinal, err);
  if (rc != MF_OK) return rc;
  rc = mf__hip_make_current(ordinal, before, err);
  if (rc != MF_OK) mf__driver_leave(&mf__hip_driver, ordinal);
  return rc;
}

void mf__hip_leave(const mf__entered *before) {
  const int32_t left = mf__hip_ordinal;
  mf__hip_make_former(before);
  mf__driver_leave(&mf__hip_driver, left);
}

int mf__hip_current(int32_t *ordinal, mf_error *err) {
  int device = 0;
  const int rc = MF__HIP_ASK(hipGetDevice, (&device));
  *ordinal = device;
  return rc;
}
