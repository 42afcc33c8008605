/* hello.c: a tensor is made, filled and handed to a consumer that knows nothing but DLPack's struct. */
#include <moonferry.h>
#include <stdio.h>

static void consume(DLManagedTensorVersioned *managed) {
  const DLTensor *d = &managed->dl_tensor;
  const double first = (double)*(const float *)d->data;
  printf("%lld x %lld, the first is %g\n", (long long)d->shape[0], (long long)d->shape[1], first);
  managed->deleter(managed); /* on any thread, when it is done; then the memory goes */
}

int main(void) {
  const DLTensor like = {.ndim = 2, .shape = (int64_t[]){2, 3}, .dtype = {kDLFloat, 32, 1}};
  const mf_scalar half = {.kind = MF_KIND_FLOAT, .f = 0.5};
  DLManagedTensorVersioned *managed = NULL;
  mf_tensor *t = NULL;
  mf_error err;
  int rc = mf_tensor_create(&like, 0, &t, &err);
  if (rc == MF_OK) rc = mf_tensor_fill(t, &half, &err);
  if (rc == MF_OK) rc = mf_tensor_export(t, 0, &managed, &err);
  mf_tensor_release(t); /* the consumer keeps the memory alive */
  if (rc == MF_OK) consume(managed);
  else fprintf(stderr, "%s: %s: %s\n", err.call, mf_status_name(err.status), err.message);
  return rc != MF_OK;
}
