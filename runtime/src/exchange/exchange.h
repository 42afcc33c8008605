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
/* Gives a struct of ours the deleter that calls no foreign code; false for a struct of somebody else's. */
bool mf__delete_later(DLManagedTensorVersioned *m);
bool mf__delete_later_legacy(DLManagedTensor *m);

#endif
