/* abi_spec.c: what other languages see of the library: sizes, offsets, constants, exported names. */
#define _GNU_SOURCE /* dladdr, popen */
#include "spec.h"

#include <dlfcn.h>

#define AT(type, member, offset) \
  _Static_assert(offsetof(type, member) == (offset), #type "." #member " stays where it is")
#define SIZE(type, nbytes) _Static_assert(sizeof(type) == (nbytes), #type " keeps its size")

SIZE(mf_error, 256);
AT(mf_error, status, 0);
AT(mf_error, driver_code, 4);
AT(mf_error, call, 8);
AT(mf_error, message, 16);
SIZE(mf_ledger, 32);
AT(mf_ledger, tensors, 0);
AT(mf_ledger, storages, 8);
AT(mf_ledger, bytes, 16);
AT(mf_ledger, blocks, 24);
SIZE(mf_scalar, 24);
AT(mf_scalar, kind, 0);
AT(mf_scalar, zero, 4);
AT(mf_scalar, i, 8);
AT(mf_scalar, u, 8);
AT(mf_scalar, f, 8);
AT(mf_scalar, imag, 16);
SIZE(mf_request, 24);
AT(mf_request, device, 0);
AT(mf_request, copy, 8);
AT(mf_request, zero, 12);
AT(mf_request, stream, 16);
SIZE(mf_pool_stats, 48);
AT(mf_pool_stats, misses, 40);
SIZE(mf_stream, 8);
SIZE(mf_index, 32);
AT(mf_index, kind, 0);
AT(mf_index, zero, 4);
AT(mf_index, start, 8);
AT(mf_index, stop, 16);
AT(mf_index, step, 24);
SIZE(DLDataType, 4);
SIZE(DLDevice, 8);
SIZE(DLTensor, 48);
AT(DLTensor, device, 8);
AT(DLTensor, ndim, 16);
AT(DLTensor, dtype, 20);
AT(DLTensor, shape, 24);
AT(DLTensor, strides, 32);
AT(DLTensor, byte_offset, 40);
SIZE(DLManagedTensor, 64);
AT(DLManagedTensor, manager_ctx, 48);
AT(DLManagedTensor, deleter, 56);
SIZE(DLManagedTensorVersioned, 80);
AT(DLManagedTensorVersioned, manager_ctx, 8);
AT(DLManagedTensorVersioned, deleter, 16);
AT(DLManagedTensorVersioned, flags, 24);
AT(DLManagedTensorVersioned, dl_tensor, 32);

_Static_assert(MF_MAX_NDIM == 64 && MF_ALIGNMENT == 256, "the header's numbers");
_Static_assert(MF_OK == 0 && MF_EINVAL == -1 && MF_ENOMEM == -2 && MF_EOVERFLOW == -3 && MF_EBOUNDS == -4 &&
                   MF_EREADONLY == -5 && MF_ECLOSED == -6 && MF_EDTYPE == -7 && MF_ELAYOUT == -8 &&
                   MF_EDEVICE == -9 && MF_EVERSION == -10 && MF_EDRIVER == -11 && MF_ECAPTURE == -12 &&
                   MF_ETIMEOUT == -13,
               "statuses keep their numbers");
_Static_assert(MF_KIND_BOOL == 0 && MF_KIND_INT == 1 && MF_KIND_UINT == 2 && MF_KIND_FLOAT == 3 &&
                   MF_KIND_COMPLEX == 4 && MF_INDEX_AT == 0 && MF_INDEX_SLICE == 1 &&
                   MF_INDEX_NEWAXIS == 2 && MF_INDEX_ELLIPSIS == 3 && MF_INDEX_NONE == INT64_MIN,
               "kinds keep their numbers");
_Static_assert(MF_STREAM_CURRENT == 0 && MF_STREAM_DEFAULT == 1 && MF_STREAM_PER_THREAD == 2 &&
                   MF_STREAM_NO_ORDER == -1 && MF_STREAM_HOST == -2 && MF_NUMBER_NONE == INT64_MIN &&
                   MF_NONE_DEFAULT == 0 && MF_NONE_NO_ORDER == 1 && MF_NONE_REFUSE == 2 && MF_READ == 1 &&
                   MF_WRITE == 2 && MF_COPY_IF_NEEDED == 0 && MF_COPY_NEVER == 1 && MF_COPY_ALWAYS == 2,
               "streams and requests keep their numbers");

static void status_names(void **state) {
  static const char *const names[] = {"MF_OK",        "MF_EINVAL",  "MF_ENOMEM", "MF_EOVERFLOW",
                                      "MF_EBOUNDS",   "MF_EREADONLY", "MF_ECLOSED", "MF_EDTYPE",
                                      "MF_ELAYOUT",   "MF_EDEVICE", "MF_EVERSION", "MF_EDRIVER",
                                      "MF_ECAPTURE",  "MF_ETIMEOUT"};
  (void)state;
  for (int32_t i = 0; i < (int32_t)COUNT(names); i++) assert_string_equal(mf_status_name(-i), names[i]);
  assert_string_equal(mf_status_name(1), "MF_E?");
  assert_string_equal(mf_status_name(-(int32_t)COUNT(names)), "MF_E?");
  assert_string_equal(mf_status_name(INT32_MIN), "MF_E?");
  assert_string_equal(mf_status_name(INT32_MAX), "MF_E?");
}

static void version_and_build(void **state) {
  int major = -1;
  int minor = -1;
  int patch = -1;
  (void)state;
  assert_string_equal(mf_version_string(), MF_VERSION_STRING);
  assert_int_equal(sscanf(mf_version_string(), "%d.%d.%d", &major, &minor, &patch), 3);
  assert_non_null(strchr(mf_build_id(), '-'));
}

/* Runs nm on the loaded library and reads one dynamic symbol after another. */
static FILE *symbols(void) {
  Dl_info library;
  char command[4200];
  /* By name: the address of a function, taken in a program, may be the program's own stub. */
  void *entry = dlsym(RTLD_DEFAULT, "mf_tensor_create");
  assert_non_null(entry);
  assert_int_not_equal(dladdr(entry, &library), 0);
  snprintf(command, sizeof command, "nm -D --defined-only '%s'", library.dli_fname);
  return popen(command, "r");
}

/* What the header declares. */
static const char *const exported[] = {
    "mf_allocator_set", "mf_build_id", "mf_device_count", "mf_device_format", "mf_device_of_pointer",
    "mf_device_parse", "mf_device_synchronize", "mf_dltensor_check", "mf_dtype_bits", "mf_dtype_format",
    "mf_dtype_parse", "mf_export_delete_later", "mf_export_delete_later_legacy", "mf_fault_arm", "mf_fault_hits",
    "mf_fence_epoch", "mf_gl_buffer_close", "mf_gl_buffer_map", "mf_gl_buffer_open", "mf_gl_buffer_unmap",
    "mf_gl_create", "mf_gl_end", "mf_gl_fence", "mf_gl_release", "mf_gl_texture_close", "mf_gl_texture_download",
    "mf_gl_texture_open", "mf_gl_texture_upload", "mf_guest_collect", "mf_guest_finish",
    "mf_guest_set", "mf_ledger_read", "mf_pool_limit", "mf_pool_read", "mf_pool_trim", "mf_pools_trim",
    "mf_release_defer", "mf_release_list_run", "mf_release_mark", "mf_releases_run", "mf_ring_begin",
    "mf_ring_count", "mf_ring_create", "mf_ring_end",
    "mf_ring_fence", "mf_ring_latest", "mf_ring_publish", "mf_ring_release", "mf_ring_retain", "mf_ring_slot",
    "mf_semaphore_from_fd", "mf_semaphore_release", "mf_semaphore_signal", "mf_semaphore_wait",
    "mf_simd", "mf_simd_set", "mf_status_name", "mf_stream_check", "mf_stream_create", "mf_stream_current",
    "mf_stream_destroy", "mf_stream_from_number", "mf_stream_none", "mf_stream_none_set", "mf_stream_query",
    "mf_stream_swap", "mf_stream_synchronize", "mf_stream_to_number", "mf_stream_wait", "mf_tensor_acquire",
    "mf_tensor_as_readonly", "mf_tensor_astype", "mf_tensor_borrow", "mf_tensor_broadcast_to", "mf_tensor_clone",
    "mf_tensor_copy", "mf_tensor_copy_part", "mf_tensor_create", "mf_tensor_diagonal", "mf_tensor_dltensor",
    "mf_tensor_equal",
    "mf_tensor_expand_dims", "mf_tensor_export", "mf_tensor_export_legacy", "mf_tensor_export_legacy_to",
    "mf_tensor_export_to", "mf_tensor_fence", "mf_tensor_fence_wait", "mf_tensor_fill", "mf_tensor_flags",
    "mf_tensor_from_fd", "mf_tensor_get", "mf_tensor_import", "mf_tensor_import_legacy", "mf_tensor_index",
    "mf_tensor_invalidate", "mf_tensor_is_contiguous", "mf_tensor_is_ordered", "mf_tensor_is_valid",
    "mf_tensor_nbytes", "mf_tensor_permute_dims", "mf_tensor_put", "mf_tensor_record", "mf_tensor_reinterpret",
    "mf_tensor_release", "mf_tensor_release_later", "mf_tensor_reshape", "mf_tensor_retain", "mf_tensor_size",
    "mf_tensor_squeeze", "mf_tensor_to", "mf_tensor_wrap", "mf_threads", "mf_threads_set", "mf_version_string",
};

static bool declared(const char *name) {
  for (size_t i = 0; i < COUNT(exported); i++) {
    if (strcmp(exported[i], name) == 0) return true;
  }
  return false;
}

static void exports_the_header_and_nothing_else(void **state) {
  char line[512];
  int functions = 0;
  (void)state;
  FILE *nm = symbols();
  while (fgets(line, sizeof line, nm) != NULL) {
    char kind;
    char name[400];
    if (sscanf(line, "%*x %c %399[^@\n]", &kind, name) != 2) continue;
    if (kind == 'A') continue; /* the name of the symbol version itself */
    if (!declared(name)) fail_msg("the library exports %s", name);
    assert_int_equal(kind, 'T');
    functions++;
  }
  assert_int_equal(pclose(nm), 0);
  assert_int_equal(functions, COUNT(exported));
}

/* A program that asks for the library by its SONAME gets the one that is loaded. */
static void one_copy_by_soname(void **state) {
  (void)state;
  void *handle = dlopen("libmoonferry.so.0", RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(handle);
  assert_ptr_equal(dlsym(handle, "mf_build_id"), dlsym(RTLD_DEFAULT, "mf_build_id"));
  dlclose(handle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(status_names),
      SPEC(version_and_build),
      SPEC(exports_the_header_and_nothing_else),
      SPEC(one_copy_by_soname),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
