/* cli.h: what the files of the `moonferry` program share.
 *
 * A subcommand is a row of the table in main.c; its options are a table of cli_option. The program is one
 * thread and short-lived: what it allocates lives until it ends. It must not know the runtime, Lua or Python. */
#ifndef MOONFERRY_CLI_H
#define MOONFERRY_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The program's own failures, apart from what a command that it runs may answer: as env and timeout do it. */
enum { CLI_FOUND = 1, CLI_USAGE = 2, CLI_TROUBLE = 125, CLI_NOT_RUNNABLE = 126, CLI_NO_COMMAND = 127 };

/* text.c */
typedef struct cli_text {
  char *at; /* never NULL once something was added */
  size_t size, room;
} cli_text;

void *cli_room(void *old, size_t nbytes); /* realloc that ends the program when there is no memory */
char *cli_copy(const char *s, size_t size);
void cli_add(cli_text *t, const char *s);
void cli_add_bytes(cli_text *t, const char *s, size_t size);
void cli_addf(cli_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_add_json(cli_text *t, const char *s); /* quoted; what is no UTF-8 becomes U+FFFD */
void cli_add_shell(cli_text *t, const char *s); /* quoted where a shell would need it */
void cli_add_command(cli_text *t, char *const *words);
int cli_printed(int status, int trouble); /* trouble, if what was printed could not be written, which it says */
bool cli_begins(const char *s, const char *with);

/* option.c */
typedef enum cli_kind { CLI_FLAG, CLI_WORD, CLI_NUMBER, CLI_SIZE } cli_kind;

typedef struct cli_option {
  const char *name, *value, *help; /* "--seed", "N" or NULL for a flag, what it does */
  cli_kind kind;
  const char *variable; /* the environment variable that it sets, or NULL */
  uint64_t least, most; /* of a number */
  const char *text;     /* what was given; NULL: nothing */
  uint64_t number;
} cli_option;

/* Reads the options at the front of words. Returns how many words they are, the closing "--" included, or -1
 * after it has said on standard error what is wrong. */
int cli_options_read(cli_option *options, size_t count, char *const *words, const char *program);
void cli_options_help(const cli_option *options, size_t count);
bool cli_number(const char *text, bool size, uint64_t *out);

/* where.c */
const char *cli_package(void); /* the folder that lua/moonferry lies in, or NULL */
const char *cli_program(void); /* this file */
char *cli_simulator(const char *device); /* the folder it lies in, or NULL after saying where it was looked for */
const char *cli_simulator_file(const char *device);
bool cli_simulator_takes(const char *folder, const char *device, const char *rules);

/* process.c */
typedef struct cli_ended {
  int status; /* as a shell has it: 128 and the signal's number if it died of one */
  bool ran;
} cli_ended;

cli_ended cli_run(char *const *command); /* nothing, once a signal has asked this program to stop */

/* Around what must come to its end although a signal asks this program to stop; cli_run is such. They may nest. */
void cli_catch_signals(void);
void cli_release_signals(void);
int cli_stopped_by(void); /* the signal that has asked for that, or 0 */

/* child.c */
int cli_capture(char *const *command, unsigned seconds, cli_text *out); /* its status, or -1: it took too long */

/* finding.c */
typedef struct cli_finding {
  char *kind, *text, *key, *process;
  uint64_t *seeds; /* those it was seen under, ascending */
  size_t nseeds;
  uint64_t times;
  bool note; /* about the run, not about the program */
} cli_finding;

typedef struct cli_findings {
  cli_finding *at;
  size_t count;
  uint64_t processes; /* that called the simulated driver */
  char **struck;      /* the rules of --fail that a call met, each as often as that was said */
  size_t nstruck;
} cli_findings;

/* Takes what the processes of one run left in the folder, and empties it. */
void cli_collect(cli_findings *all, const char *folder, uint64_t seed);

/* Adds what concerns the run as a whole: a note, or a warning, which counts under --strict. */
void cli_note(cli_findings *all, bool warning, uint64_t seed, const char *text);

/* rules.c */
/* Notes the rules of SIM_FAIL that met no call and the names of SIM_MISSING that the driver does not have. */
void cli_note_idle_rules(cli_findings *all, const char *folder, const char *device, uint64_t seed, bool warning);

/* report.c */
typedef struct cli_report {
  const cli_findings *all;
  char *const *command, *const *options; /* as given; of the options those that a repetition needs */
  const char *device;
  uint64_t first_seed, nseeds;
  const int *statuses; /* of the runs, nseeds of them */
  bool strict;         /* warnings are findings */
} cli_report;

uint64_t cli_report_count(const cli_report *r); /* of what makes the program end with 1 */
void cli_report_text(const cli_report *r, bool warnings, cli_text *out); /* without them they are only counted */
void cli_report_json(const cli_report *r, cli_text *out);

/* sim.c */
int cli_sim(int argc, char **argv);

/* lua.c, or nolua.c where the program was built without LuaJIT */
int cli_lua(int argc, char **argv);

/* tool.c, or nolua.c */
int cli_doctor(int argc, char **argv);
int cli_check(int argc, char **argv);

#endif
