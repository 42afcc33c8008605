/* format.c: dtypes as PEP 3118 format strings and back.
 *
 * Invariant: only native byte order, only single elements: what is refused here has no dtype. It must not
 * know about buffers.
 *
 * Standard: PEP 3118; struct module; complex as NumPy writes it, Zf and Zd.
 */
#include "core.h"

#include <limits.h>
#include <string.h>

/* Where int64 is C's long, NumPy's is that, and libraries that compare types by their letters refuse a long long. */
#if LONG_MAX > INT32_MAX
#define INT64_FORMAT "l"
#define UINT64_FORMAT "L"
#else
#define INT64_FORMAT "q"
#define UINT64_FORMAT "Q"
#endif

/* The format of a dtype, static storage, or NULL where PEP 3118 has none. */
const char *core_buffer_format(DLDataType dtype) {
  static const char *const ints[4] = {"b", "h", "i", INT64_FORMAT};
  static const char *const uints[4] = {"B", "H", "I", UINT64_FORMAT};
  static const char *const floats[4] = {NULL, "e", "f", "d"};
  int log2 = dtype.bits == 8 ? 0 : dtype.bits == 16 ? 1 : dtype.bits == 32 ? 2 : 3;
  if (dtype.lanes != 1) return NULL;
  if (dtype.code == kDLComplex) return dtype.bits == 64 ? "Zf" : dtype.bits == 128 ? "Zd" : NULL;
  if (dtype.bits != 8 << log2) return NULL;
  switch (dtype.code) {
    case kDLInt:
      return ints[log2];
    case kDLUInt:
      return uints[log2];
    case kDLFloat:
      return floats[log2];
    case kDLBool:
      return log2 == 0 ? "?" : NULL;
    default:
      return NULL;
  }
}

static int code_of(const char *format) {
  if (strlen(format) == 2 && format[0] == 'Z' && strchr("fd", format[1]) != NULL) return kDLComplex;
  if (strlen(format) != 1) return -1;
  if (strchr("bhilqn", *format) != NULL) return kDLInt;
  if (strchr("BHILQNc", *format) != NULL) return kDLUInt;
  if (strchr("efd", *format) != NULL) return kDLFloat;
  if (strchr("FD", *format) != NULL) return kDLComplex;
  return *format == '?' ? kDLBool : -1;
}

/* ${format} (NULL means bytes) with items of ${itemsize} bytes as a dtype; -1, without an exception, where
 * there is none. The width comes from the item size: 'l' has two. */
int core_format_parse(const char *format, Py_ssize_t itemsize, DLDataType *out) {
  const uint16_t probe = 1;
  bool little = *(const uint8_t *)&probe == 1;
  if (format == NULL) format = "B";
  if (*format != '\0' && strchr(little ? ">!" : "<", *format) != NULL && itemsize > 1) return -1;
  if (*format != '\0' && strchr("@=<>!", *format) != NULL) format++;
  int code = code_of(format);
  if (code < 0 || itemsize < 1 || itemsize > 16) return -1;
  *out = (DLDataType){.code = (uint8_t)code, .bits = (uint8_t)(itemsize * 8), .lanes = 1};
  return core_buffer_format(*out) == NULL ? -1 : 0;
}
