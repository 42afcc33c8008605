/* sim.c: `moonferry sim`, which runs a command on a simulated GPU, under one seed or several.
 *
 * It sets the environment, runs, collects and reports. Invariant: a variable that the user has set stays, unless
 * an option says otherwise; the command's own failure is this program's status. It must not know how a GPU is
 * simulated or what a finding says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const char program[] = "moonferry sim";

enum { HELP, SETUP, DEVICE, SEED, SEEDS, REPORT, DEVICES, MEMORY, FAIL, MISSING, VERSION, LOG, STRICT,
  NO_LEDGER, OF, FAIL_OF, LINES, KERNELS, COUNT };
static const char *const runtimes[] = {"libcudart.so.12", "libcudart.so.13"};

static cli_option options[COUNT] = {
    [HELP] = {"--help", NULL, "this text", CLI_FLAG, NULL, 0, 0, NULL, 0},
    [SETUP] = {"--setup", "torch|jax", "run nothing, but make a virtual environment with PyTorch or JAX for CUDA,\n"
               "without the libraries of kernels, in the folder that follows (torch-venv, jax-venv)",
               CLI_WORD, NULL, 0, 0, NULL, 0},
    [DEVICE] = {"--device", "cuda|hip", "which driver is simulated: libcuda.so.1 (the default) or libamdhip64.so.7",
                CLI_WORD, NULL, 0, 0, NULL, 0},
    [SEED] = {"--seed", "N", "the order in which queued work runs: 0 as late as it may (the default), others random",
              CLI_NUMBER, "SIM_SEED", 0, UINT64_MAX, NULL, 0},
    [SEEDS] = {"--seeds", "K", "run the command K times, under seeds N, N+1, ... (1)", CLI_NUMBER, NULL, 1, 1000000,
               NULL, 0},
    [REPORT] = {"--report", "FILE", "write the report to FILE too; as JSON if its name ends in .json", CLI_WORD, NULL,
                0, 0, NULL, 0},
    [DEVICES] = {"--devices", "N", "how many devices there are, from 0 to 16 (2)", CLI_NUMBER, "SIM_DEVICES", 0, 16,
                 NULL, 0},
    [MEMORY] = {"--memory", "BYTES", "memory of each device; K, M or G may follow (4G)", CLI_SIZE, "SIM_MEMORY", 1,
                UINT64_MAX, NULL, 0},
    [FAIL] = {"--fail", "RULES", "calls that fail: CALL:STATUS, CALL@K:STATUS (its Kth call), #N:STATUS, *:STATUS,\n"
              "then perhaps :once, :on, :sticky or :late; separated by commas", CLI_WORD, "SIM_FAIL", 0, 0, NULL, 0},
    [FAIL_OF] = {"--fail-of", "PATH", "only calls from a library whose path contains PATH fail, and are counted for @K",
                 CLI_WORD, "SIM_FAIL_OF", 0, 0, NULL, 0},
    [MISSING] = {"--missing", "NAMES", "driver functions that do not exist, separated by commas", CLI_WORD,
                 "SIM_MISSING", 0, 0, NULL, 0},
    [VERSION] = {"--driver-version", "V", "version that the driver reports, such as 12040; newer calls are hidden",
                 CLI_NUMBER, "SIM_DRIVER_VERSION", 1, INT32_MAX, NULL, 0},
    [LOG] = {"--log", "FILE", "append a line for each driver call to FILE", CLI_WORD, "SIM_LOG", 0, 0, NULL, 0},
    [STRICT] = {"--strict", NULL, "warnings are findings", CLI_FLAG, "SIM_STRICT", 0, 0, NULL, 0},
    [NO_LEDGER] = {"--no-ledger", NULL, "what is left at the end of a process is no finding", CLI_FLAG, "SIM_LEDGER",
                   0, 0, NULL, 0},
    [OF] = {"--ledger-of", "PATH", "only what was made from a library whose path contains PATH is counted as left",
            CLI_WORD, "SIM_LEDGER_OF", 0, 0, NULL, 0},
    [LINES] = {"--lines", "N", "for how many calls of a process the line of Python that made them is looked up (5000)",
               CLI_NUMBER, "SIM_LINES", 0, UINT64_MAX, NULL, 0},
    [KERNELS] = {"--kernels", "refuse|opaque", "what becomes of a launch of compiled code, which cannot run: it is\n"
                 "refused (the default), or stands for a write to all memory that its arguments reach", CLI_WORD,
                 "SIM_KERNELS", 0, 0, NULL, 0},
};

static const char usage[] = "usage: moonferry sim [OPTION ...] [--] COMMAND [ARGUMENT ...]\n";
static const char what[] =
    "\nRuns COMMAND, for instance a pytest run or a Lua script, on a simulated GPU, and reports at the end what its\n"
    "processes did wrong there: races between streams, use of freed memory, misuse, leaks. No GPU is needed.\n\n";
static const char more[] =
    "\nEvery other setting of the simulator is an environment variable, SIM_...; what you have set stays unless an\n"
    "option says otherwise. MOONFERRY_SIM names the folder of the simulators, if they lie elsewhere.\n"
    "\nExit status: the first of COMMAND's own that is not 0 (128 + N if signal N ended it); else 1 if anything was\n"
    "found; else 0. 125: moonferry itself could not do it; 126: COMMAND cannot be run; 127: there is no COMMAND.\n"
    "\nexample: moonferry sim --seeds 20 -- pytest tests/gpu\n";

static int help(void) {
  fputs(usage, stdout);
  fputs(what, stdout);
  cli_options_help(options, COUNT);
  fputs(more, stdout);
  return cli_printed(0, CLI_TROUBLE);
}

/* One `moonferry sim`, from its words to its end. */
typedef struct session {
  char *const *command;
  const char *device;
  char *folder;         /* of the simulator */
  char journal[4096];   /* where processes write what they find */
  char *repeat[2 * COUNT + 1];
  uint64_t first, wanted, done;
  int *statuses;
  int status; /* the first of them that is not 0 */
  int report; /* descriptor, or -1 */
  cli_findings all;
} session;

static int wrong(const char *text) {
  fprintf(stderr, "%s: %s\n%s", program, text, usage);
  return CLI_TROUBLE;
}

static bool choose_device(session *s) {
  s->device = options[DEVICE].text != NULL ? options[DEVICE].text : "cuda";
  if (strcmp(s->device, "cuda") == 0 || strcmp(s->device, "hip") == 0) return true;
  fprintf(stderr, "%s: --device is '%s'; expected: cuda or hip\n", program, s->device);
  return false;
}

static bool choose_kernels(void) {
  const char *text = options[KERNELS].text;
  if (text == NULL || strcmp(text, "refuse") == 0 || strcmp(text, "opaque") == 0) return true;
  fprintf(stderr, "%s: --kernels is '%s'; expected: refuse or opaque\n", program, text);
  return false;
}

static bool choose_seeds(session *s) {
  const char *set = getenv("SIM_SEED");
  s->first = options[SEED].number;
  s->wanted = options[SEEDS].text != NULL ? options[SEEDS].number : 1;
  if (options[SEED].text == NULL && set != NULL && *set != '\0' && !cli_number(set, false, &s->first)) {
    fprintf(stderr, "%s: SIM_SEED is '%s'; expected: a whole number\n", program, set);
    return false;
  }
  if (s->wanted - 1 <= UINT64_MAX - s->first) return true;
  fprintf(stderr, "%s: --seed %" PRIu64 " and --seeds %" PRIu64 " go past the largest number\n", program, s->first,
          s->wanted);
  return false;
}

/* The command may change its folder; the file is meant from here. */
static char *absolute(const char *path) {
  cli_text t = {0};
  char *here = *path == '/' ? NULL : getcwd(NULL, 0);
  cli_addf(&t, "%s%s%s", here != NULL ? here : "", here != NULL ? "/" : "", path);
  free(here);
  return t.at;
}

static char *value_of(const cli_option *o) {
  cli_text t = {0};
  if (o == &options[NO_LEDGER])
    cli_add(&t, "off");
  else if (o == &options[LOG])
    return absolute(o->text);
  else if (o->kind == CLI_FLAG)
    cli_add(&t, "1");
  else if (o->kind == CLI_WORD)
    cli_add(&t, o->text);
  else
    cli_addf(&t, "%" PRIu64, o->number);
  return t.at;
}

/* A list with another entry, which comes first or last. */
static void add_to_list(const char *variable, const char *entry, bool first) {
  const char *before = getenv(variable);
  cli_text list = {0};
  const bool some = before != NULL && *before != '\0';
  cli_addf(&list, "%s%s%s", some && !first ? before : entry, some ? ":" : "", !some ? "" : first ? before : entry);
  setenv(variable, list.at, 1);
}

/* What stands beside the simulated driver, or NULL. */
static char *beside(const session *s, const char *file) {
  cli_text path = {0};
  const char *slash = strrchr(s->folder, '/');
  cli_addf(&path, "%.*s/cudart/%s", slash == NULL ? 0 : (int)(slash - s->folder), s->folder, file);
  return access(path.at, R_OK) == 0 ? path.at : NULL;
}

/* The runtimes of CUDA 12 and 13 are preloaded, because PyTorch's libraries name the folder of the real one, and the
 * loader looks there before it looks where LD_LIBRARY_PATH says. By their names alone, since a path in LD_PRELOAD
 * cannot have a space. A program gets the symbols of the version that it was linked with. */
static void set_runtime(const session *s) {
  bool found = false;
  for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++) {
    char *path = strcmp(s->device, "cuda") == 0 ? beside(s, runtimes[i]) : NULL;
    if (path == NULL) continue;
    *strrchr(path, '/') = '\0';
    if (!found) add_to_list("LD_LIBRARY_PATH", path, true);
    found = true;
    add_to_list("LD_PRELOAD", runtimes[i], false);
  }
}

static void set_environment(const session *s) {
  set_runtime(s);
  add_to_list("LD_LIBRARY_PATH", s->folder, true);
  setenv("SIM_JOURNAL", s->journal, 1);
  setenv("SIM_LINES", "5000", 0);
  for (size_t i = 0; i < COUNT; i++)
    if (options[i].variable != NULL && options[i].text != NULL) setenv(options[i].variable, value_of(&options[i]), 1);
}

/* The options that make a repetition the same: all but those about seeds, reports and logs. */
static void remember_options(session *s) {
  size_t n = 0;
  for (size_t i = DEVICE; i < COUNT; i++) {
    const cli_option *o = &options[i];
    if (o->text == NULL || i == SEED || i == SEEDS || i == REPORT || i == LOG) continue;
    s->repeat[n++] = cli_copy(o->name, strlen(o->name));
    if (o->kind != CLI_FLAG) s->repeat[n++] = cli_copy(o->text, strlen(o->text));
  }
}

static bool find_simulator(session *s) {
  s->folder = cli_simulator(s->device);
  if (s->folder == NULL) return false;
  if (strpbrk(s->folder, ":;$") == NULL)
    return options[FAIL].text == NULL || cli_simulator_takes(s->folder, s->device, options[FAIL].text);
  fprintf(stderr, "%s: the simulator lies in '%s', a folder that LD_LIBRARY_PATH cannot name\n", program, s->folder);
  return false;
}

/* Does not come back if it can be begun. */
static int set_up(session *s, char *const *words) {
  const char *what_for = options[SETUP].text;
  if (strcmp(what_for, "torch") != 0 && strcmp(what_for, "jax") != 0) {
    fprintf(stderr, "%s: --setup is '%s'; expected: torch or jax\n", program, what_for);
    return CLI_TROUBLE;
  }
  if (words[0] != NULL && words[1] != NULL) return wrong("--setup takes one folder");
  if (!choose_device(s) || !find_simulator(s)) return CLI_TROUBLE;
  cli_text file = {0}, folder = {0};
  cli_addf(&file, "setup-%s.sh", what_for);
  cli_addf(&folder, "%s-venv", what_for);
  const char *script = beside(s, file.at);
  if (script != NULL) execlp("sh", "sh", script, words[0] != NULL ? words[0] : folder.at, (char *)NULL);
  fprintf(stderr, "%s: cannot run the script cudart/%s beside '%s': %s\n", program, file.at, s->folder,
          strerror(errno));
  return CLI_TROUBLE;
}

/* A descriptor that is none of the standard streams: if one of those is closed, what is written there would get into
 * the file. */
static int beyond_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
  close(fd);
  errno = why;
  return moved;
}

/* Before anything runs: a long run must not end without a place for its report. */
static bool open_report(session *s) {
  const char *path = options[REPORT].text;
  s->report = path == NULL ? -1 : beyond_streams(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (path == NULL || s->report >= 0) return true;
  fprintf(stderr, "%s: cannot write the report '%s': %s\n", program, path, strerror(errno));
  return false;
}

static bool make_journal(session *s) {
  const char *set = getenv("TMPDIR");
  const char *parent = set != NULL && *set == '/' ? set : "/tmp";
  const int n = snprintf(s->journal, sizeof s->journal, "%s/moonferry-sim-XXXXXX", parent);
  if (n > 0 && (size_t)n < sizeof s->journal && mkdtemp(s->journal) != NULL) return true;
  fprintf(stderr, "%s: cannot make a folder in '%s' (TMPDIR): %s\n", program, parent, strerror(errno));
  return false;
}

/* One run; false when there is to be no other. */
static bool run_seed(session *s, uint64_t seed) {
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, seed);
  setenv("SIM_SEED", text, 1);
  const cli_ended ended = cli_run(s->command);
  cli_collect(&s->all, s->journal, seed);
  if (s->status == 0) s->status = ended.status;
  if (!ended.ran) return false;
  s->statuses = cli_room(s->statuses, (s->done + 1) * sizeof *s->statuses);
  s->statuses[s->done++] = ended.status;
  return cli_stopped_by() == 0;
}

/* The command may have made what it shares with this program non-blocking, as its standard error. */
static bool write_all(int fd, const cli_text *text) {
  for (size_t at = 0; at < text->size;) {
    const ssize_t n = write(fd, text->at + at, text->size - at);
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (n < 0 && errno == EAGAIN) poll(&room, 1, -1);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n > 0) at += (size_t)n;
  }
  return true;
}

static bool is_json(const char *path) {
  const size_t n = strlen(path);
  return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

/* The file first: where nobody reads what is shown, that may end the program. */
static int report(session *s) {
  uint64_t strict = 0;
  const char *set = getenv("SIM_STRICT");
  if (set != NULL && !cli_number(set, false, &strict)) strict = 0;
  if (s->done > 0) cli_note_idle_rules(&s->all, s->folder, s->device, s->first, strict != 0);
  const cli_report r = {.all = &s->all, .command = s->command, .options = s->repeat, .device = s->device,
                        .first_seed = s->first, .nseeds = s->done, .statuses = s->statuses, .strict = strict != 0};
  cli_text shown = {0}, kept = {0};
  cli_report_text(&r, false, &shown);
  if (s->report >= 0 && is_json(options[REPORT].text))
    cli_report_json(&r, &kept);
  else
    cli_report_text(&r, true, &kept);
  const int why = s->report >= 0 && !write_all(s->report, &kept) ? errno : 0;
  cli_release_signals();
  if (s->done > 0) write_all(STDERR_FILENO, &shown);
  if (why != 0) {
    fprintf(stderr, "%s: cannot write the report '%s': %s\n", program, options[REPORT].text, strerror(why));
    return s->status != 0 ? s->status : CLI_TROUBLE;
  }
  if (s->status != 0) return s->status;
  return cli_report_count(&r) > 0 ? CLI_FOUND : 0;
}

static void run_seeds(session *s) {
  for (uint64_t i = 0; i < s->wanted; i++)
    if (!run_seed(s, s->first + i)) break;
  if (s->status == 0 && cli_stopped_by() != 0) s->status = 128 + cli_stopped_by();
  if (rmdir(s->journal) != 0) fprintf(stderr, "%s: %s stays: %s\n", program, s->journal, strerror(errno));
}

int cli_sim(int argc, char **argv) {
  session s = {.report = -1};
  const int taken = cli_options_read(options, COUNT, argv + 1, program);
  if (taken < 0) return CLI_TROUBLE;
  if (options[HELP].text != NULL) return help();
  if (options[SETUP].text != NULL) return set_up(&s, argv + 1 + taken);
  if (taken + 1 >= argc) return wrong("there is no command to run");
  s.command = argv + 1 + taken;
  if (!choose_device(&s) || !choose_seeds(&s) || !choose_kernels() || !find_simulator(&s)) return CLI_TROUBLE;
  if (!open_report(&s)) return CLI_TROUBLE;
  cli_catch_signals(); /* until the folder is gone again, and the file of the report is written */
  if (!make_journal(&s)) return CLI_TROUBLE;
  remember_options(&s);
  set_environment(&s);
  run_seeds(&s);
  return report(&s);
}
