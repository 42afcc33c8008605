/* edit.c: a line of input, with editing and history where libedit is there, as it comes where not.
 *
 * libedit is looked for when the prompt starts, so that the program needs it neither to build nor to run; the few names
 * and numbers of its interface are declared here, and specs/cli compares them with its header. Invariants: the signals
 * that mean something to a line are blocked except while this file waits for a key or a completion is looked for, so
 * that none is lost and none cuts anything else short; and a signal that ends or stops the program leaves the terminal
 * in the modes that it had before the line. It must not know what a line means. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <termios.h>
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
static volatile sig_atomic_t interrupts, resized, resumed;

/* What they do outside of this file is in outer. */
enum { INTERRUPT, RESIZE, LEAVING, SIGNALS = 6 };
static const int signals[SIGNALS] = {SIGINT, SIGWINCH, SIGTSTP, SIGTERM, SIGHUP, SIGQUIT};
static struct sigaction outer[SIGNALS];

/* The terminal's modes before the line, and whether it may have others now. */
static struct termios modes;
static volatile sig_atomic_t raw;

void edit_give_back(void) {
  if (raw) tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

/* Another thread may get the signal while the main thread blocks it, but only the main thread waits for a key. */
static void on_signal(int number) {
  const pid_t main_thread = getpid();
  if (syscall(SYS_gettid) != main_thread)
    syscall(SYS_tgkill, main_thread, main_thread, number);
  else if (number == SIGINT)
    interrupts = 1;
  else
    resized = 1;
}

/* Does what the signal does outside of this file, in the modes that belong there. A program that was stopped goes on
 * here, and one that has a handler of its own. */
static void on_leaving(int number) {
  const int before = errno;
  struct termios of_line;
  struct sigaction ours;
  sigset_t one, mask;
  int i = LEAVING;
  const bool changed = tcgetattr(STDIN_FILENO, &of_line) == 0;
  while (signals[i] != number) i++;
  edit_give_back();
  sigemptyset(&one);
  sigaddset(&one, number);
  sigaction(number, &outer[i], &ours);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &one, &mask);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  sigaction(number, &ours, NULL);
  if (changed) tcsetattr(STDIN_FILENO, TCSANOW, &of_line);
  resumed = 1;
  errno = before;
}

static sigset_t all_signals(void) {
  sigset_t all;
  sigemptyset(&all);
  for (int i = 0; i < SIGNALS; i++) sigaddset(&all, signals[i]);
  return all;
}

/* What was stopped may go on in a window of another size, below what the shell has said. */
static void draw_again(void) {
  if (resized || resumed) lib.resize(editor);
  if (resumed) lib.set(editor, EL_REFRESH);
  resized = 0;
  resumed = 0;
}

/* Waits for a byte. 1; 0 at the end; -1 after Ctrl-C. Where there is a byte, ppoll lets no signal in, although one may
 * have come before the byte. */
static int read_byte(char *out) {
  sigset_t none, mask;
  sigprocmask(SIG_SETMASK, NULL, &none);
  for (int i = 0; i < SIGNALS; i++) sigdelset(&none, signals[i]);
  for (;;) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    const int ready = ppoll(&in, 1, NULL, &none);
    sigprocmask(SIG_SETMASK, &none, &mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (interrupts) return -1;
    draw_again();
    if (ready < 0) continue;
    const ssize_t n = read(STDIN_FILENO, out, 1);
    if (n >= 0 || (errno != EINTR && errno != EAGAIN)) return n == 1;
  }
}

/* libedit's reader of a character. */
static int read_wide(EditLine *unused, wchar_t *out) {
  static int behind = -1; /* a byte that came where a character should have gone on */
  mbstate_t state;
  char byte;
  (void)unused;
  memset(&state, 0, sizeof state);
  for (bool first = true;; first = false) {
    const int got = behind < 0 ? read_byte(&byte) : 1;
    if (behind >= 0) byte = (char)behind;
    behind = -1;
    if (got <= 0) {
      errno = 0;
      return got;
    }
    const size_t n = mbrtowc(out, &byte, 1, &state);
    if (n == (size_t)-2) continue;
    if (n == (size_t)-1) {
      if (!first) behind = (unsigned char)byte;
      *out = L'?';
    }
    return 1;
  }
}

void edit_lend_signals(void) {
  const sigset_t all = all_signals();
  sigaction(SIGINT, &outer[INTERRUPT], NULL);
  sigprocmask(SIG_UNBLOCK, &all, NULL);
}

void edit_take_signals(void) {
  const sigset_t all = all_signals();
  struct sigaction ours;
  memset(&ours, 0, sizeof ours);
  ours.sa_handler = on_signal;
  sigprocmask(SIG_BLOCK, &all, NULL);
  sigaction(SIGINT, &ours, &outer[INTERRUPT]);
}

/* A Ctrl-C that has come before the search is for the line. */
static edit_completion looked_up(const char *before, size_t size) {
  sigset_t pending;
  sigpending(&pending);
  if (sigismember(&pending, SIGINT)) return (edit_completion){.stopped = false};
  return completer(completer_data, before, size);
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
  atexit(edit_give_back); /* a completion may call os.exit */
}

bool edit_able(void) {
  return editor != NULL;
}

/* Puts a '?' for each byte that is no character, as read_wide does: libedit gives no line that has such a byte, and
 * none that is older. */
static void mend_characters(char *line) {
  mbstate_t state;
  memset(&state, 0, sizeof state);
  for (size_t left = strlen(line); left > 0;) {
    const size_t n = mbrlen(line, left, &state);
    const bool wrong = n > left;
    if (wrong) {
      *line = '?';
      memset(&state, 0, sizeof state);
    }
    line += wrong ? 1 : n;
    left -= wrong ? 1 : n;
  }
}

void edit_remember(const char *line) {
  HistEvent event;
  if (history == NULL) return;
  char *text = cli_copy(line, strlen(line));
  mend_characters(text);
  lib.history(history, &event, H_ENTER, text);
  free(text);
}

void edit_close(void) {
  if (history != NULL) lib.history_end(history);
  if (editor != NULL) lib.end(editor);
  history = NULL;
  editor = NULL;
}

static char *plain_line(size_t *length) {
  char *line = NULL;
  size_t size = 0, room = 0;
  int got;
  char byte = '\0';
  while ((got = read_byte(&byte)) == 1 && byte != '\n') {
    if (size + 2 > room) line = cli_room(line, room = (size + 2) * 2);
    line[size++] = byte;
    line[size] = '\0';
  }
  *length = size;
  if (interrupts) {
    free(line);
    return NULL;
  }
  return line == NULL && got == 1 ? cli_copy("", 0) : line;
}

/* Raw before the prompt is shown: what is typed between the two would be echoed by the terminal as well. */
static char *edited_line(size_t *length) {
  int count = 0;
  raw = tcgetattr(STDIN_FILENO, &modes) == 0;
  lib.set(editor, EL_PREP_TERM, 1);
  const char *line = lib.gets(editor, &count);
  if (interrupts) lib.reset(editor);
  raw = 0;
  if (line == NULL || count <= 0 || interrupts) return NULL;
  *length = strcspn(line, "\n");
  return cli_copy(line, *length);
}

/* Without an editor the terminal keeps its modes, and all signals but Ctrl-C keep what they do. */
static void catch_signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_mask = all_signals();
  for (int i = 0; i < SIGNALS; i++) {
    sigaction(signals[i], NULL, &outer[i]);
    action.sa_handler = i < LEAVING ? on_signal : on_leaving;
    const bool ignored = i >= LEAVING && outer[i].sa_handler == SIG_IGN;
    if (i == INTERRUPT || (editor != NULL && !ignored)) sigaction(signals[i], &action, NULL);
  }
}

static void release_signals(void) {
  for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &outer[i], NULL);
}

edit_result edit_line(const char *prompt) {
  const sigset_t all = all_signals();
  sigset_t mask;
  size_t size = 0;
  sigprocmask(SIG_BLOCK, &all, &mask);
  catch_signals();
  interrupts = 0;
  shown_prompt = prompt;
  if (editor == NULL) fputs(prompt, stdout);
  fflush(stdout);
  char *line = editor != NULL ? edited_line(&size) : plain_line(&size);
  const edit_result result = {.line = line, .size = size, .interrupted = interrupts};
  if (line == NULL) puts(result.interrupted && editor != NULL ? "^C" : "");
  release_signals();
  sigprocmask(SIG_SETMASK, &mask, NULL);
  return result;
}
