/* model_spec.c: random programs, compared with a model that knows nothing of vector clocks.
 *
 * The model keeps, for each stream, event and for the host, the plain set of operations that come before. For
 * each step of each program the checker must say "race" exactly if the model does; and a program without races
 * must leave the same bytes under every seed as when its steps are simply done one after the other. */
#include "spec.h"

enum { STREAMS = 5, EVENTS = 3, BUFFERS = 3, SIZE = 64, STEPS = 60, MAX_OPS = 1024, WORDS = MAX_OPS / 64 };

typedef struct set {
  uint64_t bits[WORDS];
} set;

typedef struct access {
  int op, buffer;
  size_t lo, hi;
  bool write;
} access;

static struct model {
  set stream[STREAMS], event[EVENTS], host;
  bool recorded[EVENTS];
  access accesses[2 * MAX_OPS];
  int naccesses, nops;
  unsigned char bytes[BUFFERS][SIZE];
} m;

static CUstream streams[STREAMS];
static CUevent events[EVENTS];
static CUdeviceptr buffers[BUFFERS];
static uint64_t state;

static unsigned draw(unsigned n) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(state >> 33) % n;
}

static void join(set *into, const set *from) {
  for (int i = 0; i < WORDS; i++) into->bits[i] |= from->bits[i];
}

static bool has(const set *s, int op) {
  return (s->bits[op / 64] >> (op % 64) & 1) != 0;
}

/* Stream 0 is the legacy stream, 1 and 2 are blocking; only operations order them, no wait of the host's. Returns the
 * operation, after all that comes before it. */
static int model_op(int s, const set *also) {
  set *seen = &m.stream[s];
  join(seen, &m.host);
  if (also != NULL) join(seen, also);
  if (s == 0) join(seen, &m.stream[1]);
  if (s == 0) join(seen, &m.stream[2]);
  if (s == 1 || s == 2) join(seen, &m.stream[0]);
  assert_true(m.nops < MAX_OPS);
  const int op = m.nops++;
  seen->bits[op / 64] |= 1ull << (op % 64);
  return op;
}

static bool model_access(int s, int op, access a) {
  bool race = false;
  a.op = op;
  for (int i = 0; i < m.naccesses; i++) {
    const access *b = &m.accesses[i];
    const bool overlap = b->buffer == a.buffer && b->lo < a.hi && a.lo < b->hi;
    if (overlap && (a.write || b->write) && b->op != op && !has(&m.stream[s], b->op)) race = true;
  }
  m.accesses[m.naccesses++] = a;
  return race;
}

static bool step_fill(int s) {
  const size_t lo = draw(SIZE), n = 1 + draw((unsigned)(SIZE - lo)) / (1 + draw(8));
  const int b = (int)draw(BUFFERS);
  const unsigned char v = (unsigned char)draw(256);
  OK(cuMemsetD8Async(buffers[b] + lo, v, n, streams[s]));
  memset(m.bytes[b] + lo, v, n);
  return model_access(s, model_op(s, NULL), (access){.buffer = b, .lo = lo, .hi = lo + n, .write = true});
}

static bool step_copy(int s) {
  const size_t n = 1 + draw(SIZE / 2) / (1 + draw(3)), from = draw(SIZE / 2), to = draw(SIZE / 2);
  const int a = (int)draw(BUFFERS), b = (a + 1 + (int)draw(BUFFERS - 1)) % BUFFERS;
  OK(cuMemcpyDtoDAsync_v2(buffers[b] + to, buffers[a] + from, n, streams[s]));
  memmove(m.bytes[b] + to, m.bytes[a] + from, n);
  const int op = model_op(s, NULL);
  const bool one = model_access(s, op, (access){.buffer = a, .lo = from, .hi = from + n});
  const bool two = model_access(s, op, (access){.buffer = b, .lo = to, .hi = to + n, .write = true});
  return one || two;
}

static void step_record(int e, int s) {
  OK(cuEventRecord(events[e], streams[s]));
  model_op(s, NULL);
  m.event[e] = m.stream[s];
  m.recorded[e] = true;
}

static void step_wait(int s, int e) {
  OK(cuStreamWaitEvent(streams[s], events[e], 0));
  if (m.recorded[e]) model_op(s, &m.event[e]);
}

static void step_host(void) {
  const int s = (int)draw(STREAMS), e = (int)draw(EVENTS);
  if (draw(2) == 0) {
    OK(cuStreamSynchronize(streams[s]));
    join(&m.host, &m.stream[s]);
  } else {
    OK(cuEventSynchronize(events[e]));
    if (m.recorded[e]) join(&m.host, &m.event[e]);
  }
}

static void wait_for_all_others(int s) {
  for (int other = 0; other < STREAMS; other++) {
    if (other == s) continue;
    const int e = (int)draw(EVENTS);
    step_record(e, other);
    step_wait(s, e);
  }
}

/* Half of the programs are the same in every commit; MOONFERRY_SPEC_SEED moves the others. */
static uint64_t start_of(uint64_t program) {
  const char *text = getenv("MOONFERRY_SPEC_SEED");
  return program % 4 < 2 || text == NULL ? program : program + strtoull(text, NULL, 10);
}

/* carefulness: how many of 16 operations wait for all other streams first. Returns whether anything raced. */
static bool run_program(uint64_t program, uint64_t seed, unsigned carefulness) {
  bool raced = false;
  memset(&m, 0, sizeof m);
  state = start_of(program);
  sim_seed(seed);
  for (int i = 0; i < BUFFERS; i++) {
    OK(cuMemAlloc_v2(&buffers[i], SIZE));
    memset(m.bytes[i], 0xCB, SIZE);
  }
  for (int i = 0; i < EVENTS; i++) events[i] = event();
  for (int i = 1; i < STREAMS; i++) OK(cuStreamCreate(&streams[i], i <= 2 ? 0 : CU_STREAM_NON_BLOCKING));
  streams[0] = CU_STREAM_LEGACY;
  for (int i = 0; i < STEPS; i++) {
    const int s = (int)draw(STREAMS);
    const unsigned what = draw(10);
    bool race = false;
    if (what < 7 && draw(16) < carefulness) wait_for_all_others(s);
    if (what < 4) race = step_fill(s);
    else if (what < 7) race = step_copy(s);
    else if (what == 7) step_record((int)draw(EVENTS), s);
    else if (what == 8) step_wait(s, (int)draw(EVENTS));
    else step_host();
    if (race != (sim_findings(SIM_RACE) > 0)) {
      show_findings();
      fail_msg("program %llu, step %d: the model says %s", (unsigned long long)program, i, race ? "race" : "none");
    }
    raced = raced || race;
    sim_reset();
  }
  return raced;
}

static int finish_program(void) {
  unsigned char got[SIZE];
  int wrong = 0;
  OK(cuCtxSynchronize());
  for (int i = 0; i < BUFFERS; i++) {
    OK(cuMemcpyDtoH_v2(got, buffers[i], SIZE));
    wrong += memcmp(got, m.bytes[i], SIZE) != 0;
    OK(cuMemFree_v2(buffers[i]));
  }
  for (int i = 0; i < EVENTS; i++) OK(cuEventDestroy_v2(events[i]));
  for (int i = 1; i < STREAMS; i++) OK(cuStreamDestroy_v2(streams[i]));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  return wrong;
}

static void races_are_found_exactly(void **unused) {
  (void)unused;
  int racy = 0, silent = 0, visible = 0;
  for (uint64_t program = 1; program <= 400; program++) {
    const unsigned carefulness = program % 2 == 0 ? 16 : program % 8 == 1 ? 2 : 12 + (unsigned)(program % 4);
    bool raced = false, wrong = false;
    for (uint64_t seed = 0; seed < 8; seed++) {
      raced = run_program(program, seed, carefulness);
      const int differs = finish_program();
      if (differs != 0 && !raced) fail_msg("program %llu, seed %llu: wrong bytes, no race", (unsigned long long)program,
                                           (unsigned long long)seed);
      wrong = wrong || differs != 0;
    }
    racy += raced;
    silent += !raced;
    visible += wrong;
  }
  print_message("%d programs raced, %d of them with wrong bytes under 8 seeds; %d did not race\n", racy, visible,
                silent);
  assert_true(racy > 50 && silent > 150);
  assert_true(visible * 2 > racy);
}

RUN(SPEC(races_are_found_exactly))
