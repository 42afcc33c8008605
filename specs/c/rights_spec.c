/* rights_spec.c: a program that has other rights than its caller's reads no variable of the caller's environment. */
#define _GNU_SOURCE /* setenv, readlink */
#include "spec.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_USUAL_NUMBER "63"

/* A copy of this program that has another group's rights. */
static bool make_privileged(const char *path) {
  char bytes[65536];
  FILE *in = fopen("/proc/self/exe", "rb"), *out = fopen(path, "wb");
  if (in == NULL || out == NULL) return false;
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
    if (fwrite(bytes, 1, n, out) != n) return false;
  fclose(in);
  return fclose(out) == 0 && chown(path, 0, getgid() + 1) == 0 && chmod(path, 02755) == 0;
}

/* The status of that program, or of this one. */
static int status_of(const char *path) {
  int status = -1;
  const pid_t child = fork();
  if (child == 0) {
    setenv("MOONFERRY_THREADS", NO_USUAL_NUMBER, 1);
    execl(path, path, "tell", NULL);
    _exit(99);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_program_with_rights_of_others_does_not_read_it(void **state) {
  char here[4096], path[4200];
  const ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
  (void)state;
  const bool is_emulated = getenv("MOONFERRY_SPEC_EMULATED") != NULL;
  if (getuid() != 0 || is_emulated) {
    print_message("skip %s: %s\n", __func__,
                  is_emulated ? "QEMU starts a program without the rights that its file gives"
                              : "only root can give a program another group's rights");
    skip();
  }
  assert_true(length > 0);
  here[length] = '\0';
  snprintf(path, sizeof path, "%s.%d", here, (int)getpid());
  assert_true(make_privileged(path));
  const int usual = status_of(here), privileged = status_of(path);
  unlink(path);
  assert_int_equal(usual, 1);
  assert_int_equal(privileged, 0);
}

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1) return mf_threads() == atoi(NO_USUAL_NUMBER);
  const struct CMUnitTest tests[] = {SPEC(a_program_with_rights_of_others_does_not_read_it)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
