/* hip_graphics.c: OpenGL's buffers, and other APIs' memory and semaphores, by the HIP runtime's calls. It must not
 * know what a tensor is. */
#include "driver/hip.h"

static bool has_graphics_calls(void) {
  return mf__hip.hipGraphicsGLRegisterBuffer != NULL && mf__hip.hipGraphicsUnregisterResource != NULL &&
         mf__hip.hipGraphicsResourceGetMappedPointer != NULL && mf__hip.hipGraphicsMapResources != NULL &&
         mf__hip.hipGraphicsUnmapResources != NULL;
}

/* The flags have HIP's numbers (HIP documentation, hipGraphicsRegisterFlags). */
int mf__hip_graphics_register(uint32_t buffer, uint32_t flags, void **out, mf_error *err) {
  hipGraphicsResource_t resource = NULL;
  if (!has_graphics_calls()) return mf__fail(err, MF_EDEVICE, "the HIP runtime has no calls for OpenGL's buffers");
  const int rc = MF__HIP_ASK(hipGraphicsGLRegisterBuffer, (&resource, buffer, flags));
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
