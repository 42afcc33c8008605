/* stream_number.c: translates the numbers of the Python array protocol to streams and back, by one row for each device
 * type (array API standard, __dlpack__; DLPack's Python specification). It must not know the order of streams. */
#include "exchange/exchange.h"

static _Atomic int32_t none_meaning;

int mf_stream_none_set(int32_t meaning, mf_error *err) {
  if (meaning >= MF_NONE_DEFAULT && meaning <= MF_NONE_REFUSE) {
    atomic_store(&none_meaning, meaning);
    return MF_OK;
  }
  const int rc = mf__fail(err, MF_EINVAL, "meaning is %d; 0 (default), 1 (no order) or 2 (refuse) expected", meaning);
  return mf__end(rc, __func__, err);
}

int32_t mf_stream_none(void) {
  return atomic_load(&none_meaning);
}

typedef enum meaning { REFUSED, HOST, NO_ORDER, DEFAULT, PER_THREAD, HANDLE, SETTING } meaning;

typedef struct number_row {
  int32_t device_type;
  uint8_t none, minus_one, zero, one, two, above; /* a meaning */
} number_row;

static const number_row numbers[] = {
    {kDLCPU, HOST, HOST, REFUSED, REFUSED, REFUSED, REFUSED},
    {kDLCUDA, SETTING, NO_ORDER, REFUSED, DEFAULT, PER_THREAD, HANDLE},
    {kDLCUDAHost, HOST, NO_ORDER, REFUSED, DEFAULT, PER_THREAD, HANDLE},
    {kDLCUDAManaged, HOST, NO_ORDER, REFUSED, DEFAULT, PER_THREAD, HANDLE},
    {kDLROCM, SETTING, NO_ORDER, DEFAULT, REFUSED, REFUSED, HANDLE},
    {kDLROCMHost, HOST, NO_ORDER, DEFAULT, REFUSED, REFUSED, HANDLE},
};

#define NNUMBERS (sizeof numbers / sizeof numbers[0])

static const number_row *row_of(const DLDevice *device) {
  for (size_t i = 0; i < NNUMBERS; i++)
    if (numbers[i].device_type == (int32_t)device->device_type) return &numbers[i];
  return NULL;
}

static meaning meaning_of(const number_row *row, int64_t number) {
  uint8_t m = row->above;
  if (number == MF_NUMBER_NONE) m = row->none;
  else if (number < -1) m = REFUSED;
  else if (number == -1) m = row->minus_one;
  else if (number == 0) m = row->zero;
  else if (number == 1) m = row->one;
  else if (number == 2) m = row->two;
  return (meaning)m;
}

static int refuse_number(const DLDevice *device, int64_t number, mf_error *err) {
  const int32_t type = (int32_t)device->device_type;
  if (number == 0 && type != kDLCPU)
    return mf__fail(err, MF_EINVAL, "stream is 0, which could be either default stream of %s; 1 (legacy default), 2 "
                    "(per thread), None, -1 or a handle expected", mf__device_type_name(type));
  const char *expected = "None, -1, 1 (legacy default), 2 (per thread) or a handle";
  if (type == kDLCPU) expected = "None or -1";
  if (type == kDLROCM || type == kDLROCMHost) expected = "None, -1, 0 (default) or a handle above 2";
  return mf__fail(err, MF_EINVAL, "stream is %lld; %s expected for memory on %s", (long long)number, expected,
                  mf__device_type_name(type));
}

static int none_by_setting(const DLDevice *device, mf_stream *out, mf_error *err) {
  switch (mf_stream_none()) {
    case MF_NONE_DEFAULT: *out = MF_STREAM_DEFAULT; return MF_OK;
    case MF_NONE_NO_ORDER: *out = MF_STREAM_NO_ORDER; return MF_OK;
    default:
      return mf__fail(err, MF_EINVAL, "stream is None, which mf_stream_none_set refuses; a stream of %s expected",
                      mf__device_type_name((int32_t)device->device_type));
  }
}

int mf_stream_from_number(const DLDevice *device, int64_t number, mf_stream *out, mf_error *err) {
  MF__NEED(device);
  MF__NEED(out);
  static const mf_stream names[] = {[HOST] = MF_STREAM_HOST, [NO_ORDER] = MF_STREAM_NO_ORDER,
                                    [DEFAULT] = MF_STREAM_DEFAULT, [PER_THREAD] = MF_STREAM_PER_THREAD};
  const number_row *row = row_of(device);
  int rc = MF_OK;
  *out = MF_STREAM_CURRENT;
  const meaning m = row == NULL ? REFUSED : meaning_of(row, number);
  if (m == SETTING) rc = none_by_setting(device, out, err);
  else if (m == HANDLE) *out = number;
  else if (m != REFUSED) *out = names[m];
  else if (row != NULL) rc = refuse_number(device, number, err);
  else rc = mf__device_type_refuse((int32_t)device->device_type, err);
  return mf__end(rc, __func__, err);
}

static int number_of(const DLDevice *device, mf_stream stream, int64_t *out, mf_error *err) {
  mf__device d;
  mf__queue q;
  int rc = mf__device_resolve(device, &d, err);
  if (rc != MF_OK || d.backend == NULL) return rc;
  rc = mf__queue_resolve(&d, stream, false, &q, err);
  if (rc != MF_OK) return rc;
  *out = q.stream;
  if (q.backend == NULL) *out = MF_NUMBER_NONE;
  const number_row *row = row_of(device);
  if (q.backend == NULL || row->zero != DEFAULT) return MF_OK;
  if (q.stream == MF_STREAM_PER_THREAD)
    return mf__fail(err, MF_EINVAL, "the per-thread stream of %s has no number in the Python protocol",
                    mf__device_type_name((int32_t)device->device_type));
  if (q.stream == MF_STREAM_DEFAULT) *out = 0;
  return MF_OK;
}

int mf_stream_to_number(const DLDevice *device, mf_stream stream, int64_t *out, mf_error *err) {
  MF__NEED(device);
  MF__NEED(out);
  *out = MF_NUMBER_NONE;
  return mf__end(number_of(device, stream, out, err), __func__, err);
}
