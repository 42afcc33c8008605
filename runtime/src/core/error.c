/* error.c: names the statuses and fills mf_error. It keeps no state: an error lives in the caller's struct or nowhere.
 * It must not allocate, so that running out of memory can be reported. */
#include "core/core.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const status_names[] = {
    "MF_OK",        "MF_EINVAL",  "MF_ENOMEM", "MF_EOVERFLOW", "MF_EBOUNDS", "MF_EREADONLY",
    "MF_ECLOSED",   "MF_EDTYPE",  "MF_ELAYOUT", "MF_EDEVICE",  "MF_EVERSION", "MF_EDRIVER",
    "MF_ECAPTURE",  "MF_ETIMEOUT",
};

const char *mf_status_name(int32_t status) {
  const int64_t index = -(int64_t)status;
  const int64_t count = (int64_t)(sizeof status_names / sizeof status_names[0]);
  return index >= 0 && index < count ? status_names[index] : "MF_E?";
}

int mf__fail(mf_error *err, int32_t status, const char *format, ...) {
  if (err != NULL) {
    va_list args;
    err->status = status;
    err->driver_code = 0;
    err->call = "";
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
  }
  return status;
}

int mf__fail_driver(mf_error *err, int32_t status, int32_t code, const char *call, const char *text) {
  (void)mf__fail(err, status, "%s answered %d: %s", call, code, text);
  if (err == NULL) return status;
  err->driver_code = code;
  err->call = call;
  return status;
}

int mf__missing(const char *argument, const char *call, mf_error *err) {
  return mf__end(mf__fail(err, MF_EINVAL, "%s is NULL; a valid pointer expected", argument), call, err);
}

int mf__end(int rc, const char *call, mf_error *err) {
  if (rc != MF_OK && err != NULL && err->driver_code == 0) err->call = call;
  return rc;
}
