/* exchange.c: one tensor from producer to consumer, in C alone. The producer makes a tensor, fills it and
 * exports it; the consumer knows nothing but DLPack's struct, works on the memory in place, and deletes the
 * struct when it is done. Run by the tests; prints what the consumer saw.
 */
#include <moonferry.h>
#include <stdio.h>

static DLManagedTensorVersioned *produce(mf_error *err) {
  DLTensor like = {.ndim = 2, .shape = (int64_t[]){2, 3}, .dtype = {kDLFloat, 32, 1}};
  mf_scalar half = {.kind = MF_KIND_FLOAT, .f = 0.5};
  mf_scalar seven = {.kind = MF_KIND_INT, .i = 7};
  DLManagedTensorVersioned *managed = NULL;
  mf_tensor *t;
  mf_tensor *transposed;
  if (mf_tensor_create(&like, 0, &t, err) != MF_OK) return NULL;
  if (mf_tensor_fill(t, &half, err) == MF_OK && mf_tensor_put(t, (int64_t[]){1, -1}, 2, &seven, err) == MF_OK &&
      mf_tensor_permute(t, NULL, 0, &transposed, err) == MF_OK) {
    (void)mf_tensor_export(transposed, 0, &managed, err);
    mf_tensor_release(transposed); /* the memory lives until the consumer is done with it */
  }
  mf_tensor_release(t);
  return managed;
}

static void consume(DLManagedTensorVersioned *managed) {
  const DLTensor *d = &managed->dl_tensor;
  float *data = d->data;
  printf("%lld x %lld, strides %lld and %lld\n", (long long)d->shape[0], (long long)d->shape[1],
         (long long)d->strides[0], (long long)d->strides[1]);
  for (int64_t i = 0; i < d->shape[0]; i++) {
    for (int64_t j = 0; j < d->shape[1]; j++) {
      float *x = &data[i * d->strides[0] + j * d->strides[1]];
      *x *= 2;
      printf("%5.1f", (double)*x);
    }
    printf("\n");
  }
  managed->deleter(managed);
}

int main(void) {
  mf_error err;
  mf_ledger left;
  DLManagedTensorVersioned *managed = produce(&err);
  if (managed == NULL) {
    fprintf(stderr, "%s failed with %s: %s\n", err.call, mf_status_name(err.status), err.message);
    return 1;
  }
  consume(managed);
  mf_ledger_read(&left);
  printf("alive at the end: %lld tensors, %lld bytes\n", (long long)left.tensors, (long long)left.bytes);
  return left.tensors != 0;
}
