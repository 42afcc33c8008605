/* hip_graphics.c: OpenGL's buffers and textures, and other APIs' memory and semaphores, by the HIP runtime's calls.
 * It must not know what a tensor is. */
#include "driver/hip.h"

static bool has_graphics_calls(void) {
  return mf__hip.hipGraphicsGLRegisterBuffer != NULL && mf__hip.hipGraphicsUnregisterResource != NULL &&
         mf__hip.hipGraphicsResourceGetMappedPointer != NULL && mf__hip.hipGraphicsMapResources != NULL &&
         mf__hip.hipGraphicsUnmapResources != NULL;
}

static bool has_texture_calls(void) {
  return mf__hip.hipGraphicsGLRegisterImage != NULL && mf__hip.hipGraphicsSubResourceGetMappedArray != NULL &&
         mf__hip.hipArrayGetDescriptor != NULL && mf__hip.hipMemcpy2DToArrayAsync != NULL &&
         mf__hip.hipMemcpy2DFromArrayAsync != NULL;
}

/* The flags have HIP's numbers (HIP documentation, hipGraphicsRegisterFlags). */
int mf__hip_graphics_register(const mf__gl_name *name, uint32_t flags, void **out, mf_error *err) {
  hipGraphicsResource_t resource = NULL;
  const bool texture = name->target != 0;
  if (!has_graphics_calls() || (texture && !has_texture_calls()))
    return mf__fail(err, MF_EDEVICE, "the HIP runtime has no calls for OpenGL's %s", texture ? "textures" : "buffers");
  const int rc = texture ? MF__HIP_ASK(hipGraphicsGLRegisterImage, (&resource, name->name, name->target, flags))
                       : MF__HIP_ASK(hipGraphicsGLRegisterBuffer, (&resource, name->name, flags));
  *out = resource;
  return rc;
}

int mf__hip_graphics_unregister(void *resource, mf_error *err) {
  return MF__HIP_ASK(hipGraphicsUnregisterResource, (resource));
}

int mf__hip_graphics_map(void *resource, mf_stream stream, void **data, size_t *nbytes, mf_error *err) {
  hipGraphicsResource_t one = resource;
  int rc = MF__HIP_ASK(hipGraphicsMapResources, (1, &one, mf__hip_stream(stream)));
  if (rc != MF_OK) return rc;
  rc = MF__HIP_ASK(hipGraphicsResourceGetMappedPointer, (data, nbytes, resource));
  if (rc != MF_OK) mf__hip_clear(mf__hip.hipGraphicsUnmapResources(1, &one, mf__hip_stream(stream)));
  return rc;
}

static int describe(hipGraphicsResource_t resource, mf__array *out, mf_error *err) {
  HIP_ARRAY_DESCRIPTOR form = {.Width = 0};
  hipArray_t array = NULL;
  int rc = MF__HIP_ASK(hipGraphicsSubResourceGetMappedArray, (&array, resource, 0, 0));
  if (rc == MF_OK) rc = MF__HIP_ASK(hipArrayGetDescriptor, (&form, array));
  if (rc != MF_OK) return rc;
  *out = (mf__array){array, (int64_t)form.Width, (int64_t)form.Height, (int32_t)form.NumChannels, {0}};
  return mf__driver_array_dtype(form.Format, &out->dtype, err);
}

int mf__hip_graphics_map_array(void *resource, mf_stream stream, mf__array *out, mf_error *err) {
  hipGraphicsResource_t one = resource;
  int rc = MF__HIP_ASK(hipGraphicsMapResources, (1, &one, mf__hip_stream(stream)));
  if (rc != MF_OK) return rc;
  rc = describe(one, out, err);
  if (rc != MF_OK) mf__hip_clear(mf__hip.hipGraphicsUnmapResources(1, &one, mf__hip_stream(stream)));
  return rc;
}

int mf__hip_array_copy(const mf__array_copy *job, mf_stream stream, mf_error *err) {
  const size_t x = (size_t)job->x, y = (size_t)job->y, pitch = (size_t)job->pitch;
  const size_t width = (size_t)job->width, height = (size_t)job->height;
  const hipStream_t s = mf__hip_stream(stream);
  if (job->upload)
    return MF__HIP_ASK(hipMemcpy2DToArrayAsync,
                       (job->array, x, y, job->data, pitch, width, height, hipMemcpyDefault, s));
  return MF__HIP_ASK(hipMemcpy2DFromArrayAsync,
                     (job->data, pitch, job->array, x, y, width, height, hipMemcpyDefault, s));
}

int mf__hip_graphics_unmap(void *resource, mf_stream stream, mf_error *err) {
  hipGraphicsResource_t one = resource;
  return MF__HIP_ASK(hipGraphicsUnmapResources, (1, &one, mf__hip_stream(stream)));
}

/* An import takes the descriptor over, so a copy of it is imported. */
int mf__hip_external_import(int fd, size_t nbytes, mf__external *out, mf_error *err) {
  hipExternalMemoryHandleDesc memory = {.type = hipExternalMemoryHandleTypeOpaqueFd, .size = nbytes};
  const hipExternalMemoryBufferDesc all = {.size = nbytes};
  if (mf__hip.hipImportExternalMemory == NULL || mf__hip.hipExternalMemoryGetMappedBuffer == NULL ||
      mf__hip.hipDestroyExternalMemory == NULL)
    return mf__fail(err, MF_EDEVICE, "the HIP runtime has no calls for external memory");
  int rc = mf__driver_copy_fd(fd, &memory.handle.fd, err);
  if (rc != MF_OK) return rc;
  rc = MF__HIP_ASK(hipImportExternalMemory, (&out->handle, &memory));
  if (rc != MF_OK) {
    mf__fd_close(memory.handle.fd);
    return rc;
  }
  rc = MF__HIP_ASK(hipExternalMemoryGetMappedBuffer, (&out->data, out->handle, &all));
  if (rc != MF_OK) mf__hip_clear(mf__hip.hipDestroyExternalMemory(out->handle));
  return rc;
}

/* What fails here stays the runtime's: nobody could be told. */
void mf__hip_external_end(const mf__external *memory) {
  mf__hip_clear(mf__hip.hipFree(memory->data));
  mf__hip_clear(mf__hip.hipDestroyExternalMemory(memory->handle));
}

static bool has_semaphore_calls(void) {
  return mf__hip.hipImportExternalSemaphore != NULL && mf__hip.hipDestroyExternalSemaphore != NULL &&
         mf__hip.hipWaitExternalSemaphoresAsync != NULL && mf__hip.hipSignalExternalSemaphoresAsync != NULL;
}

int mf__hip_semaphore_import(int fd, bool binary, void **out, mf_error *err) {
  hipExternalSemaphoreHandleDesc semaphore = {
      .type = binary ? hipExternalSemaphoreHandleTypeOpaqueFd
                     : hipExternalSemaphoreHandleTypeTimelineSemaphoreFd};
  hipExternalSemaphore_t handle = NULL;
  if (!has_semaphore_calls()) return mf__fail(err, MF_EDEVICE, "the HIP runtime has no calls for external semaphores");
  int rc = mf__driver_copy_fd(fd, &semaphore.handle.fd, err);
  if (rc != MF_OK) return rc;
  rc = MF__HIP_ASK(hipImportExternalSemaphore, (&handle, &semaphore));
  if (rc != MF_OK) mf__fd_close(semaphore.handle.fd);
  *out = handle;
  return rc;
}

int mf__hip_semaphore_end(void *semaphore, mf_error *err) {
  return MF__HIP_ASK(hipDestroyExternalSemaphore, (semaphore));
}

int mf__hip_semaphore_wait(void *semaphore, uint64_t value, mf_stream stream, mf_error *err) {
  const hipExternalSemaphore_t one = semaphore;
  const hipExternalSemaphoreWaitParams reach = {.params.fence.value = value};
  return MF__HIP_ASK(hipWaitExternalSemaphoresAsync, (&one, &reach, 1, mf__hip_stream(stream)));
}

int mf__hip_semaphore_signal(void *semaphore, uint64_t value, mf_stream stream, mf_error *err) {
  const hipExternalSemaphore_t one = semaphore;
  const hipExternalSemaphoreSignalParams reach = {.params.fence.value = value};
  return MF__HIP_ASK(hipSignalExternalSemaphoresAsync, (&one, &reach, 1, mf__hip_stream(stream)));
}
