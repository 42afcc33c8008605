/* cuda_work.c: queues copies and fills on a stream by the CUDA driver's calls. It must not know why. */
#include "driver/cuda.h"

/* A plane is a box of one slice, of which no height is asked for. It goes by this call because cuMemcpy2D may fail
 * within a device's memory for pitches that are not of cuMemAllocPitch, of which nothing is said for boxes (CUDA Driver
 * API, cuMemcpy2DAsync, cuMemcpy3DAsync). */
static int copy_box(const mf__block_copy *job, CUstream stream, mf_error *err) {
  const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .srcDevice = mf__cuda_ptr(job->src),
                              .srcPitch = (size_t)job->src_pitch,
                              .srcHeight = (size_t)(job->src_slice / job->src_pitch),
                              .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .dstDevice = mf__cuda_ptr(job->dst),
                              .dstPitch = (size_t)job->dst_pitch,
                              .dstHeight = (size_t)(job->dst_slice / job->dst_pitch),
                              .WidthInBytes = (size_t)job->width,
                              .Height = (size_t)job->height,
                              .Depth = (size_t)job->depth};
  return MF__ASK(cuMemcpy3DAsync, (&copy, stream));
}

int mf__cuda_copy(const mf__block_copy *job, mf_stream stream, mf_error *err) {
  const CUstream s = mf__cuda_stream(stream);
  if (job->depth > 1 || job->height > 1) return copy_box(job, s, err);
  return MF__ASK(cuMemcpyAsync, (mf__cuda_ptr(job->dst), mf__cuda_ptr(job->src), (size_t)job->width, s));
}

int mf__cuda_copy_peer(const mf__block_copy *job, int32_t dst_ordinal, int32_t src_ordinal, mf_stream stream,
                       mf_error *err) {
  const CUstream s = mf__cuda_stream(stream);
  const CUdeviceptr dst = mf__cuda_ptr(job->dst), src = mf__cuda_ptr(job->src);
  CUcontext to = NULL, from = NULL;
  int rc = mf__cuda_primary(dst_ordinal, &to, err);
  if (rc == MF_OK) rc = mf__cuda_primary(src_ordinal, &from, err);
  if (rc != MF_OK) return rc;
  return MF__ASK(cuMemcpyPeerAsync, (dst, to, src, from, (size_t)job->width, s));
}

static int fill_flat(const mf__rows *r, uint32_t value, int32_t unit, CUstream s, mf_error *err) {
  const CUdeviceptr at = mf__cuda_ptr(r->at);
  if (unit == 1) return MF__ASK(cuMemsetD8Async, (at, (unsigned char)value, r->width, s));
  if (unit == 2) return MF__ASK(cuMemsetD16Async, (at, (unsigned short)value, r->width, s));
  return MF__ASK(cuMemsetD32Async, (at, value, r->width, s));
}

static int fill_plane(const mf__rows *r, uint32_t value, int32_t unit, CUstream s, mf_error *err) {
  const CUdeviceptr at = mf__cuda_ptr(r->at);
  if (unit == 1) return MF__ASK(cuMemsetD2D8Async, (at, r->pitch, (unsigned char)value, r->width, r->height, s));
  if (unit == 2) return MF__ASK(cuMemsetD2D16Async, (at, r->pitch, (unsigned short)value, r->width, r->height, s));
  return MF__ASK(cuMemsetD2D32Async, (at, r->pitch, value, r->width, r->height, s));
}

int mf__cuda_fill(const mf__block_copy *job, uint32_t value, int32_t unit, mf_stream stream, mf_error *err) {
  const CUstream s = mf__cuda_stream(stream);
  mf__rows rows = mf__driver_rows(job, unit);
  int rc = MF_OK;
  for (; rows.depth > 0 && rc == MF_OK; rows.depth--, rows.at += rows.slice)
    rc = rows.height > 1 ? fill_plane(&rows, value, unit, s, err) : fill_flat(&rows, value, unit, s, err);
  return rc;
}

static int exchange_mode(int *mode, mf_error *err) {
  return MF__ASK(cuThreadExchangeStreamCaptureMode, (mode));
}

int mf__cuda_capture_relax(bool on, mf_error *err) {
  static _Thread_local mf__relaxation own;
  return mf__driver_relax(&own, on, exchange_mode, err);
}

int mf__cuda_stream_capture(mf_stream stream, uint64_t *id, mf_error *err) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUstream s = mf__cuda_stream(stream);
  *id = 0;
  const bool has_id = mf__cu.cuStreamGetCaptureInfo != NULL;
  const CUresult code = has_id ? mf__cu.cuStreamGetCaptureInfo(s, &status, id, NULL, NULL, NULL)
                               : mf__cu.cuStreamIsCapturing(s, &status);
  const int rc = mf__cuda_answer(code, has_id ? "cuStreamGetCaptureInfo" : "cuStreamIsCapturing", err);
  if (rc != MF_OK || status == CU_STREAM_CAPTURE_STATUS_NONE) *id = 0;
  if (rc != MF_OK) return mf__driver_implicit(rc, code, err);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return rc;
  return mf__driver_captured(stream, status == CU_STREAM_CAPTURE_STATUS_INVALIDATED, id, err);
}
