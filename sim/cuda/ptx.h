/* ptx.h: the subset of PTX that the simulator runs.
 *
 * A text is read once into instructions whose operands are slots and constants, with every name and type checked, so
 * that running one cannot meet a malformed instruction. It must not know about streams, modules or memory. */
#ifndef SIM_CUDA_PTX_H
#define SIM_CUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ptx_class { PTX_BITS, PTX_UNSIGNED, PTX_SIGNED, PTX_FLOAT, PTX_PREDICATE } ptx_class;

typedef struct ptx_type {
  ptx_class class;
  unsigned bits; /* 1 for a predicate */
} ptx_type;

/* From PTX_LD on they do more than change registers. */
typedef enum ptx_code {
  PTX_ADD,
  PTX_SUB,
  PTX_MUL,
  PTX_MAD,
  PTX_FMA,
  PTX_DIV,
  PTX_REM,
  PTX_MIN,
  PTX_MAX,
  PTX_ABS,
  PTX_NEG,
  PTX_AND,
  PTX_OR,
  PTX_XOR,
  PTX_NOT,
  PTX_SHL,
  PTX_SHR,
  PTX_SELP,
  PTX_MOV,
  PTX_CVT,
  PTX_SETP,
  PTX_LD,
  PTX_ST,
  PTX_BRA,
  PTX_RET
} ptx_code;

typedef enum ptx_mode { PTX_NO_MODE, PTX_LOW, PTX_HIGH, PTX_WIDE } ptx_mode;
typedef enum ptx_space { PTX_GLOBAL, PTX_PARAM } ptx_space;
typedef enum ptx_compare { PTX_EQ, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE } ptx_compare;
typedef enum ptx_join { PTX_ALONE, PTX_WITH_AND, PTX_WITH_OR, PTX_WITH_XOR } ptx_join;
typedef enum ptx_round { PTX_NO_ROUND, PTX_NEAREST, PTX_TO_EVEN, PTX_TO_ZERO, PTX_DOWN, PTX_UP } ptx_round;

typedef enum ptx_kind { PTX_NOTHING, PTX_REGISTER, PTX_CONSTANT, PTX_SPECIAL } ptx_kind;

enum { PTX_SPECIALS = 12 }; /* tid, ntid, ctaid, nctaid; x, y, z of each */

typedef struct ptx_operand {
  ptx_kind kind;
  bool negated;   /* a predicate */
  uint32_t index; /* of the register or special register */
  uint64_t value; /* the constant */
} ptx_operand;

typedef struct ptx_inst {
  ptx_code code;
  ptx_type type, from; /* from: what cvt converts */
  ptx_mode mode;
  ptx_space space;
  ptx_compare compare;
  ptx_join join;
  ptx_round round;
  unsigned lanes; /* elements of a vector, 1 otherwise */
  unsigned line;
  uint32_t target;
  ptx_operand guard;
  ptx_operand to[4];   /* setp: the second is its inverse */
  ptx_operand args[4]; /* ld: nothing; st: the values */
  ptx_operand base;    /* ld, st: the address is base + offset */
  uint64_t offset;
} ptx_inst;

typedef struct ptx_param {
  size_t offset, nbytes;
} ptx_param;

/* One .entry. */
typedef struct ptx_entry {
  char *name;
  ptx_param *params;
  size_t nparams, nbytes; /* nbytes: of all parameters together */
  ptx_inst *insts;
  size_t ninsts;
  uint8_t *bits; /* of each register */
  char **names;
  size_t nregs;
  unsigned most_threads, exact[3]; /* of a block; 0: any */
} ptx_entry;

typedef struct ptx_program {
  ptx_entry *entries;
  size_t nentries;
  unsigned version, target; /* 80 for .version 8.0, 90 for sm_90 */
} ptx_program;

/* Why a text was refused: one line. */
typedef struct ptx_message {
  char text[240];
} ptx_message;

/* NULL, with a message that names the line, for a text that is no PTX or beyond the subset. */
ptx_program *ptx_read(const char *text, ptx_message *why);
void ptx_free(ptx_program *p);
const ptx_entry *ptx_find(const ptx_program *p, const char *name);

/* An arithmetic instruction on values that are zero-extended from the width of its type; the same for the result. */
uint64_t ptx_compute(const ptx_inst *i, const uint64_t *args);
bool ptx_divides_by_zero(const ptx_inst *i, const uint64_t *args);
bool ptx_holds(const ptx_inst *i, uint64_t a, uint64_t b); /* setp's comparison */
int64_t ptx_extend(uint64_t v, ptx_type t);                /* to 64 bits, by sign if the type has one */
uint64_t ptx_truncate(uint64_t v, unsigned bits);

#endif
