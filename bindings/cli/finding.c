/* finding.c: what the simulator wrote, gathered over processes and seeds.
 *
 * Each process that called the simulated driver leaves a journal, a file of records: "sim: process ...", findings
 * ("sim: race: ..." and lines that go on with it), "sim: reset" when the program asked to forget them, and in
 * the end "sim: seed N: race 0 ..."; "sim: struck RULE" names a rule of --fail that a call met. Invariant: two
 * findings that differ only in numbers that change from run to run (addresses, call numbers, sizes) are one. It must
 * not know how a report looks. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const char prefix[] = "sim: ";

/* The text without its numbers, but with each caller's place ("library.so+0x123"). A number starts where a word
 * does, so cuMemsetD8Async stays what it is. */
static char *key_of(const char *text) {
  char *key = cli_copy(text, strlen(text)), *out = key;
  for (const char *p = text; *p != '\0';) {
    const bool begins = p == text || (!isalnum((unsigned char)p[-1]) && !strchr("+_.:-", p[-1]));
    if (!begins || !isdigit((unsigned char)*p)) {
      *out++ = *p++;
      continue;
    }
    while (isalnum((unsigned char)*p)) p++;
    *out++ = '#';
  }
  *out = '\0';
  return key;
}

static cli_finding *same(const cli_findings *all, const cli_finding *f) {
  for (size_t i = 0; i < all->count; i++)
    if (strcmp(all->at[i].key, f->key) == 0) return &all->at[i];
  return NULL;
}

/* Adds a finding under a seed, to the same one if that is known already. */
static void merge(cli_findings *all, const cli_finding *f, uint64_t seed) {
  cli_finding *known = same(all, f);
  if (known == NULL) {
    all->at = cli_room(all->at, (all->count + 1) * sizeof *all->at);
    known = &all->at[all->count++];
    *known = *f;
  }
  known->times++;
  if (known->nseeds > 0 && known->seeds[known->nseeds - 1] == seed) return;
  known->seeds = cli_room(known->seeds, (known->nseeds + 1) * sizeof *known->seeds);
  known->seeds[known->nseeds++] = seed;
}

/* One journal while it is read. */
typedef struct journal {
  cli_finding *at;
  size_t count, forgotten;
  char *process;
  uint64_t totals; /* as the last line has it */
  int pid;
  bool ended;
  cli_findings *all;
} journal;

static void read_totals(journal *j, const char *line) {
  j->ended = true;
  j->totals = 0;
  for (const char *p = strchr(line, ':'); p != NULL && *p != '\0';) {
    p += strcspn(p, "0123456789");
    char *end;
    j->totals += strtoull(p, &end, 10);
    p = end;
  }
}

static void read_record(journal *j, char *record) {
  const size_t length = strlen(record);
  if (length > 0 && record[length - 1] == '\n') record[length - 1] = '\0';
  const char *colon = strstr(record, ": ");
  if (cli_begins(record, "process ") && colon != NULL) {
    j->process = cli_copy(colon + 2, strlen(colon + 2));
    j->pid = atoi(record + strlen("process "));
  } else if (strcmp(record, "reset") == 0) {
    j->count = 0;
  } else if (cli_begins(record, "struck ")) {
    j->all->struck = cli_room(j->all->struck, (j->all->nstruck + 1) * sizeof *j->all->struck);
    j->all->struck[j->all->nstruck++] = cli_copy(record + strlen("struck "), strlen(record + strlen("struck ")));
  } else if (cli_begins(record, "seed ")) {
    read_totals(j, record);
  } else if (colon != NULL) {
    j->at = cli_room(j->at, (j->count + 1) * sizeof *j->at);
    j->at[j->count++] = (cli_finding){.kind = cli_copy(record, (size_t)(colon - record)),
                                      .text = cli_copy(colon + 2, strlen(colon + 2))};
  }
}

/* Where the next record begins, or the end. */
static char *next_record(char *p) {
  while (*p != '\0') {
    char *line = strchr(p, '\n');
    if (line == NULL) return p + strlen(p);
    p = line + 1;
    if (cli_begins(p, prefix)) return p;
  }
  return p;
}

static void read_journal(journal *j, char *text) {
  for (char *p = cli_begins(text, prefix) ? text : next_record(text); *p != '\0';) {
    char *next = next_record(p);
    char *record = cli_copy(p + strlen(prefix), (size_t)(next - p) - strlen(prefix));
    read_record(j, record);
    p = next;
  }
}

static void note(cli_findings *all, const journal *j, uint64_t seed, const char *text) {
  char kind[] = "note";
  cli_finding f = {.kind = cli_copy(kind, strlen(kind)), .text = cli_copy(text, strlen(text)), .process = j->process,
                   .note = true};
  cli_text key = {0};
  cli_addf(&key, "%s%s", text, j->process);
  f.key = key_of(key.at);
  merge(all, &f, seed);
}

static void take_notes(cli_findings *all, const journal *j, uint64_t seed) {
  cli_text more = {0};
  if (!j->ended && j->pid > 0 && kill((pid_t)j->pid, 0) == 0)
    note(all, j, seed, "a process outlived the command: what it finds from here on is lost, and its leaks are unknown");
  else if (!j->ended)
    note(all, j, seed, "a process was killed or left by _exit: what it had found counts, what it left is unknown");
  if (!j->ended || j->totals <= j->count) return;
  cli_addf(&more, "%" PRIu64 " findings more were counted than kept", j->totals - j->count);
  note(all, j, seed, more.at);
}

static void take_journal(cli_findings *all, char *text, uint64_t seed) {
  journal j = {.process = cli_copy("?", 1), .all = all};
  read_journal(&j, text);
  all->processes++;
  for (size_t i = 0; i < j.count; i++) {
    j.at[i].process = j.process;
    j.at[i].key = key_of(j.at[i].text);
    merge(all, &j.at[i], seed);
  }
  take_notes(all, &j, seed);
  free(j.at);
}

void cli_note(cli_findings *all, bool warning, uint64_t seed, const char *text) {
  char kind[] = "note", warns[] = "warning";
  cli_finding f = {.kind = warning ? cli_copy(warns, strlen(warns)) : cli_copy(kind, strlen(kind)),
                   .text = cli_copy(text, strlen(text)), .key = cli_copy(text, strlen(text)),
                   .process = cli_copy("all of them", strlen("all of them")), .note = !warning};
  merge(all, &f, seed);
}

static char *whole_file(const char *path) {
  cli_text text = {0};
  char part[4096];
  size_t n;
  FILE *f = fopen(path, "re");
  cli_add(&text, "");
  while (f != NULL && (n = fread(part, 1, sizeof part - 1, f)) > 0) {
    for (size_t i = 0; i < n; i++)
      if (part[i] == '\0') part[i] = '?';
    part[n] = '\0';
    cli_add(&text, part);
  }
  if (f != NULL) fclose(f);
  return text.at;
}

static int visible(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

void cli_collect(cli_findings *all, const char *folder, uint64_t seed) {
  struct dirent **names = NULL;
  const int count = scandir(folder, &names, visible, alphasort);
  for (int i = 0; i < count; i++) {
    cli_text path = {0};
    cli_addf(&path, "%s/%s", folder, names[i]->d_name);
    char *text = whole_file(path.at);
    take_journal(all, text, seed);
    unlink(path.at);
    free(text);
    free(path.at);
    free(names[i]);
  }
  free(names);
}
