/* name_fuzz.c: a libFuzzer target for names of dtypes and devices, as texts and as numbers.
 *
 * A name that is taken is the one that its value is written with, a value that is written is read back as it was, and
 * what is refused leaves an error that quotes it. The input is a text; its first bytes are also taken as a dtype, a
 * device and the room there is to write to.
 */
#include "moonferry.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 200, ENOUGH = 32 };

static void check(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "name_fuzz: %s\n", what);
  abort();
}

static void refused(int rc, const mf_error *err) {
  check(rc < 0 && err->status == rc && err->call != NULL, "a refusal says which and where");
  check(memchr(err->message, 0, sizeof err->message) != NULL && err->message[0] != '\0', "a refusal has a message");
}

static void read_dtype(const char *name) {
  DLDataType dtype = {.code = 99};
  char back[ENOUGH];
  mf_error err;
  const int rc = mf_dtype_parse(name, &dtype, &err);
  if (rc == MF_OK) {
    check(mf_dtype_format(&dtype, back, sizeof back, &err) == MF_OK, "a dtype that has a name is written");
    check(strcmp(back, name) == 0, "a dtype has one name");
    check(mf_dtype_bits(&dtype, 0) >= dtype.bits, "a dtype has room for its bits");
  } else {
    refused(rc, &err);
    check(dtype.code == 99, "a name that is refused writes nothing");
  }
}

/* A name is a word, alone for the first device of its kind, or with a colon and digits. */
static void check_device(const char *name, const DLDevice *device, const char *back) {
  const size_t length = strcspn(name, ":");
  check(strcspn(back, ":") == length && memcmp(name, back, length) == 0, "a kind of device has one word");
  const char *digits = name[length] == ':' ? name + length + 1 : "0";
  check(digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0', "an ordinal has digits alone");
  check(strtoull(digits, NULL, 10) == (unsigned long long)device->device_id, "an ordinal is what its digits say");
}

static void read_device(const char *name) {
  DLDevice device = {.device_id = 99}, again = {0};
  char back[ENOUGH];
  mf_error err;
  const int rc = mf_device_parse(name, &device, &err);
  if (rc == MF_OK) {
    check(mf_device_format(&device, back, sizeof back, &err) == MF_OK, "a device that has a name is written");
    check(mf_device_parse(back, &again, &err) == MF_OK, "what is written can be read");
    check(again.device_type == device.device_type && again.device_id == device.device_id, "and is the same device");
    check_device(name, &device, back);
  } else {
    refused(rc, &err);
    check(device.device_id == 99, "a name that is refused writes nothing");
  }
}

/* The room ends where its block does, so that a sanitizer sees what lies beyond; a byte lies before it, because a block
 * of 0 bytes has 1. */
static void write_dtype(const DLDataType *dtype, size_t room) {
  char *block = malloc(room + 1), *const name = block + 1;
  DLDataType back;
  mf_error err;
  const int rc = mf_dtype_format(dtype, name, room, &err);
  if (rc == MF_OK) {
    check(mf_dtype_parse(name, &back, &err) == MF_OK, "a name that was written can be read");
    check(memcmp(&back, dtype, sizeof back) == 0, "and is the same dtype");
  } else {
    refused(rc, &err);
    check(rc == MF_EDTYPE || room < ENOUGH, "32 bytes are enough for a name");
  }
  free(block);
}

static void write_device(const DLDevice *device, size_t room) {
  char *block = malloc(room + 1), *const name = block + 1;
  mf_error err;
  const int rc = mf_device_format(device, name, room, &err);
  if (rc != MF_OK) refused(rc, &err);
  check(rc == MF_OK || room < ENOUGH, "32 bytes are enough for any device");
  if (rc == MF_OK) check(strlen(name) < room, "a name is ended");
  free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  DLDataType dtype = {0};
  DLDevice device = {0};
  if (size > MOST_TEXT) return -1;
  char *text = malloc(size + 1);
  memcpy(text, data, size);
  text[size] = '\0';
  read_dtype(text);
  read_device(text);
  if (size > sizeof dtype) {
    memcpy(&dtype, data, sizeof dtype);
    write_dtype(&dtype, data[sizeof dtype] % (ENOUGH + 8));
  }
  if (size > sizeof device) {
    memcpy(&device, data, sizeof device);
    write_device(&device, data[sizeof device] % (ENOUGH + 8));
  }
  free(text);
  return 0;
}
