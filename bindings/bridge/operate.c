/* operate.c: applies Lua's operators to Python objects.
 *
 *   a + b, a - b, a * b, a / b, a % b, a ^ b, -a   Python's +, -, *, /, %, **, -; either side may be a Lua value
 *   #o, a .. b                                     len(o), and the texts of both
 *   a == b, a < b, a <= b                          Python's, as a boolean; both sides must be Python objects
 *
 * Lua 5.1 asks no metatable where two values of different types are compared, and makes a boolean of every answer
 * (Lua 5.1 Reference Manual, 2.8); py.op has functions for these cases. Must not know: what the objects are. */
#include "objects.h"

static int binary(lua_State *L, PyObject *(*operate)(PyObject *, PyObject *)) {
  PyObject *left = mf__argument(L, 1);
  PyObject *right = mf__argument(L, 2), *result;
  MF__OUTSIDE(result, operate(left, right));
  mf__to_lua(L, result);
  return 1;
}

static PyObject *power(PyObject *base, PyObject *exponent) {
  return PyNumber_Power(base, exponent, Py_None);
}

static int operator_add(lua_State *L) {
  return binary(L, PyNumber_Add);
}

static int operator_sub(lua_State *L) {
  return binary(L, PyNumber_Subtract);
}

static int operator_mul(lua_State *L) {
  return binary(L, PyNumber_Multiply);
}

static int operator_div(lua_State *L) {
  return binary(L, PyNumber_TrueDivide);
}

static int operator_mod(lua_State *L) {
  return binary(L, PyNumber_Remainder);
}

static int operator_pow(lua_State *L) {
  return binary(L, power);
}

static int operator_unm(lua_State *L) {
  PyObject *object = mf__argument(L, 1), *result;
  MF__OUTSIDE(result, PyNumber_Negative(object));
  mf__to_lua(L, result);
  return 1;
}

static int compare(lua_State *L, int operation) {
  PyObject *left = mf__argument(L, 1);
  PyObject *right = mf__argument(L, 2);
  int answer;
  MF__OUTSIDE(answer, PyObject_RichCompareBool(left, right, operation));
  if (answer < 0) mf__raise(L);
  lua_pushboolean(L, answer);
  return 1;
}

static int operator_eq(lua_State *L) {
  return compare(L, Py_EQ);
}

static int operator_lt(lua_State *L) {
  return compare(L, Py_LT);
}

static int operator_le(lua_State *L) {
  return compare(L, Py_LE);
}

static int object_len(lua_State *L) {
  mf__check_interrupt(L);
  PyObject *object = mf__held_at(L, 1);
  Py_ssize_t length;
  MF__OUTSIDE(length, PyObject_Size(object));
  if (length < 0) mf__raise(L);
  mf__to_lua(L, PyLong_FromSsize_t(length)); /* not every one is a number of Lua's */
  return 1;
}

static void push_text_of(lua_State *L, int index) {
  int event = luaL_getmetafield(L, index, "__tostring");
  lua_pushvalue(L, index);
  if (event && mf__run_protected(L, 1, 1) != 0) lua_error(L);
  if (lua_tostring(L, -1) == NULL) mf__fail(L, "a %s cannot be concatenated", luaL_typename(L, index));
}

static int object_concat(lua_State *L) {
  push_text_of(L, 1);
  push_text_of(L, 2);
  lua_concat(L, 2);
  return 1;
}

PyObject *mf__next_item(lua_State *L, PyObject *iterator) {
  PyObject *item;
  MF__OUTSIDE(item, PyIter_Next(iterator));
  if (item == NULL && PyErr_Occurred()) mf__raise(L);
  return item != NULL ? mf__hold(L, item) : NULL;
}

void mf__object_metatable(lua_State *L, const luaL_Reg *events, int bridge) {
  static const luaL_Reg operators[] = {{"__add", operator_add},
                                       {"__sub", operator_sub},
                                       {"__mul", operator_mul},
                                       {"__div", operator_div},
                                       {"__mod", operator_mod},
                                       {"__pow", operator_pow},
                                       {"__unm", operator_unm},
                                       {"__eq", operator_eq},
                                       {"__lt", operator_lt},
                                       {"__le", operator_le},
                                       {"__len", object_len},
                                       {"__concat", object_concat},
                                       {NULL, NULL}};
  mf__put_verbs(L, operators, bridge);
  mf__put_verbs(L, events, bridge);
  mf__handle_metatable(L);
}
