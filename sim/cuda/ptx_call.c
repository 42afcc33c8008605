/* ptx_call.c: calls as a PTX text has them, by the name of a function or through a pointer to one.
 *
 * Invariant: what a call through a pointer hands over is as its prototype says; whether the function takes that is
 * known when it is called. It must not know how a call is carried out. */
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

/* (result, ...) or (argument, ...): variables of .param. */
static bool handed_over(ptx_reader *r, ptx_call *c, size_t *n, size_t *room) {
  ptx_token name;
  uint32_t index;
  if (ptx_accept(r, ")")) return !r->failed;
  do {
    if (!ptx_take(r, PTX_WORD, "a variable of .param", &name)) return false;
    const ptx_symbol *s = ptx_lookup(r, &name, &index);
    if (s == NULL || s->kind != PTX_VARIABLE || s->space != PTX_PARAM)
      return ptx_fail(r, name.line, "'%.*s' is not a variable of .param, which alone the simulator hands over",
                      ptx_shown(&name), name.at);
    const size_t at = c->results + c->arguments;
    c->places = ptx_grow(c->places, at, room, sizeof *c->places);
    c->places[at] = (size_t)s->offset;
    ++*n;
  } while (ptx_accept(r, ","));
  return ptx_expect(r, ")");
}

/* One result or argument, whose name is _. */
static bool prototype_part(ptx_reader *r, ptx_prototype *p, size_t *n, size_t *room) {
  enum { MOST_BYTES = 4096 };
  ptx_type type;
  ptx_token name, count = {.value = 1};
  size_t unused = 1;
  if (!ptx_expect(r, ".param") || !ptx_alignment(r, &unused) || !ptx_take_type(r, &type)) return false;
  if (!ptx_take(r, PTX_WORD, "a name", &name)) return false;
  if (ptx_accept(r, "[") && (!ptx_take(r, PTX_INTEGER, "a number of elements", &count) || !ptx_expect(r, "]")))
    return false;
  if (type.bits < 8 || count.value == 0 || count.value > MOST_BYTES)
    return ptx_fail(r, name.line, "a parameter of a predicate, of no bytes or of more than %d", MOST_BYTES);
  const size_t at = p->results + p->arguments;
  p->nbytes = ptx_grow(p->nbytes, at, room, sizeof *p->nbytes);
  p->nbytes[at] = (size_t)count.value * (type.bits / 8);
  ++*n;
  return true;
}

static bool prototype_parts(ptx_reader *r, ptx_prototype *p, size_t *n, size_t *room) {
  if (!ptx_accept(r, "(") || ptx_accept(r, ")")) return !r->failed;
  do {
    if (!prototype_part(r, p, n, room)) return false;
  } while (ptx_accept(r, ","));
  return ptx_expect(r, ")");
}

bool ptx_prototype_read(ptx_reader *r, const ptx_token *name) {
  ptx_entry *e = r->entry;
  size_t room = 0;
  const ptx_symbol s = {.kind = PTX_PROTOTYPE, .first = (uint32_t)e->nprototypes};
  e->prototypes = ptx_grow(e->prototypes, e->nprototypes, &r->prototypes_room, sizeof *e->prototypes);
  ptx_prototype *p = &e->prototypes[e->nprototypes++];
  *p = (ptx_prototype){0};
  if (!prototype_parts(r, p, &p->results, &room) || !ptx_expect(r, "_")) return false;
  if (!prototype_parts(r, p, &p->arguments, &room)) return false;
  ptx_accept(r, ".noreturn");
  return ptx_expect(r, ";") && ptx_add_symbol(r, name, s);
}

static bool with_prototype(ptx_reader *r, ptx_call *c) {
  ptx_token name;
  uint32_t index;
  if (!ptx_take(r, PTX_WORD, "the name of a prototype", &name)) return false;
  const ptx_symbol *s = ptx_lookup(r, &name, &index);
  if (s == NULL || s->kind != PTX_PROTOTYPE)
    return ptx_fail(r, name.line, "'%.*s' is not a prototype", ptx_shown(&name), name.at);
  const ptx_prototype *p = &r->entry->prototypes[s->first];
  c->prototype = s->first;
  if (p->results == c->results && p->arguments == c->arguments) return true;
  return ptx_fail(r, name.line, "'%.*s' has %zu results and %zu parameters, not %zu and %zu", ptx_shown(&name), name.at,
                  p->results, p->arguments, c->results, c->arguments);
}

/* What is called: a function, or where a register points. */
static bool called(ptx_reader *r, ptx_inst *i, ptx_call *c) {
  ptx_token name;
  uint32_t index;
  if (!ptx_take(r, PTX_WORD, "the name of a function, or a register", &name)) return false;
  const ptx_symbol *s = ptx_lookup(r, &name, &index);
  if (s != NULL && (s->kind == PTX_ONE || s->kind == PTX_FAMILY)) return ptx_pointer_operand(r, &name, &i->base);
  c->name = calloc(1, name.length + 1);
  if (c->name == NULL) abort();
  memcpy(c->name, name.at, name.length);
  return true;
}

bool ptx_call_operands(ptx_reader *r, ptx_inst *i) {
  ptx_entry *e = r->entry;
  size_t room = 0;
  e->calls = ptx_grow(e->calls, e->ncalls, &r->calls_room, sizeof *e->calls);
  ptx_call *c = &e->calls[e->ncalls];
  *c = (ptx_call){.line = i->line};
  i->target = (uint32_t)e->ncalls++;
  if (ptx_accept(r, "(") && (!handed_over(r, c, &c->results, &room) || !ptx_expect(r, ","))) return false;
  if (!called(r, i, c)) return false;
  const bool by_name = c->name != NULL;
  bool more = ptx_accept(r, ",");
  if (more && ptx_accept(r, "(")) {
    if (!handed_over(r, c, &c->arguments, &room)) return false;
    more = !by_name && ptx_expect(r, ",");
  }
  if (by_name) return more ? ptx_unexpected(r, "the arguments of a call") : !r->failed;
  return more ? with_prototype(r, c) : ptx_unexpected(r, "a prototype");
}
