/* An extension made with nanobind, as people make them: an array type that owns memory, or holds someone else's.
 * It knows nothing of Moonferry. specs/exchange/host.lua uses it. */
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <map>
#include <vector>

namespace nb = nanobind;

using Any = nb::ndarray<>;
using ReadOnly = nb::ndarray<nb::ro>;

/* `writable` is not valid where the memory may only be read. */
struct Array {
  ReadOnly any;
  Any writable;
};

static Array take(Any any) { return {ReadOnly(any), any}; }

static const std::map<std::string, nb::dlpack::dtype> dtypes = {
    {"bool", nb::dtype<bool>()},        {"int8", nb::dtype<int8_t>()},     {"int16", nb::dtype<int16_t>()},
    {"int32", nb::dtype<int32_t>()},    {"int64", nb::dtype<int64_t>()},   {"uint8", nb::dtype<uint8_t>()},
    {"uint16", nb::dtype<uint16_t>()},  {"uint32", nb::dtype<uint32_t>()}, {"uint64", nb::dtype<uint64_t>()},
    {"float32", nb::dtype<float>()},    {"float64", nb::dtype<double>()},  {"float16", {2, 16, 1}},
    {"bfloat16", {4, 16, 1}},           {"complex64", {5, 64, 1}},         {"complex128", {5, 128, 1}},
    {"float8_e4m3fn", {10, 8, 1}},      {"float8_e5m2", {12, 8, 1}},       {"float8_e4m3b11fnuz", {9, 8, 1}},
    {"float8_e4m3fnuz", {11, 8, 1}},    {"float8_e5m2fnuz", {13, 8, 1}},   {"float8_e3m4", {7, 8, 1}},
    {"float8_e4m3", {8, 8, 1}},         {"float8_e8m0fnu", {14, 8, 1}},
};

static Array make(nb::bytes raw, const std::string &dtype, const std::vector<size_t> &shape) {
  char *memory = new char[raw.size() + 1];
  std::memcpy(memory, raw.c_str(), raw.size());
  nb::capsule owner(memory, [](void *p) noexcept { delete[] static_cast<char *>(p); });
  return take(Any(memory, shape.size(), shape.data(), owner, nullptr, dtypes.at(dtype)));
}

static void collect(const Array &a, const char *at, size_t axis, std::string &out) {
  size_t size = a.any.itemsize();
  if (axis == a.any.ndim()) {
    out.append(at, size);
    return;
  }
  for (size_t i = 0; i < a.any.shape(axis); i++) {
    collect(a, at, axis + 1, out);
    at += a.any.stride(axis) * static_cast<int64_t>(size);
  }
}

static nb::bytes bytes(const Array &a) {
  std::string out;
  collect(a, static_cast<const char *>(a.any.data()), 0, out);
  return nb::bytes(out.data(), out.size());
}

static nb::object array(const Array &a) { return a.writable.is_valid() ? nb::cast(a.writable) : nb::cast(a.any); }

static void fill(Array &a, float value) {
  if (!a.writable.is_valid()) {
    throw nb::value_error("the array is read-only");
  }
  nb::ndarray<float, nb::c_contig> floats(a.writable);
  for (size_t i = 0; i < floats.size(); i++) {
    floats.data()[i] = value;
  }
}

NB_MODULE(exchange_nanobind, m) {
  m.attr("__version__") = "nanobind";
  nb::class_<Array>(m, "Array")
      .def_static("make", &make)
      .def_static("take", &take)
      .def_static("take", [](ReadOnly any) { return Array{any, Any()}; })
      .def("array", &array)
      .def("bytes", &bytes)
      .def("pointer", [](const Array &a) { return reinterpret_cast<uintptr_t>(a.any.data()); })
      .def("fill", &fill);
}
