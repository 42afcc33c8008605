/* An extension made with pybind11, as people make them: it speaks the buffer protocol and knows nothing of DLPack or
 * of Moonferry. specs/exchange/host.lua uses it. */
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <vector>

namespace py = pybind11;

struct Array {
  std::vector<char> own;
  std::shared_ptr<py::buffer_info> info;
};

static Array make(const py::bytes &raw, const std::string &format, py::ssize_t size, std::vector<py::ssize_t> shape) {
  Array a;
  std::string text = raw;
  a.own.assign(text.begin(), text.end());
  a.own.push_back(0);
  std::vector<py::ssize_t> strides(shape.size(), size);
  for (size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * shape[i];
  }
  auto ndim = static_cast<py::ssize_t>(shape.size());
  a.info = std::make_shared<py::buffer_info>(a.own.data(), size, format, ndim, shape, strides);
  return a;
}

static Array take(const py::buffer &buffer) {
  return {{}, std::make_shared<py::buffer_info>(buffer.request(false))};
}

static py::buffer_info expose(Array &a) {
  const py::buffer_info &i = *a.info;
  return py::buffer_info(i.ptr, i.itemsize, i.format, i.ndim, i.shape, i.strides, i.readonly);
}

static void collect(const py::buffer_info &i, const char *at, size_t axis, std::string &out) {
  if (axis == static_cast<size_t>(i.ndim)) {
    out.append(at, static_cast<size_t>(i.itemsize));
    return;
  }
  for (py::ssize_t n = 0; n < i.shape[axis]; n++) {
    collect(i, at, axis + 1, out);
    at += i.strides[axis];
  }
}

static py::bytes bytes(const Array &a) {
  std::string out;
  collect(*a.info, static_cast<const char *>(a.info->ptr), 0, out);
  return out;
}

static void fill(Array &a, float value) {
  if (a.info->readonly) {
    throw py::value_error("the buffer is read-only");
  }
  auto *floats = static_cast<float *>(a.info->ptr);
  for (py::ssize_t i = 0; i < a.info->size; i++) {
    floats[i] = value;
  }
}

PYBIND11_MODULE(exchange_pybind11, m) {
  m.attr("__version__") = "pybind11";
  py::class_<Array>(m, "Array", py::buffer_protocol())
      .def_static("make", &make)
      .def_static("take", &take)
      .def_buffer(&expose)
      .def("bytes", &bytes)
      .def("pointer", [](const Array &a) { return reinterpret_cast<uintptr_t>(a.info->ptr); })
      .def("fill", &fill);
}
