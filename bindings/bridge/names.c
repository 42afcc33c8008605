/* names.c: remembers strings that cross again and again, as the names of fields do.
 *
 *   a Lua string     by its address -> the interned str; one table for the process
 *   a Python str     by its address -> the Lua string; of each bridge, because strings belong to a Lua state
 *
 * A str is remembered when it comes a second time in a row to its place, so that names that are made anew each time do
 * not drive out those that are not. Invariant: the tables are guarded by the GIL; a remembered string is kept alive, or
 * compared. */
#include <stdlib.h>
#include <string.h>

#include "value.h"

enum { NAME_MAX_SIZE = 31, KEYS = 128 };

/* What was at an address before may have been another string, so the text is compared. */
static struct {
  const char *address;
  size_t size;
  char text[NAME_MAX_SIZE + 1];
  PyObject *name;
} names[512];

static void remember(size_t slot, const char *text, size_t size, PyObject *name) {
  PyObject *before = names[slot].name;
  names[slot].address = text;
  names[slot].size = size;
  memcpy(names[slot].text, text, size);
  names[slot].name = name;
  Py_DecRef(before);
}

/* Whether strings are UTF-8 here, and where this one would be. */
static int may_be_known(const char *text, size_t size, size_t *slot) {
  *slot = ((uintptr_t)text >> 4) % (sizeof names / sizeof *names);
  return size <= NAME_MAX_SIZE && mf__is_utf8(mf__top->bridge);
}

static int is_at(size_t slot, const char *text, size_t size) {
  return names[slot].address == text && names[slot].size == size && memcmp(names[slot].text, text, size) == 0;
}

PyObject *mf__name_known(lua_State *L, int index) {
  size_t size, slot;
  const char *text = lua_tolstring(L, index, &size);
  if (!may_be_known(text, size, &slot) || !is_at(slot, text, size)) return NULL;
  Py_IncRef(names[slot].name);
  return names[slot].name;
}

PyObject *mf__name_to_python(lua_State *L, int index) {
  size_t size, slot;
  const char *text = lua_tolstring(L, index, &size);
  if (!may_be_known(text, size, &slot)) return NULL;
  if (!is_at(slot, text, size)) {
    PyObject *name = PyUnicode_DecodeUTF8(text, (Py_ssize_t)size, NULL);
    if (name == NULL) mf__raise(L);
    PyUnicode_InternInPlace(&name);
    remember(slot, text, size, name);
  }
  Py_IncRef(names[slot].name);
  return names[slot].name;
}

PyObject *mf__source_name(const mf__state *state, PyObject *name) {
  const mf__options *options = &state->options;
  if (options->encoding == NULL && options->source_encoding != NULL)
    return PyUnicode_AsEncodedString(name, options->source_encoding, NULL);
  Py_IncRef(name);
  return name;
}

struct mf__keys {
  struct {
    PyObject *key;      /* owned, or NULL */
    const void *wished; /* what came last and was not here; never looked into */
    int ref;            /* of the Lua string in the registry; 0 before the first */
  } slots[KEYS];
};

static size_t slot_of(const PyObject *key) {
  return ((uintptr_t)key >> 4) % KEYS;
}

int mf__key_push(lua_State *L, const mf__bridge *bridge, const PyObject *key) {
  const struct mf__keys *keys = bridge->keys;
  size_t slot = slot_of(key);
  if (keys == NULL || keys->slots[slot].key != key) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, keys->slots[slot].ref);
  return 1;
}

/* Whether ${key} shall be remembered now; its place in ${slot}. */
static int is_wanted(struct mf__keys *keys, const PyObject *key, size_t *slot) {
  *slot = slot_of(key);
  if (keys == NULL || keys->slots[*slot].key == key) return 0;
  int again = keys->slots[*slot].wished == key;
  keys->slots[*slot].wished = key;
  return again;
}

void mf__key_remember(lua_State *L, PyObject *key) {
  mf__bridge *bridge = mf__top->bridge;
  size_t slot;
  if (Py_TYPE(key) != &PyUnicode_Type || lua_type(L, -1) != LUA_TSTRING || lua_objlen(L, -1) > NAME_MAX_SIZE) return;
  if (bridge->keys == NULL) bridge->keys = calloc(1, sizeof *bridge->keys);
  if (!is_wanted(bridge->keys, key, &slot)) return;
  int *ref = &bridge->keys->slots[slot].ref;
  lua_pushvalue(L, -1);
  if (*ref != 0) {
    lua_rawseti(L, LUA_REGISTRYINDEX, *ref);
  } else {
    *ref = mf__anchor(L, bridge->state);
  }
  PyObject *before = bridge->keys->slots[slot].key;
  Py_IncRef(key);
  bridge->keys->slots[slot].key = key;
  Py_DecRef(before);
}

void mf__keys_free(mf__bridge *bridge) {
  struct mf__keys *keys = bridge->keys;
  bridge->keys = NULL;
  for (int i = 0; keys != NULL && i < KEYS; i++) Py_DecRef(keys->slots[i].key);
  free(keys);
}
