/* memory_spec.c: tensors in a driver's memory: what is refused when one is made. */
#include "device.h"

static void wrong_prototypes_are_refused_as_on_the_host(void **state) {
  static const DLDataType uint8 = {kDLUInt, 8, 1}, no_lanes = {kDLUInt, 8, 0};
  static int64_t four[] = {4}, negative[] = {-1};
  const DLDevice places[] = {gpu(0), pinned()};
  (void)state;
  for (size_t i = 0; i < COUNT(places); i++) {
    const DLTensor like = {.device = places[i], .ndim = 1, .dtype = uint8, .shape = four};
    mf_tensor *t = (mf_tensor *)(intptr_t)1;
    FAILS(mf_tensor_create(&like, 0x80, &t, &err), MF_EINVAL);
    assert_null(t);
    DLTensor wrong = like;
    wrong.dtype = no_lanes;
    FAILS(mf_tensor_create(&wrong, 0, &t, &err), MF_EDTYPE);
    wrong = like;
    wrong.shape = negative;
    FAILS(mf_tensor_create(&wrong, 0, &t, &err), MF_EINVAL);
    wrong = like;
    wrong.ndim = MF_MAX_NDIM + 1;
    FAILS(mf_tensor_create(&wrong, 0, &t, &err), MF_EINVAL);
    assert_null(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(wrong_prototypes_are_refused_as_on_the_host)};
  return RUN(tests);
}
