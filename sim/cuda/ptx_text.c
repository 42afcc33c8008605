/* ptx_text.c: PTX texts as one program: what each declares outside of its entries, and how they find what others have.
 *
 * All texts are gone through twice: first the variables that others may name find their places, then everything is
 * read. Invariant: what is not visible is found by its own text alone. It must not know what is within an entry. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

/* Functions that every driver has, declared by the texts that call them. */
static const char drivers_own[] =
    ".version 3.0\n.target sm_30\n.address_size 64\n.weak .func " PTX_ASSERTION
    "(.param .b64 what, .param .b64 file, .param .b32 line, .param .b64 function, .param .b64 size)\n{\ntrap;\n}\n"
    ".weak .func (.param .b32 n) " PTX_PRINTING "(.param .b64 format, .param .b64 values)\n{\ntrap;\n}\n";

static void drop_entry(ptx_entry *e) {
  for (size_t k = 0; k < e->nregs; k++) free(e->names[k]);
  for (size_t k = 0; k < e->ncalls; k++) {
    free(e->calls[k].name);
    free(e->calls[k].places);
  }
  for (size_t k = 0; k < e->nprototypes; k++) free(e->prototypes[k].nbytes);
  free(e->prototypes);
  free(e->calls);
  free(e->names);
  free(e->bits);
  free(e->params);
  free(e->insts);
  free(e->name);
}

/* What a text means by this name: its own, then what others let it name. */
static size_t index_of(const ptx_program *p, const char *name, unsigned text) {
  size_t found = p->nentries;
  for (size_t i = 0; i < p->nentries; i++) {
    const ptx_entry *e = &p->entries[i];
    if (strcmp(e->name, name) != 0) continue;
    if (e->text == text) return i;
    if (e->shared) found = i;
  }
  return found;
}

/* The same as what was declared before: by the same text, or where both may be named by all. */
static size_t same_as(const ptx_program *p, const ptx_entry *e) {
  size_t i = 0;
  for (; i < p->nentries; i++) {
    const ptx_entry *known = &p->entries[i];
    if (strcmp(known->name, e->name) == 0 && (known->text == e->text || (known->shared && e->shared))) break;
  }
  return i;
}

/* A function may be declared in several texts, and defined in one, or as .weak in more: then the first counts. */
static bool keep_entry(ptx_reader *r, ptx_entry *e) {
  ptx_program *p = r->program;
  const size_t at = same_as(p, e);
  if (at == p->nentries) {
    p->entries = realloc(p->entries, (p->nentries + 1) * sizeof *p->entries);
    if (p->entries == NULL) abort();
    p->entries[p->nentries++] = *e;
    return true;
  }
  ptx_entry *known = &p->entries[at];
  const bool both = known->has_body && e->has_body && !known->weak && !e->weak;
  if (both || known->is_function != e->is_function) {
    ptx_fail(r, e->line, "'%.80s' is declared twice", e->name);
    drop_entry(e);
    return false;
  }
  const bool stays = known->has_body && (!e->has_body || e->weak);
  drop_entry(stays ? e : known);
  if (!stays) *known = *e;
  return true;
}

static bool entry(ptx_reader *r, bool is_function) {
  ptx_entry e = {.text = r->text, .weak = r->linkage == PTX_WEAK};
  e.shared = !is_function || r->linkage != PTX_OWN;
  r->entry = &e;
  r->linkage = PTX_OWN; /* of what is declared within it */
  if (!ptx_entry_read(r, is_function)) {
    drop_entry(&e);
    return false;
  }
  if (is_function) r->program->waits |= e.waits;
  if (is_function) r->program->has_shared |= e.has_shared;
  return keep_entry(r, &e);
}

bool ptx_function_named(const ptx_reader *r, const ptx_token *name, uint64_t *out) {
  const ptx_program *p = r->program;
  char *text = calloc(1, name->length + 1);
  if (text == NULL) abort();
  memcpy(text, name->at, name->length);
  const size_t at = index_of(p, text, r->text);
  free(text);
  *out = PTX_CODE_WINDOW | at;
  return at < p->nentries && p->entries[at].is_function;
}

/* What variables point to. */
static bool find_pointers(ptx_reader *r) {
  ptx_program *p = r->program;
  for (size_t i = 0; i < r->npointers; i++) {
    const ptx_pointer *known = &r->pointers[i];
    const ptx_token name = {.at = known->at, .length = known->length};
    uint64_t value = 0;
    r->text = known->text;
    if (!ptx_function_named(r, &name, &value))
      return ptx_fail(r, known->line, "'%.*s' is no function: other initial values are not in the simulator's subset",
                      ptx_shown(&name), name.at);
    memcpy(p->consts + known->offset, &value, sizeof value);
  }
  return true;
}

/* Every call finds its function, and hands over what that declares. */
static bool find_callees(ptx_reader *r) {
  const ptx_program *p = r->program;
  for (size_t i = 0; i < p->nentries; i++)
    for (size_t k = 0; k < p->entries[i].ncalls; k++) {
      ptx_call *c = &p->entries[i].calls[k];
      if (c->name == NULL) continue;
      c->callee = index_of(p, c->name, p->entries[i].text);
      const ptx_entry *f = c->callee < p->nentries ? &p->entries[c->callee] : NULL;
      if (f == NULL || !f->is_function || (!f->has_body && r->whole))
        return ptx_fail(r, c->line, "no text defines the function '%.80s'", c->name);
      if (f->nresults != c->results || f->nparams != c->results + c->arguments)
        return ptx_fail(r, c->line, "'%.80s' has %zu results and %zu parameters, not %zu and %zu", c->name, f->nresults,
                        f->nparams - f->nresults, c->results, c->arguments);
    }
  return true;
}

/* "8.0" comes as a real number, so its text is read again. */
static bool version_line(ptx_reader *r) {
  ptx_token t;
  unsigned major = 0, minor = 0;
  if (!ptx_expect(r, ".version") || !ptx_take(r, PTX_REAL, "a version", &t)) return false;
  if (t.length > 5 || sscanf(t.at, "%2u.%2u", &major, &minor) != 2)
    return ptx_fail(r, t.line, "'%.*s' is not a version", ptx_shown(&t), t.at);
  if (major * 10 + minor > r->program->version) r->program->version = major * 10 + minor;
  return true;
}

static bool target_line(ptx_reader *r) {
  ptx_token t;
  unsigned target = 0;
  if (!ptx_expect(r, ".target")) return false;
  do {
    if (!ptx_take(r, PTX_WORD, "a target", &t)) return false;
    if (t.length > 3 && t.length < 9 && memcmp(t.at, "sm_", 3) == 0) sscanf(t.at + 3, "%4u", &target);
  } while (ptx_accept(r, ","));
  if (target > r->program->target) r->program->target = target;
  return target > 0 || ptx_fail(r, t.line, "'%.*s' is not a target", ptx_shown(&t), t.at);
}

static bool header(ptx_reader *r) {
  ptx_token t;
  if (!version_line(r) || !target_line(r)) return false;
  if (!ptx_accept(r, ".address_size")) return true;
  if (!ptx_take(r, PTX_INTEGER, "64", &t)) return false;
  return t.value == 64 || ptx_fail(r, t.line, "addresses of %llu bits", (unsigned long long)t.value);
}

static bool file_line(ptx_reader *r) {
  if (!ptx_is(r, ".file")) return false;
  const unsigned line = r->token.line;
  while (r->token.kind != PTX_END && r->token.line == line) ptx_advance(r);
  return true;
}

static bool variables(ptx_reader *r, ptx_space space) {
  r->nsymbols = r->noutside;
  r->scope = PTX_OUTSIDE;
  const bool ok = ptx_variables(r, space);
  r->noutside = r->nsymbols;
  return ok;
}

static bool declared(ptx_reader *r) {
  ptx_space space;
  if (ptx_accept(r, ".entry")) return entry(r, false);
  if (ptx_accept(r, ".func")) return entry(r, true);
  if (!ptx_is(r, ".param") && ptx_space_word(r, &space)) return variables(r, space);
  return ptx_fail(r, r->token.line, "'%.*s' is not in the simulator's subset, which has entries, functions and "
                  "variables here", ptx_shown(&r->token), r->token.at);
}

/* To the semicolon, or to the end of the body. */
static bool skip(ptx_reader *r) {
  unsigned depth = 0;
  while (r->token.kind != PTX_END) {
    const bool ends = ptx_is(r, ";"), closes = ptx_is(r, "}");
    depth += ptx_is(r, "{");
    ptx_advance(r);
    if (closes && depth > 0) depth--;
    if (depth == 0 && (ends || closes)) break;
  }
  return !r->failed;
}

/* What a debugger reads, in braces. */
static bool section(ptx_reader *r) {
  unsigned depth = 0;
  if (!ptx_accept(r, ".section")) return false;
  while (r->token.kind != PTX_END && !ptx_is(r, "{")) ptx_advance(r);
  do {
    depth += ptx_is(r, "{");
    depth -= ptx_is(r, "}");
    if (r->token.kind == PTX_END) return !ptx_fail(r, r->token.line, "the text ends within a section");
    ptx_advance(r);
  } while (depth > 0);
  return true;
}

/* A variable that others may name finds its place; shared memory is the block's, whoever names it. */
static bool placed(ptx_reader *r) {
  ptx_space space;
  const bool named = r->linkage == PTX_VISIBLE || r->linkage == PTX_WEAK || r->linkage == PTX_COMMON;
  if (named && (ptx_is(r, ".global") || ptx_is(r, ".const"))) return ptx_space_word(r, &space) && variables(r, space);
  return skip(r);
}

static ptx_linkage linkage(ptx_reader *r) {
  if (ptx_accept(r, ".extern")) return PTX_EXTERN;
  if (ptx_accept(r, ".visible")) return PTX_VISIBLE;
  if (ptx_accept(r, ".weak")) return PTX_WEAK;
  return ptx_accept(r, ".common") ? PTX_COMMON : PTX_OWN;
}

/* The names of a text end with it. */
static bool module(ptx_reader *r, const char *text) {
  r->at = text;
  r->line = 1;
  r->nsymbols = r->noutside = 0;
  r->text++;
  ptx_advance(r);
  if (!header(r)) return false;
  while (!r->failed && r->token.kind != PTX_END) {
    if (file_line(r) || section(r)) continue;
    r->linkage = linkage(r);
    if (!(r->places ? placed(r) : declared(r))) return false;
  }
  return !r->failed;
}

static bool modules(ptx_reader *r, const char *const *texts, size_t n, bool places) {
  r->places = places;
  r->text = 0;
  for (size_t i = 0; i < n; i++)
    if (!module(r, texts[i])) return false;
  return true;
}

static bool is_drivers_own(const ptx_entry *e) {
  return !e->has_body && (strcmp(e->name, PTX_ASSERTION) == 0 || strcmp(e->name, PTX_PRINTING) == 0);
}

static bool calls_drivers_own(const ptx_program *p) {
  size_t i = 0;
  while (i < p->nentries && !is_drivers_own(&p->entries[i])) i++;
  return i < p->nentries;
}

/* The variables that texts share have found their places. */
static void keep_shared(ptx_reader *r) {
  for (size_t i = 0; i < r->nshared; i++) {
    const ptx_shared *s = &r->shared[i];
    ptx_keep_variable(r, s->at, s->length, &(ptx_module_variable){.visible = true, .constant = s->space == PTX_CONST,
                                                                  .offset = (size_t)s->offset,
                                                                  .nbytes = (size_t)s->nbytes});
  }
}

ptx_program *ptx_read(const char *const *texts, size_t n, bool whole, ptx_message *why) {
  unsigned *parents = calloc(PTX_MOST_SCOPES, sizeof *parents);
  ptx_program *p = calloc(1, sizeof *p);
  if (p == NULL || parents == NULL) abort();
  ptx_reader r = {.why = why, .program = p, .parents = parents, .whole = whole};
  bool ok = modules(&r, texts, n, true) && modules(&r, texts, n, false);
  if (ok && calls_drivers_own(p)) ok = module(&r, drivers_own);
  ok = ok && find_callees(&r) && find_pointers(&r);
  if (ok) keep_shared(&r);
  free(r.parents);
  free(r.symbols);
  free(r.jumps);
  free(r.types);
  free(r.shared);
  free(r.pointers);
  if (ok) return p;
  ptx_free(p);
  return NULL;
}

void ptx_free(ptx_program *p) {
  for (size_t i = 0; i < p->nentries; i++) drop_entry(&p->entries[i]);
  free(p->entries);
  for (size_t i = 0; i < p->nvariables; i++) free(p->variables[i].name);
  free(p->variables);
  free(p->consts);
  free(p);
}

const ptx_entry *ptx_find(const ptx_program *p, const char *name) {
  for (size_t i = 0; i < p->nentries; i++)
    if (!p->entries[i].is_function && strcmp(p->entries[i].name, name) == 0) return &p->entries[i];
  return NULL;
}

size_t ptx_variable_named(const ptx_program *p, const char *name) {
  size_t i = 0;
  while (i < p->nvariables && (!p->variables[i].visible || strcmp(p->variables[i].name, name) != 0)) i++;
  return i;
}

size_t ptx_variable_at(const ptx_program *p, uint64_t offset) {
  size_t i = 0;
  while (i < p->nvariables && offset - p->variables[i].offset >= p->variables[i].nbytes) i++;
  return i;
}
