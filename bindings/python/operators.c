/* operators.c: Python's operators of a Tensor, which computes nothing and says who does.
 *
 * Invariant: an operand that is neither a tensor nor one of Python's numbers is left to answer by itself, as NumPy's
 * and PyTorch's arrays do. It must not know elements.
 */
#include "core.h"

static int answers_for_itself(PyObject *other) {
  return !core_is_tensor(other) && !PyLong_CheckExact(other) && !PyFloat_CheckExact(other) &&
         !PyComplex_CheckExact(other) && !PyBool_Check(other);
}

static PyObject *refuse(PyObject *tensor, const char *sign, const char *function, const char *arguments) {
  if (core_is_closed(tensor)) {
    core_refuse_closed();
    return NULL;
  }
  PyErr_Format(PyExc_TypeError,
               "%s: a moonferry.Tensor computes nothing; np.%s(%s) gives an array of NumPy's, and with out=t.numpy() "
               "it writes into the tensor t",
               sign, function, arguments);
  return NULL;
}

static PyObject *refuse_two(PyObject *a, PyObject *b, const char *sign, const char *function) {
  const int first = core_is_tensor(a);
  if (answers_for_itself(first ? b : a)) Py_RETURN_NOTIMPLEMENTED;
  return refuse(first ? a : b, sign, function, "a, b");
}

/* NumPy's function of an operator has the operator's name. */
#define OF_TWO(function, sign) \
  PyObject *core_##function(PyObject *a, PyObject *b) { \
    return refuse_two(a, b, sign, #function); \
  }
#define OF_ONE(function, sign) \
  PyObject *core_##function(PyObject *a) { \
    return refuse(a, sign, #function, "a"); \
  }

OF_TWO(add, "+")
OF_TWO(subtract, "-")
OF_TWO(multiply, "*")
OF_TWO(matmul, "@")
OF_TWO(true_divide, "/")
OF_TWO(floor_divide, "//")
OF_TWO(remainder, "%")
OF_TWO(divmod, "divmod()")
OF_TWO(bitwise_and, "&")
OF_TWO(bitwise_or, "|")
OF_TWO(bitwise_xor, "^")
OF_TWO(left_shift, "<<")
OF_TWO(right_shift, ">>")
OF_ONE(negative, "-")
OF_ONE(absolute, "abs()")
OF_ONE(invert, "~")

PyObject *core_power(PyObject *a, PyObject *b, PyObject *modulus) {
  (void)modulus;
  return refuse_two(a, b, "**", "power");
}

static int compares_elsewhere(PyObject *other) {
  return core_is_tensor(other) || PyLong_Check(other) || PyFloat_Check(other) || PyComplex_Check(other) ||
         PyList_Check(other);
}

/* One object is equal to itself, and to nothing of another kind. False for what has elements of its own, or is one,
 * would say something of contents that nobody has looked at. */
static PyObject *compare_equal(PyObject *self, PyObject *other, const char *sign) {
  if (self == other) return PyBool_FromLong(sign[0] == '=');
  if (!compares_elsewhere(other)) Py_RETURN_NOTIMPLEMENTED;
  PyErr_Format(PyExc_TypeError,
               "%s does not compare a moonferry.Tensor with a '%s'; moonferry.equal(a, b) compares contents, "
               "np.asarray(a) %s b each element, `a is b` identity",
               sign, Py_TYPE(other)->tp_name, sign);
  return NULL;
}

PyObject *core_compare(PyObject *self, PyObject *other, int op) {
  static const char *const signs[] = {[Py_LT] = "<", [Py_LE] = "<=", [Py_EQ] = "==",
                                      [Py_NE] = "!=", [Py_GT] = ">", [Py_GE] = ">="};
  if (op == Py_EQ || op == Py_NE) return compare_equal(self, other, signs[op]);
  if (answers_for_itself(other)) Py_RETURN_NOTIMPLEMENTED;
  PyErr_Format(PyExc_TypeError,
               "%s does not compare a moonferry.Tensor with a '%s'; np.asarray(a) %s b compares each element",
               signs[op], Py_TYPE(other)->tp_name, signs[op]);
  return NULL;
}
