/* hiprtc.c: the simulated hiprtc. It compiles Moonferry's own texts, to what the simulated HIP runtime takes as a
 * module, and refuses every other one.
 *
 * It must not know a device. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>

#include "native.h"
#include "sim.h"

typedef enum hiprtcResult {
  HIPRTC_SUCCESS = 0,
  HIPRTC_ERROR_INVALID_INPUT = 3,
  HIPRTC_ERROR_INVALID_PROGRAM = 4,
  HIPRTC_ERROR_COMPILATION = 6
} hiprtcResult;

typedef struct _hiprtcProgram {
  char *text, *code;
  const char *log;
} *hiprtcProgram;

#define PUBLIC __attribute__((visibility("default")))

PUBLIC const char *hiprtcGetErrorString(hiprtcResult code);
const char *hiprtcGetErrorString(hiprtcResult code) {
  switch (code) {
    case HIPRTC_SUCCESS: return "HIPRTC_SUCCESS";
    case HIPRTC_ERROR_INVALID_INPUT: return "HIPRTC_ERROR_INVALID_INPUT";
    case HIPRTC_ERROR_INVALID_PROGRAM: return "HIPRTC_ERROR_INVALID_PROGRAM";
    case HIPRTC_ERROR_COMPILATION: return "HIPRTC_ERROR_COMPILATION";
    default: return "Invalid HIPRTC error code";
  }
}

PUBLIC hiprtcResult hiprtcVersion(int *major, int *minor);
hiprtcResult hiprtcVersion(int *major, int *minor) {
  if (major == NULL || minor == NULL) return HIPRTC_ERROR_INVALID_INPUT;
  *major = 9;
  *minor = 0;
  return HIPRTC_SUCCESS;
}

PUBLIC hiprtcResult hiprtcCreateProgram(hiprtcProgram *out, const char *text, const char *name, int nheaders,
                                        const char **headers, const char **names);
hiprtcResult hiprtcCreateProgram(hiprtcProgram *out, const char *text, const char *name, int nheaders,
                                 const char **headers, const char **names) {
  (void)name;
  if (out == NULL || text == NULL || nheaders < 0 || (nheaders > 0 && (headers == NULL || names == NULL)))
    return HIPRTC_ERROR_INVALID_INPUT;
  hiprtcProgram p = calloc(1, sizeof *p);
  if (p == NULL || (p->text = strdup(text)) == NULL) abort();
  p->log = "";
  *out = p;
  return HIPRTC_SUCCESS;
}

PUBLIC hiprtcResult hiprtcDestroyProgram(hiprtcProgram *p);
hiprtcResult hiprtcDestroyProgram(hiprtcProgram *p) {
  if (p == NULL || *p == NULL) return HIPRTC_ERROR_INVALID_INPUT;
  free((*p)->text);
  free((*p)->code);
  free(*p);
  *p = NULL;
  return HIPRTC_SUCCESS;
}

PUBLIC hiprtcResult hiprtcCompileProgram(hiprtcProgram p, int n, const char **options);
hiprtcResult hiprtcCompileProgram(hiprtcProgram p, int n, const char **options) {
  native_program program;
  if (p == NULL) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (n < 0 || (n > 0 && options == NULL)) return HIPRTC_ERROR_INVALID_INPUT;
  if (!native_read(p->text, &program, &p->log)) return HIPRTC_ERROR_COMPILATION;
  const size_t nbytes = sizeof NATIVE_MAGIC + strlen(p->text);
  free(p->code);
  p->code = malloc(nbytes);
  if (p->code == NULL) abort();
  strcpy(p->code, NATIVE_MAGIC);
  strcat(p->code, p->text);
  return HIPRTC_SUCCESS;
}

PUBLIC hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram p, size_t *out);
hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram p, size_t *out) {
  if (p == NULL || out == NULL) return HIPRTC_ERROR_INVALID_INPUT;
  *out = strlen(p->log) + 1;
  return HIPRTC_SUCCESS;
}

PUBLIC hiprtcResult hiprtcGetProgramLog(hiprtcProgram p, char *out);
hiprtcResult hiprtcGetProgramLog(hiprtcProgram p, char *out) {
  if (p == NULL || out == NULL) return HIPRTC_ERROR_INVALID_INPUT;
  strcpy(out, p->log);
  return HIPRTC_SUCCESS;
}

PUBLIC hiprtcResult hiprtcGetCodeSize(hiprtcProgram p, size_t *out);
hiprtcResult hiprtcGetCodeSize(hiprtcProgram p, size_t *out) {
  if (out == NULL) return HIPRTC_ERROR_INVALID_INPUT;
  if (p == NULL || p->code == NULL) return HIPRTC_ERROR_INVALID_PROGRAM;
  *out = strlen(p->code) + 1;
  return HIPRTC_SUCCESS;
}

PUBLIC hiprtcResult hiprtcGetCode(hiprtcProgram p, char *out);
hiprtcResult hiprtcGetCode(hiprtcProgram p, char *out) {
  if (out == NULL) return HIPRTC_ERROR_INVALID_INPUT;
  if (p == NULL || p->code == NULL) return HIPRTC_ERROR_INVALID_PROGRAM;
  strcpy(out, p->code);
  return HIPRTC_SUCCESS;
}
