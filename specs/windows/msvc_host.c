/* msvc_host.c: a host as Microsoft's compiler makes it, linked with moonferry.lib: its ABI, and nothing of MinGW's.
 *
 * Neither Microsoft's headers nor its C library is in a Debian, so it has only what clang brings and calls kernel32
 * itself. Structs, a union of numbers, a callback, doubles and an array of 64-bit numbers cross the border. It prints
 * how many cases passed, and ends with the number of the line of the first that did not. */
#include <moonferry.h>

__declspec(dllimport) void *__stdcall GetStdHandle(unsigned long which);
__declspec(dllimport) int __stdcall WriteFile(void *file, const void *bytes, unsigned long count,
                                              unsigned long *done, void *overlapped);
__declspec(dllimport) void __stdcall ExitProcess(unsigned status);

int _fltused; /* what a program that uses floating point has in Microsoft's C library */

#define CHECK(condition) \
  if (!(condition)) return __LINE__

static void on_release(void *user) {
  ++*(int *)user;
}

static unsigned wrapped_memory_is_filled_and_released(void) {
  float picture[2][3] = {{1, 2, 3}, {4, 5, 6}};
  int64_t shape[] = {2, 3};
  DLTensor view = {.data = picture, .ndim = 2, .shape = shape, .dtype = {kDLFloat, 32, 1}};
  mf_scalar white = {.kind = MF_KIND_FLOAT, .f = 255};
  mf_tensor *t;
  mf_error err;
  int released = 0;
  CHECK(mf_tensor_wrap(&view, 0, on_release, &released, &t, &err) == MF_OK);
  CHECK(mf_tensor_fill(t, &white, &err) == MF_OK && picture[0][0] == 255 && picture[1][2] == 255);
  CHECK(released == 0);
  mf_tensor_release(t);
  CHECK(released == 1);
  return 0;
}

static unsigned a_mistake_is_told(void) {
  int64_t shape[] = {2, -3};
  DLTensor view = {.data = shape, .ndim = 2, .shape = shape, .dtype = {kDLFloat, 32, 1}};
  mf_tensor *t;
  mf_error err;
  CHECK(mf_tensor_wrap(&view, 0, 0, 0, &t, &err) == MF_EINVAL && err.message[0] != 0);
  return 0;
}

static unsigned what_is_exported_is_given_back(void) {
  int64_t numbers[] = {7, INT64_MAX}, shape[] = {2};
  DLTensor view = {.data = numbers, .ndim = 1, .shape = shape, .dtype = {kDLInt, 64, 1}};
  mf_tensor *t;
  DLManagedTensorVersioned *given;
  mf_error err;
  int released = 0;
  CHECK(mf_tensor_wrap(&view, 0, on_release, &released, &t, &err) == MF_OK);
  CHECK(mf_tensor_export(t, 0, &given, &err) == MF_OK);
  mf_tensor_release(t);
  CHECK(released == 0 && given->dl_tensor.data == numbers && given->dl_tensor.shape[0] == 2);
  given->deleter(given);
  CHECK(released == 1);
  return 0;
}

/* Without a C library this is where the program starts. */
void mainCRTStartup(void) {
  static unsigned (*const cases[])(void) = {
    wrapped_memory_is_filled_and_released,
    a_mistake_is_told,
    what_is_exported_is_given_back,
  };
  static char said[] = "alone: 0 passed\n";
  unsigned long done;
  unsigned status = 0;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases && status == 0; i++)
    if ((status = cases[i]()) == 0) said[7]++;
  WriteFile(GetStdHandle((unsigned long)-11), said, sizeof said - 1, &done, 0);
  ExitProcess(status);
}
