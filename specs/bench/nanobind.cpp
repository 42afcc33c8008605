/* nanobind.cpp: nanobind's ndarray as a peer: a function that takes any array, and an object that nanobind
 * itself exports. */
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;

using any_array = nb::ndarray<>;
using own_array = nb::ndarray<nb::array_api, float, nb::ndim<2>>;

NB_MODULE(bench_nanobind, m) {
  m.def("consume", [](const any_array &) {}, nb::arg("array"));
  m.def("from_dlpack", [](own_array array) { return array; }, nb::arg("array"));
  m.def("make", [](std::size_t rows, std::size_t columns) {
    float *data = new float[rows * columns]();
    nb::capsule owner(data, [](void *p) noexcept { delete[] static_cast<float *>(p); });
    return own_array(data, {rows, columns}, owner);
  });
}
