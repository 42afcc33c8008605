/* hip_work.c: queues copies and fills on a stream by the HIP runtime's calls. It must not know why. */
#include "driver/hip.h"

static hipPitchedPtr pitched(const void *ptr, int64_t pitch, int64_t slice, int64_t width) {
  return (hipPitchedPtr){(void *)(uintptr_t)ptr, (size_t)pitch, (size_t)width, (size_t)(slice / pitch)};
}

static int copy_box(const mf__block_copy *job, hipStream_t stream, mf_error *err) {
  const hipMemcpy3DParms copy = {.srcPtr = pitched(job->src, job->src_pitch, job->src_slice, job->width),
                                 .dstPtr = pitched(job->dst, job->dst_pitch, job->dst_slice, job->width),
                                 .extent = {(size_t)job->width, (size_t)job->height, (size_t)job->depth},
                                 .kind = hipMemcpyDefault};
  return MF__HIP_ASK(hipMemcpy3DAsync, (&copy, stream));
}

int mf__hip_copy(const mf__block_copy *job, mf_stream stream, mf_error *err) {
  const hipStream_t s = mf__hip_stream(stream);
  const size_t width = (size_t)job->width, height = (size_t)job->height;
  if (job->depth > 1) return copy_box(job, s, err);
  if (height <= 1) return MF__HIP_ASK(hipMemcpyAsync, (job->dst, job->src, width, hipMemcpyDefault, s));
  return MF__HIP_ASK(hipMemcpy2DAsync, (job->dst, (size_t)job->dst_pitch, job->src, (size_t)job->src_pitch, width,
                                        height, hipMemcpyDefault, s));
}

int mf__hip_copy_peer(const mf__block_copy *job, int32_t dst_ordinal, int32_t src_ordinal, mf_stream stream,
                      mf_error *err) {
  const hipStream_t s = mf__hip_stream(stream);
  return MF__HIP_ASK(hipMemcpyPeerAsync, (job->dst, dst_ordinal, job->src, src_ordinal, (size_t)job->width, s));
}

static int fill_row(const mf__rows *r, uint32_t value, int32_t unit, hipStream_t s, mf_error *err) {
  if (unit == 1) return MF__HIP_ASK(hipMemsetD8Async, (r->at, (unsigned char)value, r->width, s));
  if (unit == 2) return MF__HIP_ASK(hipMemsetD16Async, (r->at, (unsigned short)value, r->width, s));
  return MF__HIP_ASK(hipMemsetD32Async, (r->at, (int)value, r->width, s));
}

/* HIP fills planes with bytes only (HIP documentation, hipMemset2DAsync). For wider values: fills a row, copies it to
 * the next one, both to the next two, and so on, which takes few calls even for many rows. */
static int fill_plane(const mf__rows *r, uint32_t value, int32_t unit, hipStream_t s, mf_error *err) {
  const size_t nbytes = r->width * (size_t)unit;
  if (unit == 1) return MF__HIP_ASK(hipMemset2DAsync, (r->at, r->pitch, (int)(value & 0xff), nbytes, r->height, s));
  int rc = fill_row(r, value, unit, s, err);
  for (size_t done = 1; done < r->height && rc == MF_OK; done *= 2) {
    const size_t rows = done < r->height - done ? done : r->height - done;
    char *const to = r->at + done * r->pitch;
    rc = MF__HIP_ASK(hipMemcpy2DAsync, (to, r->pitch, r->at, r->pitch, nbytes, rows, hipMemcpyDefault, s));
  }
  return rc;
}

int mf__hip_fill(const mf__block_copy *job, uint32_t value, int32_t unit, mf_stream stream, mf_error *err) {
  const hipStream_t s = mf__hip_stream(stream);
  mf__rows rows = mf__driver_rows(job, unit);
  int rc = MF_OK;
  for (; rows.depth > 0 && rc == MF_OK; rows.depth--, rows.at += rows.slice)
    rc = rows.height > 1 ? fill_plane(&rows, value, unit, s, err) : fill_row(&rows, value, unit, s, err);
  return rc;
}

static int exchange_mode(int *mode, mf_error *err) {
  return MF__HIP_ASK(hipThreadExchangeStreamCaptureMode, (mode));
}

int mf__hip_capture_relax(bool on, mf_error *err) {
  static _Thread_local mf__relaxation own;
  return mf__driver_relax(&own, on, exchange_mode, err);
}

int mf__hip_stream_capture(mf_stream stream, uint64_t *id, mf_error *err) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  unsigned long long found = 0;
  const hipStream_t s = mf__hip_stream(stream);
  const bool has_id = mf__hip.hipStreamGetCaptureInfo != NULL;
  const hipError_t code = has_id ? mf__hip.hipStreamGetCaptureInfo(s, &status, &found)
                                 : mf__hip.hipStreamIsCapturing(s, &status);
  const int rc = mf__hip_answer(code, has_id ? "hipStreamGetCaptureInfo" : "hipStreamIsCapturing", err);
  *id = rc == MF_OK && status != hipStreamCaptureStatusNone ? found : 0;
  if (rc != MF_OK) return mf__driver_implicit(rc, code, err);
  if (status == hipStreamCaptureStatusNone) return rc;
  return mf__driver_captured(stream, status == hipStreamCaptureStatusInvalidated, id, err);
}
