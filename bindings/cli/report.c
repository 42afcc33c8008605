/* report.c: what was found, as text and as JSON.
 *
 * Both say the same. Invariant: each finding names the seeds it was seen under, and a command shows it again: the
 * last one above it or in it. It must not know where findings come from. */
#include <inttypes.h>
#include <string.h>

#include "cli.h"

static bool counts(const cli_report *r, const cli_finding *f) {
  return !f->note && (r->strict || strcmp(f->kind, "warning") != 0);
}

uint64_t cli_report_count(const cli_report *r) {
  uint64_t n = 0;
  for (size_t i = 0; i < r->all->count; i++) n += counts(r, &r->all->at[i]);
  return n;
}

static void add_seeds(cli_text *out, const uint64_t *seeds, size_t count) {
  for (size_t i = 0; i < count;) {
    size_t last = i;
    while (last + 1 < count && seeds[last + 1] == seeds[last] + 1) last++;
    cli_addf(out, "%s%" PRIu64, i == 0 ? "" : ", ", seeds[i]);
    if (last > i) cli_addf(out, " to %" PRIu64, seeds[last]);
    i = last + 1;
  }
}

static void add_again(const cli_report *r, const cli_finding *f, cli_text *out) {
  cli_addf(out, "moonferry sim --seed %" PRIu64, f->seeds[0]);
  for (size_t i = 0; r->options[i] != NULL; i++) {
    cli_add(out, " ");
    cli_add_shell(out, r->options[i]);
  }
  cli_add(out, " -- ");
  cli_add_command(out, r->command);
}

static void add_finding(const cli_report *r, const cli_finding *f, size_t number, const cli_finding *before,
                        cli_text *out) {
  cli_addf(out, "[%zu] %s: %s\n  seen   ", number, f->kind, f->text);
  if (f->times > f->nseeds) cli_addf(out, "%" PRIu64 " times, ", f->times);
  cli_addf(out, "under %sseed%s ", f->nseeds == r->nseeds && f->nseeds > 1 ? "all " : "", f->nseeds == 1 ? "" : "s");
  add_seeds(out, f->seeds, f->nseeds);
  cli_addf(out, ", by: %s\n", f->process);
  if (before != NULL && before->seeds[0] == f->seeds[0]) return; /* the same command shows both */
  cli_add(out, "  again  ");
  add_again(r, f, out);
  cli_add(out, "\n");
}

static void add_note(const cli_finding *f, cli_text *out) {
  cli_addf(out, "note: %s\n  seen   under seed%s ", f->text, f->nseeds == 1 ? "" : "s");
  add_seeds(out, f->seeds, f->nseeds);
  cli_addf(out, ", by: %s\n", f->process);
}

static uint64_t of_kind(const cli_report *r, const char *kind) {
  uint64_t n = 0;
  for (size_t i = 0; i < r->all->count; i++) n += strcmp(r->all->at[i].kind, kind) == 0;
  return n;
}

static void add_kinds(const cli_report *r, cli_text *out) {
  static const char *const kinds[] = {"race", "stale", "bounds", "misuse", "capture", "leak"};
  const uint64_t warnings = of_kind(r, "warning");
  const char *between = ": ";
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    const uint64_t n = of_kind(r, kinds[k]);
    if (n == 0) continue;
    cli_addf(out, "%s%s %" PRIu64, between, kinds[k], n);
    between = ", ";
  }
  if (warnings > 0) cli_addf(out, "; %" PRIu64 " warning%s", warnings, warnings == 1 ? "" : "s");
  if (warnings > 0 && !r->strict) cli_addf(out, " (--strict shows %s)", warnings == 1 ? "it" : "them");
}

static void add_summary(const cli_report *r, cli_text *out) {
  const uint64_t n = cli_report_count(r), last = r->first_seed + (r->nseeds == 0 ? 0 : r->nseeds - 1);
  cli_addf(out, "moonferry sim: %" PRIu64 " finding%s", n, n == 1 ? "" : "s");
  add_kinds(r, out);
  cli_addf(out, "; %" PRIu64 " run%s (seed%s %" PRIu64, r->nseeds, r->nseeds == 1 ? "" : "s",
           r->nseeds == 1 ? "" : "s", r->first_seed);
  if (last > r->first_seed) cli_addf(out, " to %" PRIu64, last);
  cli_addf(out, "), %" PRIu64 " process%s on the simulated driver\n", r->all->processes,
           r->all->processes == 1 ? "" : "es");
  if (r->all->processes == 0 && r->nseeds > 0)
    cli_addf(out, "moonferry sim: nothing called the simulated driver %s, so nothing was checked\n", r->device);
}

void cli_report_text(const cli_report *r, bool warnings, cli_text *out) {
  const cli_finding *before = NULL;
  size_t number = 0;
  for (size_t i = 0; i < r->all->count; i++) {
    const cli_finding *f = &r->all->at[i];
    if (f->note || !(warnings || counts(r, f))) continue;
    add_finding(r, f, ++number, before, out);
    before = f;
  }
  for (size_t i = 0; i < r->all->count; i++)
    if (r->all->at[i].note) add_note(&r->all->at[i], out);
  add_summary(r, out);
}

static void json_seeds(cli_text *out, const cli_finding *f) {
  cli_add(out, "\"seeds\": [");
  for (size_t i = 0; i < f->nseeds; i++) cli_addf(out, "%s%" PRIu64, i == 0 ? "" : ", ", f->seeds[i]);
  cli_add(out, "], \"process\": ");
  cli_add_json(out, f->process);
}

static void json_pair(cli_text *out, const char *name, const char *value) {
  cli_addf(out, ", \"%s\": ", name);
  cli_add_json(out, value);
}

/* The lines behind the first: "  LABEL TEXT" each. */
static void json_details(cli_text *out, const char *text) {
  const char *between = "";
  cli_add(out, ", \"details\": {");
  for (const char *line = strchr(text, '\n'); line != NULL; line = strchr(line, '\n')) {
    line += 1 + strspn(line + 1, " ");
    const size_t label = strcspn(line, " :\n");
    const char *rest = line + label + strspn(line + label, " :");
    cli_add(out, between);
    cli_add_json(out, cli_copy(line, label));
    cli_add(out, ": ");
    cli_add_json(out, cli_copy(rest, strcspn(rest, "\n")));
    between = ", ";
  }
  cli_add(out, "}");
}

static void json_finding(const cli_report *r, const cli_finding *f, cli_text *out) {
  cli_text again = {0};
  add_again(r, f, &again);
  cli_add(out, "{");
  json_seeds(out, f);
  json_pair(out, "kind", f->kind);
  cli_addf(out, ", \"times\": %" PRIu64 ", \"counts\": %s", f->times, counts(r, f) ? "true" : "false");
  json_pair(out, "summary", cli_copy(f->text, strcspn(f->text, "\n")));
  json_details(out, f->text);
  json_pair(out, "text", f->text);
  json_pair(out, "again", again.at);
  cli_add(out, "}");
}

static void json_all(const cli_report *r, bool notes, cli_text *out) {
  const char *between = "\n    ";
  for (size_t i = 0; i < r->all->count; i++) {
    if (r->all->at[i].note != notes) continue;
    cli_add(out, between);
    json_finding(r, &r->all->at[i], out);
    between = ",\n    ";
  }
}

static void json_runs(const cli_report *r, cli_text *out) {
  for (uint64_t i = 0; i < r->nseeds; i++)
    cli_addf(out, "%s{\"seed\": %" PRIu64 ", \"status\": %d}", i == 0 ? "" : ", ", r->first_seed + i, r->statuses[i]);
}

void cli_report_json(const cli_report *r, cli_text *out) {
  cli_add(out, "{\n  \"format\": 1, \"device\": ");
  cli_add_json(out, r->device);
  cli_add(out, ",\n  \"command\": [");
  for (size_t i = 0; r->command[i] != NULL; i++) {
    if (i > 0) cli_add(out, ", ");
    cli_add_json(out, r->command[i]);
  }
  cli_add(out, "],\n  \"runs\": [");
  json_runs(r, out);
  cli_addf(out, "],\n  \"processes\": %" PRIu64 ", \"count\": %" PRIu64 ",\n  \"findings\": [", r->all->processes,
           cli_report_count(r));
  json_all(r, false, out);
  cli_add(out, "],\n  \"notes\": [");
  json_all(r, true, out);
  cli_add(out, "]\n}\n");
}
