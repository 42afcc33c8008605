/* edit.c: a line of input, with editing and history where libedit is there, as it comes where not.
 *
 * libedit is looked for when the prompt starts, so that the program needs it neither to build nor to run; the few names
 * and numbers of its interface are declared here, and specs/cli compares them with its header. Invariant: SIGINT is
 * blocked except while this file waits for a key or a completion is looked for, so that none is lost and none cuts
 * anything else short. It must not know what a line means. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "cli.h"
#include "histedit.h"
#include "host.h"

enum { HISTORY_LINES = 2000 };

static struct {
  EditLine *(*init)(const char *, FILE *, FILE *, FILE *);
  void (*end)(EditLine *);
  const char *(*gets)(EditLine *, int *);
  int (*set)(EditLine *, int, ...);
  int (*insertstr)(EditLine *, const char *);
  const LineInfo *(*line)(EditLine *);
  void (*resize)(EditLine *);
  void (*reset)(EditLine *);
  History *(*history_init)(void);
  void (*history_end)(History *);
  int (*history)(History *, HistEvent *, int, ...);
} lib;

static EditLine *editor;
static History *history;
static const char *shown_prompt;
static edit_completer *completer;
static void *completer_data;
static volatile sig_atomic_t interrupts, resized;
static struct sigaction outer; /* what Ctrl-C is outside of this file */

static void on_signal(int number) {
  if (number == SIGINT)
    interrupts = 1;
  else
    resized = 1;
}

/* Waits for a byte. 1; 0 at the end; -1 after Ctrl-C. */
static int read_byte(char *out) {
  sigset_t none;
  sigprocmask(SIG_SETMASK, NULL, &none);
  sigdelset(&none, SIGINT);
  sigdelset(&none, SIGWINCH);
  for (;;) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    const int ready = ppoll(&in, 1, NULL, &none);
    if (interrupts) return -1;
    if (resized && editor != NULL) lib.resize(editor);
    resized = 0;
    if (ready < 0) continue;
    const ssize_t n = read(STDIN_FILENO, out, 1);
    if (n >= 0 || (errno != EINTR && errno != EAGAIN)) return n == 1;
  }
}

/* libedit's reader of a character. */
static int read_wide(EditLine *unused, wchar_t *out) {
  mbstate_t state;
  char byte;
  (void)unused;
  memset(&state, 0, sizeof state);
  for (;;) {
    const int got = read_byte(&byte);
    if (got <= 0) {
      errno = 0;
      return got;
    }
    const size_t n = mbrtowc(out, &byte, 1, &state);
    if (n == (size_t)-2) continue;
    if (n == (size_t)-1) {
      memset(&state, 0, sizeof state);
      *out = L'?';
    }
    return 1;
  }
}

/* A table's __index or an attribute of Python's may run code of the user's, and Ctrl-C is for that meanwhile. One that
 * has come before is for the line. */
static edit_completion looked_up(const char *before, size_t size) {
  struct sigaction ours;
  sigset_t interrupt;
  sigpending(&interrupt);
  if (sigismember(&interrupt, SIGINT)) return (edit_completion){.stopped = false};
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigaction(SIGINT, &outer, &ours);
  sigprocmask(SIG_UNBLOCK, &interrupt, NULL);
  const edit_completion answer = completer(completer_data, before, size);
  sigprocmask(SIG_BLOCK, &interrupt, NULL);
  sigaction(SIGINT, &ours, &outer);
  return answer;
}

static unsigned char on_tab(EditLine *e, int unused) {
  const LineInfo *line = lib.line(e);
  const size_t size = (size_t)(line->cursor - line->buffer);
  (void)unused;
  if (strspn(line->buffer, " \t") >= size) return lib.insertstr(e, "  ") == 0 ? CC_REFRESH : CC_ERROR;
  const edit_completion answer = looked_up(line->buffer, size);
  unsigned char action = answer.listing != NULL || answer.stopped ? CC_REDISPLAY : CC_REFRESH_BEEP;
  if (answer.insert != NULL) action = lib.insertstr(e, answer.insert) == 0 ? CC_REFRESH : CC_ERROR;
  if (answer.insert == NULL && answer.listing != NULL) {
    printf("\n%s\n", answer.listing);
    fflush(stdout);
  }
  free(answer.insert);
  free(answer.listing);
  return action;
}

static char *prompt_now(EditLine *unused) {
  (void)unused;
  return (char *)(uintptr_t)shown_prompt;
}

static bool find(void *library) {
  static const struct {
    void *slot;
    const char *name;
  } names[] = {{&lib.init, "el_init"}, {&lib.end, "el_end"}, {&lib.gets, "el_gets"}, {&lib.set, "el_set"},
               {&lib.insertstr, "el_insertstr"}, {&lib.line, "el_line"}, {&lib.resize, "el_resize"},
               {&lib.reset, "el_reset"}, {&lib.history_init, "history_init"}, {&lib.history_end, "history_end"},
               {&lib.history, "history"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *found = dlsym(library, names[i].name);
    if (found == NULL) return false;
    memcpy(names[i].slot, &found, sizeof found);
  }
  return true;
}

static bool load(void) {
  static const char *const files[] = {"libedit.so.2", "libedit.so.0", "libedit.so"};
  const char *chosen = getenv("MOONFERRY_LIBEDIT");
  const char *terminal = getenv("TERM");
  if (terminal == NULL || strcmp(terminal, "dumb") == 0) return false;
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return false;
  if (chosen != NULL) {
    void *library = *chosen != '\0' ? dlopen(chosen, RTLD_NOW | RTLD_LOCAL) : NULL;
    return library != NULL && find(library);
  }
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    void *library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) return find(library);
  }
  return false;
}

/* libedit takes characters by the locale; where that is plain C, UTF-8 is still what terminals send. */
static void set_locale(void) {
  setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
}

static void set_up(void) {
  HistEvent event;
  lib.set(editor, EL_SIGNAL, 0);
  lib.set(editor, EL_EDITOR, "emacs");
  lib.set(editor, EL_PROMPT, prompt_now);
  lib.set(editor, EL_GETCFN, read_wide);
  lib.set(editor, EL_ADDFN, "moonferry-complete", "completes a name", on_tab);
  lib.set(editor, EL_BIND, "^I", "moonferry-complete", NULL);
  lib.set(editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
  lib.set(editor, EL_BIND, "\033[3~", "ed-delete-next-char", NULL);
  lib.set(editor, EL_BIND, "\033[1;5D", "ed-prev-word", NULL);
  lib.set(editor, EL_BIND, "\033[1;5C", "em-next-word", NULL);
  history = lib.history_init();
  if (history == NULL) return;
  lib.history(history, &event, H_SETSIZE, HISTORY_LINES);
  lib.history(history, &event, H_SETUNIQUE, 1);
  lib.set(editor, EL_HIST, lib.history, history);
}

void edit_open(edit_completer *complete, void *data) {
  completer = complete;
  completer_data = data;
  if (!load()) return;
  set_locale();
  editor = lib.init("moonferry", stdin, stdout, stderr);
  if (editor != NULL) set_up();
}

bool edit_able(void) {
  return editor != NULL;
}

void edit_remember(const char *line) {
  HistEvent event;
  if (history != NULL) lib.history(history, &event, H_ENTER, line);
}

void edit_close(void) {
  if (history != NULL) lib.history_end(history);
  if (editor != NULL) lib.end(editor);
  history = NULL;
  editor = NULL;
}

static char *plain_line(void) {
  char *line = NULL;
  size_t size = 0, room = 0;
  int got;
  char byte = '\0';
  while ((got = read_byte(&byte)) == 1 && byte != '\n') {
    if (size + 2 > room) line = cli_room(line, room = (size + 2) * 2);
    line[size++] = byte;
    line[size] = '\0';
  }
  if (interrupts) {
    free(line);
    return NULL;
  }
  return line == NULL && got == 1 ? cli_copy("", 0) : line;
}

/* Raw before the prompt is shown: what is typed between the two would be echoed by the terminal as well. */
static char *edited_line(void) {
  int count = 0;
  lib.set(editor, EL_PREP_TERM, 1);
  const char *line = lib.gets(editor, &count);
  if (interrupts) lib.reset(editor);
  if (line == NULL || count <= 0 || interrupts) return NULL;
  return cli_copy(line, strcspn(line, "\n"));
}

edit_result edit_line(const char *prompt) {
  struct sigaction action, resizes;
  sigset_t block, mask;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigemptyset(&block);
  sigaddset(&block, SIGINT);
  sigaddset(&block, SIGWINCH);
  sigprocmask(SIG_BLOCK, &block, &mask);
  sigaction(SIGINT, &action, &outer);
  sigaction(SIGWINCH, &action, &resizes);
  interrupts = 0;
  shown_prompt = prompt;
  if (editor == NULL) fputs(prompt, stdout);
  fflush(stdout);
  char *line = editor != NULL ? edited_line() : plain_line();
  const edit_result result = {.line = line, .interrupted = interrupts};
  if (line == NULL) puts(result.interrupted && editor != NULL ? "^C" : "");
  sigaction(SIGINT, &outer, NULL);
  sigaction(SIGWINCH, &resizes, NULL);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  return result;
}
