/* exchange.h: declares what the files of exchange/ share: structs of DLPack that come in and go out. Outside of this
 * folder only moonferry.h knows of them. */
#ifndef MOONFERRY_EXCHANGE_H
#define MOONFERRY_EXCHANGE_H

#include "device/device.h"

/* export.c */

/* bool as it was before DLPack had kDLBool, an element a byte. TVM's and MXNet's structs still say it so. */
bool mf__is_old_bool(const DLDataType *dtype);
/* Whether a struct without flags can carry the tensor. */
int mf__flagless_check(const mf_tensor *t, mf_error *err);
/* An export whose consumer works on the queue. */
int mf__export(mf_tensor *t, uint64_t flags, const mf__queue *on, DLManagedTensorVersioned **out, mf_error *err);
int mf__export_legacy(mf_tensor *t, const mf__queue *on, DLManagedTensor **out, mf_error *err);
/* The tensor that a struct of ours was made of; NULL for one of somebody else's. */
mf_tensor *mf__exported_tensor(const mf__foreign *from);
/* Deletes a struct of ours, and calls no foreign code. */
void mf__exported_delete(const mf__foreign *from);

/* external.c: what memory of another graphics API must be, and where it is used */

/* Resolves the name of a GPU; refuses what is no GPU's own memory. */
int mf__gpu_resolve(const DLDevice *name, mf__device *out, mf_error *err);
/* The queue of one of its streams. */
int mf__gpu_queue(const mf__device *device, mf_stream stream, mf__queue *out, mf_error *err);
/* Whether so many bytes behind the tensor's byte_offset are there; ${what} has ${nbytes}. */
int mf__fit_check(const DLTensor *like, uint64_t wanted, uint64_t nbytes, const char *what, mf_error *err);

/* graphics.c: a buffer or a texture of OpenGL's that is registered with a GPU's driver */

typedef struct mf__gl_resource {
  mf__device device;
  void *handle;
  const char *sort; /* "buffer", "texture" */
  uint32_t flags;   /* MF_GL_... */
  atomic_bool busy; /* a call has it */
} mf__gl_resource;

int mf__gl_register(mf__gl_resource *r, const DLDevice *device, const mf__gl_name *name, uint32_t flags,
                    mf_error *err);
/* Also where it fails, the driver has it no more. */
int mf__gl_unregister(const mf__gl_resource *r, mf_error *err);
/* One call at a time has it: MF_EINVAL for the second one. */
int mf__gl_begin(mf__gl_resource *r, mf_error *err);
void mf__gl_end(mf__gl_resource *r);

#endif
