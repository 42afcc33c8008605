/* memory_spec.c: tensors in a driver's memory: what is refused when one is made, and that the host does not read or
 * write the elements of a device's. */
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

static void the_host_does_not_use_a_devices_elements(void **state) {
  const DLDevice device = gpu(0);
  const int64_t at = 0;
  char says[64] = "the elements are on ";
  mf_scalar value = {.kind = MF_KIND_UINT, .u = 1};
  int32_t same;
  (void)state;
  mf_tensor *there = create(device, 4), *here = create((DLDevice){kDLCPU, 0}, 4);
  OK(mf_device_format(&device, says + strlen(says), sizeof says - strlen(says), &err));
  REFUSED(mf_tensor_get(there, &at, 1, &value, &err), MF_EDEVICE, says);
  REFUSED(mf_tensor_put(there, &at, 1, &value, &err), MF_EDEVICE, says);
  REFUSED(mf_tensor_equal(here, there, &same, &err), MF_EDEVICE, says);
  mf_tensor *wide;
  const DLTensor like = {.ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){4}};
  OK(mf_tensor_create(&like, 0, &wide, &err));
  REFUSED(mf_tensor_astype(wide, there, &err), MF_EDEVICE, says);
  mf_tensor_release(wide);
  mf_tensor_release(here);
  mf_tensor_release(there);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(wrong_prototypes_are_refused_as_on_the_host),
                                     SPEC(the_host_does_not_use_a_devices_elements)};
  return RUN(tests);
}
