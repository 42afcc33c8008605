/* hello.c: makes a tensor, fills it and gives it to a consumer that knows only DLPack's struct. */
#include <moonferry.h>
#include <stdio.h>

int main(void) {
  const DLTensor like = {.ndim = 2, .shape = (int64_t[]){2, 3}, .dtype = {kDLFloat, 32, 1}};
  const mf_scalar half = {.kind = MF_KIND_FLOAT, .f = 0.5};
  DLManagedTensorVersioned *managed = NULL;
  mf_tensor *t = NULL;
  mf_error err;
  int failed = mf_tensor_create(&like, 0, &t, &err) || mf_tensor_fill(t, &half, &err) ||
               mf_tensor_export(t, 0, &managed, &err);
  mf_tensor_release(t); /* the struct keeps the memory alive */
  if (failed) return fprintf(stderr, "%s: %s\n", err.call, err.message), 1;
  printf("the first element is %g\n", (double)*(const float *)managed->dl_tensor.data);
  managed->deleter(managed); /* the consumer calls it, on any thread; this frees the memory */
}
