/* exchange.c: one tensor from a producer to a consumer, in C alone. The consumer knows nothing but DLPack's
 * struct: it works on the memory in place and deletes the struct when it is done. */
#include <moonferry.h>
#include <stdio.h>

static int produce(DLManagedTensorVersioned **out, mf_error *err) {
  DLTensor like = {.ndim = 2, .shape = (int64_t[]){2, 3}, .dtype = {kDLFloat, 32, 1}};
  mf_scalar half = {.kind = MF_KIND_FLOAT, .f = 0.5};
  mf_tensor *t;
  int rc = mf_tensor_create(&like, 0, &t, err);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_fill(t, &half, err);
  if (rc == MF_OK) rc = mf_tensor_export(t, 0, out, err);
  mf_tensor_release(t); /* the memory lives until the consumer is done with it */
  return rc;
}

static void consume(DLManagedTensorVersioned *managed) {
  const DLTensor *d = &managed->dl_tensor;
  float *data = d->data;
  for (int64_t i = 0; i < d->shape[0]; i++) {
    for (int64_t j = 0; j < d->shape[1]; j++) {
      float *x = &data[i * d->strides[0] + j * d->strides[1]];
      *x += (float)(i * 10 + j);
      printf("%6.1f", (double)*x);
    }
    printf("\n");
  }
  managed->deleter(managed);
}

int main(void) {
  DLManagedTensorVersioned *managed;
  mf_ledger alive;
  mf_error err;
  if (produce(&managed, &err) != MF_OK) {
    fprintf(stderr, "%s: %s: %s\n", err.call, mf_status_name(err.status), err.message);
    return 1;
  }
  consume(managed);
  mf_ledger_read(&alive);
  printf("alive at the end: %lld tensors\n", (long long)alive.tensors);
  return alive.tensors != 0;
}
