/* arrow.c: Tensor.__arrow_c_schema__, __arrow_c_array__ and __arrow_c_device_array__; who owns what comes in.
 *
 * Responsible for: a tensor as an array of Apache Arrow, over the same memory; what others give, in capsules of ours.
 * A tensor with one axis is a primitive array; each further axis makes a list of fixed size of it. Invariant: the
 * release callbacks are C alone and may run on any thread, and the memory lives until the last part of an array is
 * released, wherever its parts were moved. It must not know who consumes.
 *
 * Standard: Apache Arrow 1.0, C data interface, C device data interface, PyCapsule interface.
 */
#include "core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct arrow_schema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct arrow_schema **children, *dictionary;
  void (*release)(struct arrow_schema *);
  void *private_data;
} arrow_schema;

/* The type of a field whose elements may be missing, which is what consumers compare with; here none is. */
enum { NULLABLE = 2 };

typedef struct arrow_array {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct arrow_array **children, *dictionary;
  void (*release)(struct arrow_array *);
  void *private_data;
} arrow_array;

typedef struct arrow_device_array {
  arrow_array array;
  int64_t device_id;
  int32_t device_type; /* DLPack's numbers */
  void *sync_event;
  int64_t reserved[3];
} arrow_device_array;

typedef struct arrow_stream {
  int (*get_schema)(struct arrow_stream *, arrow_schema *);
  int (*get_next)(struct arrow_stream *, arrow_array *);
  const char *(*get_last_error)(struct arrow_stream *);
  void (*release)(struct arrow_stream *);
  void *private_data;
} arrow_stream;

/* Each axis has a part of its own, which a consumer may move away from the others and release later. */
typedef struct schema_part {
  char format[32];
  arrow_schema child, *children[1];
} schema_part;

typedef struct memory {
  _Atomic int parts;
  DLManagedTensorVersioned *managed;
} memory;

typedef struct array_part {
  memory *of;
  const void *buffers[2];
  arrow_array child, *children[1];
} array_part;

static void release_schema(arrow_schema *schema) {
  schema_part *part = schema->private_data;
  if (schema->n_children > 0 && part->child.release != NULL) part->child.release(&part->child);
  schema->release = NULL;
  free(part);
}

static void drop_memory(memory *of) {
  if (atomic_fetch_sub(&of->parts, 1) > 1) return;
  of->managed->deleter(of->managed);
  free(of);
}

static void release_array(arrow_array *array) {
  array_part *part = array->private_data;
  if (array->n_children > 0 && part->child.release != NULL) part->child.release(&part->child);
  array->release = NULL;
  drop_memory(part->of);
  free(part);
}

/* Arrow's letter of a dtype, '\0' where it has none. */
static char letter_of(DLDataType dtype) {
  static const char *const letters[] = {[kDLInt] = "csil", [kDLUInt] = "CSIL", [kDLFloat] = "\0efg"};
  const int size = dtype.bits == 8 ? 0 : dtype.bits == 16 ? 1 : dtype.bits == 32 ? 2 : dtype.bits == 64 ? 3 : -1;
  if (dtype.lanes != 1 || size < 0) return '\0';
  if (dtype.code == kDLBool) return size == 0 ? 'b' : '\0';
  return dtype.code <= kDLFloat ? letters[dtype.code][size] : '\0';
}

/* An array of Arrow says of each axis how many items it has in all the lists before, and a tensor without elements may
 * have more of them than such a number holds. */
static bool can_count_items(const DLTensor *view) {
  int64_t count = 1;
  for (int32_t i = 0; i < view->ndim; i++)
    if (__builtin_mul_overflow(count, view->shape[i], &count)) return false;
  return true;
}

static int check(PyObject *self) {
  const DLTensor *view = core_view(self);
  char name[64] = "";
  if (view->ndim == 0)
    return core_refuse(core_state_of_tensor(self), "an Arrow array has an axis; reshape(1) gives the tensor one");
  if (!can_count_items(view))
    return core_refuse(core_state_of_tensor(self), "an Arrow array has fewer than 2**63 items, empty ones too");
  if (letter_of(view->dtype) != '\0') return 0;
  mf_dtype_format(&view->dtype, name, sizeof name, NULL);
  return core_refuse(core_state_of_tensor(self), "Arrow has no type for %s; astype or reinterpret gives one", name);
}

/* Describes the axes from ${axis} on. */
static int fill_schema(arrow_schema *out, const DLTensor *view, int32_t axis) {
  schema_part *part = calloc(1, sizeof *part);
  if (part == NULL) return -1;
  const bool leaf = axis + 1 == view->ndim;
  *out = (arrow_schema){.format = part->format, .name = axis == 0 ? "" : "item", .flags = NULLABLE,
                        .release = release_schema, .private_data = part};
  if (leaf) {
    part->format[0] = letter_of(view->dtype);
    return 0;
  }
  snprintf(part->format, sizeof part->format, "+w:%lld", (long long)view->shape[axis + 1]);
  if (fill_schema(&part->child, view, axis + 1) == 0) {
    part->children[0] = &part->child;
    out->n_children = 1;
    out->children = part->children;
    return 0;
  }
  release_schema(out);
  return -1;
}

/* The same of the elements, ${length} lists or elements of them. */
static int fill_array(arrow_array *out, memory *of, int32_t axis, int64_t length) {
  const DLTensor *view = &of->managed->dl_tensor;
  array_part *part = calloc(1, sizeof *part);
  if (part == NULL) return -1;
  const bool leaf = axis + 1 == view->ndim;
  atomic_fetch_add(&of->parts, 1);
  part->of = of;
  part->buffers[1] = (const char *)view->data + view->byte_offset;
  *out = (arrow_array){.length = length, .n_buffers = leaf ? 2 : 1, .buffers = part->buffers, .release = release_array,
                       .private_data = part};
  if (leaf) return 0;
  if (fill_array(&part->child, of, axis + 1, length * view->shape[axis + 1]) == 0) {
    part->children[0] = &part->child;
    out->n_children = 1;
    out->children = part->children;
    return 0;
  }
  release_array(out);
  return -1;
}

/* What a capsule of ours has, whoever has renamed it: what was taken out of it says so itself. */
static void *content_of(PyObject *capsule) {
  return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
}

static void drop_schema(PyObject *capsule) {
  arrow_schema *schema = content_of(capsule);
  const aside exception = aside_begin();
  if (schema->release != NULL) schema->release(schema);
  aside_end(exception);
  free(schema);
}

static void drop_array(PyObject *capsule) {
  arrow_device_array *array = content_of(capsule);
  const aside exception = aside_begin();
  if (array->array.release != NULL) array->array.release(&array->array);
  aside_end(exception);
  free(array);
}

static void drop_stream(PyObject *capsule) {
  arrow_stream *stream = content_of(capsule);
  const aside exception = aside_begin();
  if (stream->release != NULL) stream->release(stream);
  aside_end(exception);
  free(stream);
}

/* The structs that come in, in the order in which _arrow.py counts them. */
static const struct incoming {
  const char *name;
  size_t size, release; /* where the callback is */
  PyCapsule_Destructor drop;
} incoming[] = {
    {"arrow_schema", sizeof(arrow_schema), offsetof(arrow_schema, release), drop_schema},
    {"arrow_array", sizeof(arrow_array), offsetof(arrow_array, release), drop_array},
    {"arrow_array_stream", sizeof(arrow_stream), offsetof(arrow_stream, release), drop_stream},
};

/* Marks the source as released, as Arrow's standard says of a struct that moves: false where it was already. */
static bool move(const struct incoming *kind, char *to, char *from) {
  const void *release;
  memcpy(&release, from + kind->release, sizeof release);
  if (release == NULL) return false;
  memcpy(to, from, kind->size);
  memset(from + kind->release, 0, sizeof release);
  return true;
}

/* _arrow_taken(capsule, kind): see the docstring in module.c. The struct is released in C, since a finalizer in Python
 * may lack the memory to call anything. */
PyObject *core_arrow_taken(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  (void)module;
  const long at = nargs == 2 ? PyLong_AsLong(args[1]) : -1;
  if (at < 0 || at >= (long)(sizeof incoming / sizeof *incoming)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "_arrow_taken() takes a capsule and its kind");
    return NULL;
  }
  const struct incoming *kind = &incoming[at];
  char *from = args[0] == Py_None ? NULL : PyCapsule_GetPointer(args[0], kind->name);
  char *to = from == NULL && args[0] != Py_None ? NULL : calloc(1, sizeof(arrow_device_array));
  PyObject *capsule = to == NULL ? NULL : PyCapsule_New(to, kind->name, kind->drop);
  if (capsule == NULL) {
    free(to);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  }
  bool moved = from == NULL;
  Py_BEGIN_CRITICAL_SECTION(args[0]);
  if (from != NULL) moved = move(kind, to, from);
  Py_END_CRITICAL_SECTION();
  if (moved) return capsule;
  Py_DECREF(capsule);
  Py_RETURN_NONE;
}

const char core_arrow_schema_doc[] =
    "__arrow_c_schema__($self, /)\n--\n\n"
    "Returns a capsule with the Arrow type that __arrow_c_array__ would return. Standard: Arrow PyCapsule\n"
    "interface.";

const char core_arrow_array_doc[] =
    "__arrow_c_array__($self, /, requested_schema=None)\n--\n\n"
    "Returns two capsules, the type and the array of Apache Arrow, for pyarrow, polars, pandas and duckdb.\n"
    "\n"
    "The memory is shared if the tensor is compact, otherwise copied. Booleans are copied into bits. Each axis but\n"
    "the first becomes a fixed-size list.\n"
    "requested_schema: ignored.\n"
    "Raises ExchangeError for a tensor without axes, a dtype that Arrow lacks, and a GPU's memory.\n"
    "Standard: Arrow PyCapsule interface.";

const char core_arrow_device_array_doc[] =
    "__arrow_c_device_array__($self, /, requested_schema=None, **kwargs)\n--\n\n"
    "As __arrow_c_array__, for memory on any device. The host waits until the memory is ready, so the consumer gets\n"
    "no event to wait for.\n"
    "\n"
    "Standard: Arrow PyCapsule interface, C device data interface.";

static PyObject *schema_capsule(PyObject *self, PyObject *ignored) {
  (void)ignored;
  if (check(self) < 0) return NULL;
  arrow_schema *schema = calloc(1, sizeof *schema);
  if (schema == NULL || fill_schema(schema, core_view(self), 0) < 0) {
    free(schema);
    return PyErr_NoMemory();
  }
  PyObject *capsule = PyCapsule_New(schema, "arrow_schema", drop_schema);
  if (capsule != NULL) return capsule;
  schema->release(schema);
  free(schema);
  return NULL;
}

CORE_PLAIN(core_arrow_schema, schema_capsule)

/* Arrow keeps eight truth values in a byte. */
static int pack(const mf_tensor *t, mf_tensor **out, mf_error *err) {
  const DLTensor *view = mf_tensor_dltensor(t);
  const uint8_t *from = view->data;
  int64_t count = mf_tensor_size(t), nbytes = (count + 7) / 8;
  DLTensor like = {.device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &nbytes};
  const int status = mf_tensor_create(&like, 0, out, err);
  if (status != MF_OK) return status;
  uint8_t *to = mf_tensor_dltensor(*out)->data;
  if (nbytes > 0) memset(to, 0, (size_t)nbytes);
  for (int64_t i = 0; i < count; i++) to[i / 8] |= (uint8_t)((from[i] != 0) << (i % 8));
  return MF_OK;
}

/* The bits of truth values, where these are: they are packed on the host. */
static int pack_there(mf_tensor *t, const mf_request *here, mf_tensor **out, mf_error *err) {
  static const mf_request host = {.device = {kDLCPU, 0}, .stream = MF_STREAM_HOST};
  mf_tensor *read, *bits;
  int status = mf_tensor_to(t, &host, &read, err);
  if (status != MF_OK) return status;
  status = pack(read, &bits, err);
  mf_tensor_release(read);
  if (status != MF_OK) return status;
  status = mf_tensor_to(bits, here, out, err);
  mf_tensor_release(bits);
  return status;
}

/* The tensor as it can be given: compact, truth values packed, and nothing left to wait for. */
static int make_ready(mf_tensor *t, DLManagedTensorVersioned **out, mf_tensor **bits, mf_error *err) {
  mf_request here = {.device = mf_tensor_dltensor(t)->device, .stream = MF_STREAM_HOST};
  mf_tensor *compact = mf_tensor_retain(t);
  int status = MF_OK;
  if (!mf_tensor_is_contiguous(t)) {
    mf_tensor_release(compact);
    status = mf_tensor_clone(t, &compact, err);
  }
  if (status != MF_OK) return status;
  status = mf_tensor_export_to(compact, &here, out, err);
  if (status == MF_OK && mf_tensor_dltensor(t)->dtype.code == kDLBool) {
    status = pack_there(compact, &here, bits, err);
    if (status != MF_OK) (*out)->deleter(*out);
  }
  mf_tensor_release(compact);
  return status;
}

/* Lets ${managed} describe the packed bits in the place of the elements; they go with it. */
typedef struct packed {
  DLManagedTensorVersioned outer, *inner;
  mf_tensor *bits;
} packed;

static void delete_packed(DLManagedTensorVersioned *managed) {
  packed *p = (packed *)managed;
  p->inner->deleter(p->inner);
  mf_tensor_release(p->bits);
  free(p);
}

static DLManagedTensorVersioned *with_bits(DLManagedTensorVersioned *inner, mf_tensor *bits) {
  packed *p = malloc(sizeof *p);
  if (p == NULL) return NULL;
  *p = (packed){.outer = *inner, .inner = inner, .bits = bits};
  p->outer.deleter = delete_packed;
  p->outer.dl_tensor.data = mf_tensor_dltensor(bits)->data;
  return &p->outer;
}

static memory *memory_of(PyObject *self) {
  DLManagedTensorVersioned *managed = NULL;
  mf_tensor *bits = NULL;
  mf_error err;
  PyThreadState *saved = PyEval_SaveThread();
  const int status = make_ready(core_handle(self), &managed, &bits, &err);
  PyEval_RestoreThread(saved);
  if (status != MF_OK) {
    core_raise_exchange(core_state_of_tensor(self), &err, "__arrow_c_array__", NULL);
    return NULL;
  }
  DLManagedTensorVersioned *whole = bits == NULL ? managed : with_bits(managed, bits);
  memory *of = whole == NULL ? NULL : malloc(sizeof *of);
  if (of != NULL) {
    *of = (memory){.managed = whole};
    atomic_init(&of->parts, 1);
    return of;
  }
  if (whole != NULL) managed = whole;
  managed->deleter(managed);
  if (whole == NULL) mf_tensor_release(bits);
  PyErr_NoMemory();
  return NULL;
}

static PyObject *array_capsule(PyObject *self, const char *name) {
  if (check(self) < 0) return NULL;
  const DLDevice device = core_view(self)->device;
  memory *of = memory_of(self);
  if (of == NULL) return NULL;
  arrow_device_array *made = calloc(1, sizeof *made);
  const bool filled = made != NULL && fill_array(&made->array, of, 0, core_view(self)->shape[0]) == 0;
  drop_memory(of);
  if (!filled) {
    free(made);
    return PyErr_NoMemory();
  }
  made->device_type = (int32_t)device.device_type;
  made->device_id = core_is_cpu(device) ? -1 : device.device_id;
  PyObject *capsule = PyCapsule_New(made, name, drop_array);
  if (capsule != NULL) return capsule;
  made->array.release(&made->array);
  free(made);
  return NULL;
}

static PyObject *both(PyObject *self, const char *name) {
  PyObject *array = array_capsule(self, name);
  PyObject *schema = array == NULL ? NULL : schema_capsule(self, NULL);
  PyObject *pair = schema == NULL ? NULL : PyTuple_Pack(2, schema, array);
  Py_XDECREF(schema);
  Py_XDECREF(array);
  return pair;
}

/* A requested schema is a wish; the tensor's own type is what is given. */
static PyObject *array(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"requested_schema", NULL};
  PyObject *wish = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:__arrow_c_array__", names, &wish)) return NULL;
  if (core_host_reads(core_view(self)->device)) return both(self, "arrow_array");
  core_refuse(core_state_of_tensor(self),
              "__arrow_c_array__: the elements are not on the host; to(\"cpu\") copies them, and "
              "__arrow_c_device_array__ gives them where they are");
  return NULL;
}

CORE_TUPLE(core_arrow_array, array)

/* Keywords that are not known are to be None, says the interface. */
static PyObject *device_array(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *wish = Py_None, *key, *value;
  Py_ssize_t at = 0;
  if (!PyArg_ParseTuple(args, "|O:__arrow_c_device_array__", &wish)) return NULL;
  while (kwargs != NULL && PyDict_Next(kwargs, &at, &key, &value)) {
    if (value == Py_None || PyUnicode_CompareWithASCIIString(key, "requested_schema") == 0) continue;
    PyErr_Format(PyExc_NotImplementedError, "__arrow_c_device_array__() does not know the keyword '%U'", key);
    return NULL;
  }
  return both(self, "arrow_device_array");
}

CORE_TUPLE(core_arrow_device_array, device_array)
