/* ptx_vars.c: the variables of a PTX text: shared, local, constant and global ones, and parameters.
 *
 * A variable is a place in its space: bytes of the block, of the thread's frame, of the program or of its
 * parameters.
 * Invariant: no place ends behind what its space is said to have. It must not know instructions. */
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

enum { MOST_PARAM_BYTES = 4096, MOST_CONST_BYTES = 65536, MOST_SHARED_BYTES = 228 * 1024, MOST_LOCAL_BYTES = 65536 };

bool ptx_space_word(ptx_reader *r, ptx_space *out) {
  static const struct {
    const char *word;
    ptx_space space;
  } spaces[] = {{".shared", PTX_SHARED},
                {".local", PTX_LOCAL},
                {".const", PTX_CONST},
                {".global", PTX_GLOBAL},
                {".param", PTX_PARAM}};
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
    if (!ptx_accept(r, spaces[i].word)) continue;
    *out = spaces[i].space;
    return true;
  }
  return false;
}

bool ptx_alignment(ptx_reader *r, size_t *align) {
  ptx_token t;
  if (!ptx_accept(r, ".align")) return true;
  if (!ptx_take(r, PTX_INTEGER, "an alignment", &t)) return false;
  if (t.value == 0 || t.value > 1024 || (t.value & (t.value - 1)) != 0)
    return ptx_fail(r, t.line, "an alignment of %llu", (unsigned long long)t.value);
  if (t.value > *align) *align = (size_t)t.value;
  return true;
}

/* .ptr says what a parameter points to, which changes nothing here. */
static bool pointer_hint(ptx_reader *r) {
  size_t unused = 1;
  if (!ptx_accept(r, ".ptr")) return true;
  if (ptx_is(r, ".global") || ptx_is(r, ".const") || ptx_is(r, ".shared") || ptx_is(r, ".local")) ptx_advance(r);
  return ptx_alignment(r, &unused);
}

/* A variable as it is declared. */
typedef struct variable {
  ptx_token name;
  ptx_type type;
  size_t align;
  uint64_t count; /* of elements; 0: [] */
} variable;

/* [4][8], or nothing; [] leaves the size open. */
static bool extents(ptx_reader *r, variable *v) {
  ptx_token t;
  v->count = 1;
  while (ptx_accept(r, "[")) {
    if (ptx_accept(r, "]")) {
      v->count = 0;
      continue;
    }
    if (!ptx_take(r, PTX_INTEGER, "a number of elements", &t) || !ptx_expect(r, "]")) return false;
    if (t.value == 0 || t.value > 1 << 24) v->count = UINT64_MAX >> 8;
    else if (v->count < 1 << 24) v->count *= t.value;
  }
  return true;
}

static bool begin_variable(ptx_reader *r, variable *v) {
  *v = (variable){.align = 1};
  if (!ptx_alignment(r, &v->align)) return false;
  if (ptx_is(r, ".v2") || ptx_is(r, ".v4"))
    return ptx_fail(r, r->token.line, "variables of vectors are not in the simulator's subset");
  return ptx_take_type(r, &v->type);
}

/* Finds room behind *end, which is moved. */
static bool place(ptx_reader *r, const variable *v, size_t most, size_t *end, ptx_symbol *s) {
  const size_t unit = v->type.bits / 8, align = v->align > unit ? v->align : unit;
  if (unit == 0) return ptx_fail(r, v->name.line, "a parameter or variable cannot be a predicate");
  const size_t offset = (*end + align - 1) / align * align;
  if (offset > most || v->count > (most - offset) / unit)
    return ptx_fail(r, v->name.line, "%s of more than %zu bytes, or of none",
                    s->space == PTX_PARAM ? "parameters" : "variables of one kind", most);
  s->offset = offset;
  s->nbytes = v->count * unit;
  *end = offset + (size_t)s->nbytes;
  return true;
}

static bool parameter(ptx_reader *r) {
  ptx_entry *e = r->entry;
  variable v;
  if (!ptx_expect(r, ".param") || !begin_variable(r, &v) || !pointer_hint(r)) return false;
  if (!ptx_take(r, PTX_WORD, "the name of a parameter", &v.name) || !extents(r, &v)) return false;
  if (v.count == 0) v.count = UINT64_MAX >> 8; /* of none */
  ptx_symbol s = {.kind = PTX_VARIABLE, .type = v.type, .space = PTX_PARAM, .formal = true};
  if (!place(r, &v, MOST_PARAM_BYTES, &e->nbytes, &s) || !ptx_add_symbol(r, &v.name, s)) return false;
  e->params = ptx_grow(e->params, e->nparams, &r->params_room, sizeof *e->params);
  e->params[e->nparams++] = (ptx_param){(size_t)s.offset, (size_t)s.nbytes};
  return true;
}

bool ptx_parameters(ptx_reader *r) {
  if (!ptx_accept(r, "(") || ptx_accept(r, ")")) return !r->failed;
  do {
    if (!parameter(r)) return false;
  } while (ptx_accept(r, ","));
  return ptx_expect(r, ")");
}

static bool initial(ptx_reader *r, ptx_type type, uint64_t *out) {
  const bool minus = ptx_accept(r, "-");
  const ptx_token t = r->token;
  double wide;
  uint32_t low;
  *out = minus ? 0 - t.value : t.value;
  if (t.kind != PTX_INTEGER && (t.kind != PTX_REAL || !ptx_is_real(type)))
    return ptx_unexpected(r, "a number: other initial values are not in the simulator's subset");
  ptx_advance(r);
  if (t.kind == PTX_INTEGER || t.bits != 0) return true;
  memcpy(&wide, &t.value, sizeof wide);
  if (minus) wide = -wide;
  const float narrow = (float)wide;
  memcpy(&low, &narrow, sizeof low);
  memcpy(out, &wide, sizeof wide);
  if (type.bits == 32) *out = low;
  return true;
}

/* The address of a function, which is known when all texts have been read. */
static bool pointer(ptx_reader *r, const variable *v, size_t offset, bool kept) {
  const ptx_token t = r->token;
  if (v->type.bits != 64) return ptx_fail(r, t.line, "an address has 64 bits");
  ptx_advance(r);
  if (!kept) return !r->failed;
  r->pointers = ptx_grow(r->pointers, r->npointers, &r->pointers_room, sizeof *r->pointers);
  r->pointers[r->npointers++] = (ptx_pointer){t.at, t.length, r->text, t.line, offset};
  return !r->failed;
}

/* Braces may be nested; what is not said is 0. bytes NULL: they are only read. */
static bool initial_values(ptx_reader *r, const variable *v, unsigned char *bytes) {
  const size_t unit = v->type.bits / 8;
  size_t depth = 0, n = 0;
  uint64_t value = 0;
  do {
    while (ptx_accept(r, "{")) depth++;
    if (!ptx_is(r, "}")) {
      const bool named = r->token.kind == PTX_WORD, fits = bytes != NULL && n < v->count;
      const size_t at = fits ? (size_t)(bytes - r->program->consts) + n * unit : 0;
      if (!(named ? pointer(r, v, at, fits) : initial(r, v->type, &value))) return false;
      if (!named && bytes != NULL && n < v->count) memcpy(bytes + n * unit, &value, unit);
      n++;
    }
    while (depth > 0 && ptx_accept(r, "}")) depth--;
  } while (ptx_accept(r, ","));
  return depth == 0 ? !r->failed : ptx_expect(r, "}");
}

static bool initialise(ptx_reader *r, const variable *v, const ptx_symbol *s, bool defines) {
  ptx_program *p = r->program;
  const bool kept = s->space == PTX_CONST || s->space == PTX_GLOBAL;
  if (kept && p->consts == NULL) {
    p->consts = calloc(1, MOST_CONST_BYTES);
    if (p->consts == NULL) abort();
  }
  if (!ptx_accept(r, "=")) return true;
  if (!kept || r->linkage == PTX_EXTERN) return ptx_fail(r, v->name.line, "this kind of variable has no initial value");
  return initial_values(r, v, defines ? p->consts + s->offset : NULL);
}

/* Where variables of a space end: in the program, the block, the thread's frame, or its parameters. Those in global
 * memory lie with the constants: they are read, and stores to them are refused when they happen. */
static size_t *end_of(ptx_reader *r, ptx_space space, size_t *most) {
  *most = space == PTX_SHARED  ? MOST_SHARED_BYTES
          : space == PTX_LOCAL ? MOST_LOCAL_BYTES
          : space == PTX_PARAM ? MOST_PARAM_BYTES
                               : MOST_CONST_BYTES;
  if (space == PTX_SHARED) return &r->program->shared;
  if (space == PTX_LOCAL) return &r->entry->local;
  return space == PTX_PARAM ? &r->entry->frame : &r->program->nconsts;
}

static ptx_shared *shared_named(const ptx_reader *r, const ptx_token *name) {
  for (size_t i = 0; i < r->nshared; i++)
    if (r->shared[i].length == name->length && memcmp(r->shared[i].at, name->at, name->length) == 0)
      return &r->shared[i];
  return NULL;
}

/* The place of a variable that others may name: of a weak one the first, of a common one the largest, and a visible one
 * stands in for both. *defines says that the initial values are this one's. */
static bool define(ptx_reader *r, const variable *v, ptx_symbol *s, bool *defines) {
  ptx_shared *known = shared_named(r, &v->name);
  const uint64_t nbytes = v->count * (v->type.bits / 8);
  size_t most;
  if (known != NULL && known->linkage == PTX_VISIBLE && r->linkage == PTX_VISIBLE)
    return ptx_fail(r, v->name.line, "'%.*s' is declared twice", ptx_shown(&v->name), v->name.at);
  const bool common = known != NULL && r->linkage == PTX_COMMON && known->linkage == PTX_COMMON;
  const bool larger = common && nbytes > known->nbytes;
  *defines = known == NULL || larger || r->linkage > known->linkage;
  if (!*defines) return true;
  size_t *end = end_of(r, s->space, &most);
  if (!place(r, v, most, end, s)) return false;
  if (known == NULL) {
    r->shared = ptx_grow(r->shared, r->nshared, &r->shared_room, sizeof *r->shared);
    known = &r->shared[r->nshared++];
  }
  *known = (ptx_shared){r->linkage, v->name.at, v->name.length, s->space, s->offset, s->nbytes};
  return true;
}

/* Where a variable lies that has found its place before. */
static bool find_place(ptx_reader *r, const variable *v, ptx_symbol *s) {
  const ptx_shared *known = shared_named(r, &v->name);
  const uint64_t nbytes = v->count * (v->type.bits / 8);
  s->missing = known == NULL;
  s->nbytes = nbytes;
  if (known == NULL) return true;
  if (known->space != s->space || (nbytes != known->nbytes && nbytes > 0 && r->linkage != PTX_COMMON))
    return ptx_fail(r, v->name.line,
                    "'%.*s' has %llu bytes here and %llu where it is defined, or lies in another space",
                    ptx_shown(&v->name), v->name.at, (unsigned long long)nbytes, (unsigned long long)known->nbytes);
  s->offset = known->offset;
  s->nbytes = known->nbytes;
  return true;
}

void ptx_keep_variable(ptx_reader *r, const char *name, size_t length, const ptx_module_variable *v) {
  ptx_program *p = r->program;
  p->variables = ptx_grow(p->variables, p->nvariables, &r->variables_room, sizeof *p->variables);
  ptx_module_variable *kept = &p->variables[p->nvariables++];
  *kept = *v;
  kept->name = calloc(1, length + 1);
  if (kept->name == NULL) abort();
  memcpy(kept->name, name, length);
}

static bool settle(ptx_reader *r, const variable *v, ptx_symbol *s, bool *defines) {
  size_t most;
  *defines = false;
  if (r->places) return define(r, v, s, defines);
  if (r->linkage != PTX_OWN && s->space != PTX_SHARED) return find_place(r, v, s);
  *defines = true;
  size_t *end = end_of(r, s->space, &most);
  if (!place(r, v, most, end, s)) return false;
  if (v->count == 0) s->offset = PTX_DYNAMIC_AT;
  if (s->space == PTX_CONST || s->space == PTX_GLOBAL)
    ptx_keep_variable(r, v->name.at, v->name.length, &(ptx_module_variable){.constant = s->space == PTX_CONST,
                                                                            .offset = (size_t)s->offset,
                                                                            .nbytes = (size_t)s->nbytes});
  return true;
}

static bool one(ptx_reader *r, variable *v, ptx_space space) {
  ptx_symbol s = {.kind = PTX_VARIABLE, .type = v->type, .space = space};
  const bool is_extern = r->linkage == PTX_EXTERN;
  bool defines;
  if (!ptx_take(r, PTX_WORD, "the name of a variable", &v->name) || !extents(r, v)) return false;
  if (v->count == 0 && !is_extern)
    return ptx_fail(r, v->name.line, "'%.*s' has no size", ptx_shown(&v->name), v->name.at);
  if (!settle(r, v, &s, &defines) || !initialise(r, v, &s, defines)) return false;
  return r->places || ptx_add_symbol(r, &v->name, s);
}

bool ptx_variables(ptx_reader *r, ptx_space space) {
  variable v;
  const bool outside = r->scope == PTX_OUTSIDE;
  if (outside ? space == PTX_LOCAL : space == PTX_GLOBAL || space == PTX_CONST)
    return ptx_fail(r, r->token.line, "a variable of this kind is not declared here");
  if (!begin_variable(r, &v)) return false;
  do {
    if (!one(r, &v, space)) return false;
  } while (ptx_accept(r, ","));
  return ptx_expect(r, ";");
}
