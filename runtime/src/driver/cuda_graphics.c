/* cuda_graphics.c: OpenGL's buffers and textures, and other APIs' memory and semaphores, by the CUDA driver's calls.
 * It must not know what a tensor is. */
#include "driver/cuda.h"

static bool has_graphics_calls(void) {
  return mf__cu.cuGraphicsGLRegisterBuffer != NULL && mf__cu.cuGraphicsUnregisterResource != NULL &&
         mf__cu.cuGraphicsResourceGetMappedPointer != NULL && mf__cu.cuGraphicsMapResources != NULL &&
         mf__cu.cuGraphicsUnmapResources != NULL;
}

static bool has_texture_calls(void) {
  return mf__cu.cuGraphicsGLRegisterImage != NULL && mf__cu.cuGraphicsSubResourceGetMappedArray != NULL &&
         mf__cu.cuArrayGetDescriptor != NULL;
}

/* The flags have CUDA's numbers (CUDA Driver API, CUgraphicsRegisterFlags). */
int mf__cuda_graphics_register(const mf__gl_name *name, uint32_t flags, void **out, mf_error *err) {
  CUgraphicsResource resource = NULL;
  const bool texture = name->target != 0;
  if (!has_graphics_calls() || (texture && !has_texture_calls()))
    return mf__fail(err, MF_EDEVICE, "the CUDA driver has no calls for OpenGL's %s", texture ? "textures" : "buffers");
  const int rc = texture ? MF__ASK(cuGraphicsGLRegisterImage, (&resource, name->name, name->target, flags))
                       : MF__ASK(cuGraphicsGLRegisterBuffer, (&resource, name->name, flags));
  *out = resource;
  return rc;
}

int mf__cuda_graphics_unregister(void *resource, mf_error *err) {
  return MF__ASK(cuGraphicsUnregisterResource, (resource));
}

int mf__cuda_graphics_map(void *resource, mf_stream stream, void **data, size_t *nbytes, mf_error *err) {
  CUgraphicsResource one = resource;
  CUdeviceptr ptr = 0;
  int rc = MF__ASK(cuGraphicsMapResources, (1, &one, mf__cuda_stream(stream)));
  if (rc != MF_OK) return rc;
  rc = MF__ASK(cuGraphicsResourceGetMappedPointer, (&ptr, nbytes, resource));
  if (rc != MF_OK) (void)mf__cu.cuGraphicsUnmapResources(1, &one, mf__cuda_stream(stream));
  *data = (void *)(uintptr_t)ptr;
  return rc;
}

static int describe(CUgraphicsResource resource, mf__array *out, mf_error *err) {
  CUDA_ARRAY_DESCRIPTOR form = {.Width = 0};
  CUarray array = NULL;
  int rc = MF__ASK(cuGraphicsSubResourceGetMappedArray, (&array, resource, 0, 0));
  if (rc == MF_OK) rc = MF__ASK(cuArrayGetDescriptor, (&form, array));
  if (rc != MF_OK) return rc;
  *out = (mf__array){array, (int64_t)form.Width, (int64_t)form.Height, (int32_t)form.NumChannels, {0}};
  return mf__driver_array_dtype(form.Format, &out->dtype, err);
}

int mf__cuda_graphics_map_array(void *resource, mf_stream stream, mf__array *out, mf_error *err) {
  CUgraphicsResource one = resource;
  int rc = MF__ASK(cuGraphicsMapResources, (1, &one, mf__cuda_stream(stream)));
  if (rc != MF_OK) return rc;
  rc = describe(one, out, err);
  if (rc != MF_OK) (void)mf__cu.cuGraphicsUnmapResources(1, &one, mf__cuda_stream(stream));
  return rc;
}

int mf__cuda_array_copy(const mf__array_copy *job, mf_stream stream, mf_error *err) {
  CUDA_MEMCPY2D copy = {.WidthInBytes = (size_t)job->width, .Height = (size_t)job->height};
  if (job->upload) {
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = mf__cuda_ptr(job->data);
    copy.srcPitch = (size_t)job->pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = job->array;
    copy.dstXInBytes = (size_t)job->x;
    copy.dstY = (size_t)job->y;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = job->array;
    copy.srcXInBytes = (size_t)job->x;
    copy.srcY = (size_t)job->y;
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = mf__cuda_ptr(job->data);
    copy.dstPitch = (size_t)job->pitch;
  }
  return MF__ASK(cuMemcpy2DAsync, (&copy, mf__cuda_stream(stream)));
}

int mf__cuda_graphics_unmap(void *resource, mf_stream stream, mf_error *err) {
  CUgraphicsResource one = resource;
  return MF__ASK(cuGraphicsUnmapResources, (1, &one, mf__cuda_stream(stream)));
}

static int map_all(CUexternalMemory memory, size_t nbytes, void **data, mf_error *err) {
  const CUDA_EXTERNAL_MEMORY_BUFFER_DESC all = {.size = nbytes};
  CUdeviceptr ptr = 0;
  const int rc = MF__ASK(cuExternalMemoryGetMappedBuffer, (&ptr, memory, &all));
  *data = (void *)(uintptr_t)ptr;
  return rc;
}

/* An import takes the descriptor over (CUDA Driver API, cuImportExternalMemory), so a copy of it is imported. */
int mf__cuda_external_import(int fd, size_t nbytes, mf__external *out, mf_error *err) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = nbytes};
  CUexternalMemory handle = NULL;
  if (mf__cu.cuImportExternalMemory == NULL || mf__cu.cuExternalMemoryGetMappedBuffer == NULL ||
      mf__cu.cuDestroyExternalMemory == NULL)
    return mf__fail(err, MF_EDEVICE, "the CUDA driver has no calls for external memory");
  int rc = mf__driver_copy_fd(fd, &memory.handle.fd, err);
  if (rc != MF_OK) return rc;
  rc = MF__ASK(cuImportExternalMemory, (&handle, &memory));
  if (rc != MF_OK) {
    mf__fd_close(memory.handle.fd);
    return rc;
  }
  rc = map_all(handle, nbytes, &out->data, err);
  if (rc != MF_OK) (void)mf__cu.cuDestroyExternalMemory(handle);
  out->handle = handle;
  return rc;
}

/* What fails here stays the driver's: nobody could be told. */
void mf__cuda_external_end(const mf__external *memory) {
  (void)mf__cu.cuMemFree(mf__cuda_ptr(memory->data));
  (void)mf__cu.cuDestroyExternalMemory(memory->handle);
}

static bool has_semaphore_calls(void) {
  return mf__cu.cuImportExternalSemaphore != NULL && mf__cu.cuDestroyExternalSemaphore != NULL &&
         mf__cu.cuWaitExternalSemaphoresAsync != NULL && mf__cu.cuSignalExternalSemaphoresAsync != NULL;
}

int mf__cuda_semaphore_import(int fd, bool binary, void **out, mf_error *err) {
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC semaphore = {
      .type = binary ? CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
                     : CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD};
  CUexternalSemaphore handle = NULL;
  if (!has_semaphore_calls()) return mf__fail(err, MF_EDEVICE, "the CUDA driver has no calls for external semaphores");
  int rc = mf__driver_copy_fd(fd, &semaphore.handle.fd, err);
  if (rc != MF_OK) return rc;
  rc = MF__ASK(cuImportExternalSemaphore, (&handle, &semaphore));
  if (rc != MF_OK) mf__fd_close(semaphore.handle.fd);
  *out = handle;
  return rc;
}

int mf__cuda_semaphore_end(void *semaphore, mf_error *err) {
  return MF__ASK(cuDestroyExternalSemaphore, (semaphore));
}

int mf__cuda_semaphore_wait(void *semaphore, uint64_t value, mf_stream stream, mf_error *err) {
  const CUexternalSemaphore one = semaphore;
  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS reach = {.params.fence.value = value};
  return MF__ASK(cuWaitExternalSemaphoresAsync, (&one, &reach, 1, mf__cuda_stream(stream)));
}

int mf__cuda_semaphore_signal(void *semaphore, uint64_t value, mf_stream stream, mf_error *err) {
  const CUexternalSemaphore one = semaphore;
  const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS reach = {.params.fence.value = value};
  return MF__ASK(cuSignalExternalSemaphoresAsync, (&one, &reach, 1, mf__cuda_stream(stream)));
}
