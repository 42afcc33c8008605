/* ptx.h: the subset of PTX that the simulator runs.
 *
 * A text is read once into instructions whose operands are slots and constants, with every name and type checked, so
 * that running one cannot meet a malformed instruction. It must not know about streams, modules or memory. */
#ifndef SIM_CUDA_PTX_H
#define SIM_CUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Functions of the driver's own. */
#define PTX_ASSERTION "__assertfail"
#define PTX_PRINTING "vprintf"

/* PTX_BRAIN is bf16; PTX_PAIR is f16x2, which is two f16 beside each other. */
typedef enum ptx_class {
  PTX_BITS,
  PTX_UNSIGNED,
  PTX_SIGNED,
  PTX_FLOAT,
  PTX_PREDICATE,
  PTX_BRAIN,
  PTX_PAIR
} ptx_class;

typedef struct ptx_type {
  ptx_class class;
  unsigned bits; /* 1 for a predicate */
} ptx_type;

/* From PTX_LD on they do more than change registers; from PTX_BAR on a thread waits for others of its block. */
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
  PTX_SQRT,
  PTX_RSQRT,
  PTX_RCP,
  PTX_SIN,
  PTX_COS,
  PTX_EX2,
  PTX_LG2,
  PTX_TANH,
  PTX_COPYSIGN,
  PTX_POPC,
  PTX_CLZ,
  PTX_BREV,
  PTX_BFE,
  PTX_BFI,
  PTX_PRMT,
  PTX_LOP3,
  PTX_SHF,
  PTX_PACK,
  PTX_CVTA,
  PTX_SETP,
  PTX_UNPACK,
  PTX_LD,
  PTX_ST,
  PTX_ATOM,
  PTX_FENCE,
  PTX_CALL,
  PTX_BRA,
  PTX_RET,
  PTX_EXIT,
  PTX_TRAP,
  PTX_BAR,
  PTX_WARP, /* bar.warp.sync */
  PTX_SHFL,
  PTX_VOTE
} ptx_code;

typedef enum ptx_mode { PTX_NO_MODE, PTX_LOW, PTX_HIGH, PTX_WIDE } ptx_mode;
typedef enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_PARAM, PTX_SHARED, PTX_LOCAL, PTX_CONST } ptx_space;
/* The last two: whether both are numbers, or one is not. */
typedef enum ptx_compare { PTX_EQ, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE, PTX_NUM, PTX_NAN } ptx_compare;
/* What atom and red do, what shfl takes from whom, what vote asks. */
typedef enum ptx_act {
  PTX_NO_ACT,
  PTX_ATOM_ADD,
  PTX_ATOM_MIN,
  PTX_ATOM_MAX,
  PTX_ATOM_AND,
  PTX_ATOM_OR,
  PTX_ATOM_XOR,
  PTX_ATOM_EXCH,
  PTX_ATOM_CAS,
  PTX_ATOM_INC,
  PTX_ATOM_DEC,
  PTX_SHFL_UP,
  PTX_SHFL_DOWN,
  PTX_SHFL_BFLY,
  PTX_SHFL_IDX,
  PTX_VOTE_ALL,
  PTX_VOTE_ANY,
  PTX_VOTE_UNI,
  PTX_VOTE_BALLOT
} ptx_act;
typedef enum ptx_join { PTX_ALONE, PTX_WITH_AND, PTX_WITH_OR, PTX_WITH_XOR } ptx_join;
/* Up to PTX_HIGHER to what the type holds, from PTX_TO_EVEN on to an integer. */
typedef enum ptx_round {
  PTX_NO_ROUND,
  PTX_NEAREST,
  PTX_CHOPPED,
  PTX_LOWER,
  PTX_HIGHER,
  PTX_TO_EVEN,
  PTX_TO_ZERO,
  PTX_DOWN,
  PTX_UP
} ptx_round;

/* PTX_OWN_PLACE: a constant and where the frame's local memory begins. */
typedef enum ptx_kind { PTX_NOTHING, PTX_REGISTER, PTX_CONSTANT, PTX_SPECIAL, PTX_OWN_PLACE } ptx_kind;

/* tid, ntid, ctaid, nctaid (x, y, z of each), laneid, warpid, five lanemasks, smid, bytes of shared memory. */
enum { PTX_LANE = 12, PTX_WARP_ID, PTX_LANE_MASKS, PTX_SM = 19, PTX_DYNAMIC_SHARED, PTX_TOTAL_SHARED, PTX_SPECIALS };
enum { PTX_WARP_SIZE = 32, PTX_CARRY = 7 };

  /* Shared and local memory, and that of constants, where a generic address names them: high windows that no memory
 * has. */

#define PTX_WINDOW(space) ((uint64_t)(space) << 56)
/* The address of a function is its index here. */
#define PTX_CODE_WINDOW ((uint64_t)6 << 56)
/* Shared memory of dynamic size begins here, whatever there is of static size. */
#define PTX_DYNAMIC_AT ((uint64_t)1 << 20)

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
  ptx_act act;
  bool unordered; /* a comparison holds for what is no number */
  bool saturates, flushes, to_space; /* .sat, .ftz, cvta.to */
  bool left, wraps;                  /* shf */
  unsigned lanes; /* elements of a vector, 1 otherwise */
  unsigned line;
  uint32_t target;
  ptx_operand guard;
  ptx_operand to[8];   /* setp: the second is its inverse; shfl: the second says whether it had a source */
  ptx_operand args[8]; /* ld: nothing; st: the values; call: nothing; the last of both: the carry */
  ptx_operand base;    /* ld, st: the address is base + offset; call: the pointer, or nothing */
  uint64_t offset;
} ptx_inst;

typedef struct ptx_param {
  size_t offset, nbytes;
} ptx_param;

/* What a call through a pointer says of the function: how many results, and bytes of each, then of each argument. */
typedef struct ptx_prototype {
  size_t results, arguments;
  size_t *nbytes;
} ptx_prototype;

/* A call hands these over: places in the parameters of the one that calls. */
typedef struct ptx_call {
  char *name;       /* until it is found; NULL: the instruction has a pointer */
  size_t prototype; /* of the entry's, of a call through a pointer */
  size_t callee;
  size_t results, arguments; /* how many */
  size_t *places;            /* of the results, then of the arguments */
  unsigned line;
} ptx_call;

/* One .entry or .func. */
typedef struct ptx_entry {
  char *name;
  bool is_function, has_body;
  bool shared, weak;      /* every text that is linked may call it; another one of its name may stand in for it */
  unsigned text, line;    /* of the texts, which; where its name stands */
  bool waits, has_shared; /* its threads wait for others; it names shared memory */
  ptx_param *params;      /* of a function: its results, then its arguments */
  size_t nparams, nbytes; /* nbytes: of all parameters together */
  size_t nresults;
  size_t frame, local; /* bytes of its parameters and those that it declares for calls, and of its local memory */
  ptx_call *calls;
  size_t ncalls;
  ptx_prototype *prototypes;
  size_t nprototypes;
  ptx_inst *insts;
  size_t ninsts;
  uint8_t *bits; /* of each register */
  char **names;
  size_t nregs;
  unsigned most_threads, exact[3]; /* of a block; 0: any */
} ptx_entry;

/* One of .global or .const that is declared outside of entries. */
typedef struct ptx_module_variable {
  char *name;
  bool visible; /* to others than its text */
  bool constant;
  size_t offset, nbytes; /* among the constants, where its first value stands */
} ptx_module_variable;

typedef struct ptx_program {
  ptx_entry *entries;
  size_t nentries;
  size_t shared;         /* bytes of a block's static shared memory */
  bool waits, has_shared; /* of any function: as of an entry */
  bool fences;           /* one for the device, which may order blocks */
  unsigned char *consts; /* what .const says, and the first values of .global */
  size_t nconsts;
  ptx_module_variable *variables;
  size_t nvariables;
  unsigned version, target; /* 80 for .version 8.0, 90 for sm_90 */
} ptx_program;

/* Why a text was refused: one line. */
typedef struct ptx_message {
  char text[240];
} ptx_message;

/* Texts that are linked to one program. NULL, with a message that names the line, for a text that is no PTX or beyond
 * the subset. `whole`: they must have all that they name; otherwise others may be linked to them, and what was read
 * cannot be run. */
ptx_program *ptx_read(const char *const *texts, size_t n, bool whole, ptx_message *why);
void ptx_free(ptx_program *p);
const ptx_entry *ptx_find(const ptx_program *p, const char *name);
/* Each is p->nvariables if there is none: of that name, which others see; in which that byte of the constants lies. */
size_t ptx_variable_named(const ptx_program *p, const char *name);
size_t ptx_variable_at(const ptx_program *p, uint64_t offset);

/* An arithmetic instruction on values that are zero-extended from the width of its type; the same for the result. */
uint64_t ptx_compute(const ptx_inst *i, const uint64_t *args);
bool ptx_divides_by_zero(const ptx_inst *i, const uint64_t *args);
bool ptx_holds(const ptx_inst *i, uint64_t a, uint64_t b); /* setp's comparison */
int64_t ptx_extend(uint64_t v, ptx_type t);                /* to 64 bits, by sign if the type has one */
uint64_t ptx_truncate(uint64_t v, unsigned bits);
bool ptx_is_real(ptx_type t);
uint64_t ptx_with_carry(const ptx_inst *i, const uint64_t *args, bool in, bool *out);
uint64_t ptx_real_compute(const ptx_inst *i, const uint64_t *args);
bool ptx_real_holds(const ptx_inst *i, uint64_t a, uint64_t b);
/* What an atomic instruction leaves where `old` was. */
uint64_t ptx_atomic(const ptx_inst *i, uint64_t old, const uint64_t *args);

#endif
