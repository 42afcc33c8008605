/* ptx_lex.h: what the files that read PTX share.
 *
 * It must not be included by what runs it. */
#ifndef SIM_CUDA_PTX_LEX_H
#define SIM_CUDA_PTX_LEX_H

#include "ptx.h"

/* A word is a name, a directive or an opcode with all its modifiers. */
typedef enum ptx_token_kind { PTX_END, PTX_WORD, PTX_INTEGER, PTX_REAL, PTX_STRING, PTX_PUNCTUATION } ptx_token_kind;

typedef struct ptx_token {
  ptx_token_kind kind;
  const char *at;
  size_t length;
  unsigned line;
  uint64_t value; /* an integer, or the bits of a real */
  unsigned bits;  /* of a real written as bits: 32 or 64; 0 for a decimal one, whose value is that of a double */
} ptx_token;

typedef enum ptx_symbol_kind { PTX_ONE, PTX_FAMILY, PTX_VARIABLE, PTX_LABEL, PTX_PROTOTYPE } ptx_symbol_kind;

typedef struct ptx_symbol {
  ptx_symbol_kind kind;
  const char *at;
  size_t length;
  unsigned scope;
  ptx_type type;
  uint32_t first, count; /* registers; for a label the instruction, for a prototype which of the entry's */
  ptx_space space;       /* of a variable, parameters included */
  bool formal;           /* a parameter of the entry itself */
  bool missing;          /* no text defines it */
  uint64_t offset, nbytes;
} ptx_symbol;

/* Who else has what a module declares. */
typedef enum ptx_linkage { PTX_OWN, PTX_EXTERN, PTX_COMMON, PTX_WEAK, PTX_VISIBLE } ptx_linkage;

/* A variable that every text that is linked may name. */
typedef struct ptx_shared {
  ptx_linkage linkage;
  const char *at;
  size_t length;
  ptx_space space;
  uint64_t offset, nbytes;
} ptx_shared;

/* The address of a function among the first values of variables. */
typedef struct ptx_pointer {
  const char *at; /* its name */
  size_t length;
  unsigned text, line;
  size_t offset;
} ptx_pointer;

/* A branch to a label that may come later. */
typedef struct ptx_jump {
  ptx_token label;
  unsigned scope;
  size_t inst;
} ptx_jump;

typedef struct ptx_reader {
  const char *at;
  unsigned line;
  unsigned text;   /* of those that are linked, which; from 1 on */
  ptx_token token; /* the next one */
  bool failed;
  ptx_message *why;
  ptx_program *program;
  ptx_entry *entry;
  ptx_linkage linkage; /* of what is being declared outside of entries */
  ptx_shared *shared;
  size_t nshared, shared_room;
  bool whole;  /* what no text defines is refused */
  bool places; /* what all texts may name is looked for and finds its place, and nothing else is read */
  ptx_symbol *symbols;
  size_t nsymbols, symbols_room;
  ptx_jump *jumps;
  size_t njumps, jumps_room;
  unsigned scope, nscopes;
  unsigned *parents; /* of scopes */
  ptx_type *types;   /* of registers */
  size_t regs_room, insts_room, params_room, calls_room, variables_room, prototypes_room;
  ptx_pointer *pointers;
  size_t npointers, pointers_room;
  size_t noutside;     /* symbols of the module itself */
  bool carries;        /* the entry has a condition code, which is one more register */
  uint32_t carry;
} ptx_reader;

enum { PTX_OUTSIDE = UINT32_MAX, PTX_MOST_SCOPES = 4096 }; /* the scope of the module itself; of one entry */

void ptx_advance(ptx_reader *r);
bool ptx_is(const ptx_reader *r, const char *text); /* whether the next token is this word or punctuation */
bool ptx_accept(ptx_reader *r, const char *text);
bool ptx_expect(ptx_reader *r, const char *text);
bool ptx_unexpected(ptx_reader *r, const char *what); /* fails: the next token is not what is expected */
bool ptx_take(ptx_reader *r, ptx_token_kind kind, const char *what, ptx_token *out);
bool ptx_same(const ptx_token *t, const char *text);
/* Always false; the first message is kept. */
bool ptx_fail(ptx_reader *r, unsigned line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void *ptx_grow(void *list, size_t n, size_t *room, size_t size);

bool ptx_type_named(const char *text, size_t length, ptx_type *out);
/* The innermost of that name that is visible here; *index is which of a family. */
const ptx_symbol *ptx_lookup(const ptx_reader *r, const ptx_token *name, uint32_t *index);
/* An instruction without its guard, from the opcode to the semicolon. */
bool ptx_instruction(ptx_reader *r, ptx_inst *out);
/* The opcode with its modifiers, and the letters of its operands (ptx_forms.c). */
bool ptx_opcode(ptx_reader *r, ptx_inst *out, const char **operands);
uint32_t ptx_carry(ptx_reader *r); /* the register of the condition code */
bool ptx_add_symbol(ptx_reader *r, const ptx_token *name, ptx_symbol s);
bool ptx_take_type(ptx_reader *r, ptx_type *out);
void ptx_keep_variable(ptx_reader *r, const char *name, size_t length, const ptx_module_variable *v);
/* Variables of .shared, .local, .const, .global and, in a body, .param; the parameters of an entry or function. */
bool ptx_variables(ptx_reader *r, ptx_space space);
bool ptx_parameters(ptx_reader *r);
bool ptx_space_word(ptx_reader *r, ptx_space *out);
/* Into r->entry, which is empty: from what follows .entry or .func to the end of the body, or the semicolon. */
bool ptx_entry_read(ptx_reader *r, bool is_function);
/* call, behind its opcode; what stands behind .callprototype. */
bool ptx_call_operands(ptx_reader *r, ptx_inst *i);
bool ptx_prototype_read(ptx_reader *r, const ptx_token *name);
/* Whether the name is that of a function that is declared, and its address. */
bool ptx_function_named(const ptx_reader *r, const ptx_token *name, uint64_t *out);
bool ptx_alignment(ptx_reader *r, size_t *align);
/* An operand that is a register of 64 bits. */
bool ptx_pointer_operand(ptx_reader *r, const ptx_token *name, ptx_operand *out);

static inline int ptx_shown(const ptx_token *t) {
  return (int)(t->length < 80 ? t->length : 80);
}

#endif
