/* ptx_warp.c: what threads of a warp exchange when they meet: shfl, vote, and bar.warp.sync, which exchanges nothing.
 *
 * It must not know how they come to meet. */
#include "ptx_lane.h"

/* Those that wait where `first` waits and that its mask names. */
static uint32_t members(const lane *warp, uint32_t n, const lane *first, int mask_at) {
  const uint32_t mask = (uint32_t)ptx_value(first, &first->at->args[mask_at]);
  uint32_t out = 0;
  for (uint32_t k = 0; k < n; k++)
    if ((mask >> k & 1) != 0 && warp[k].status == PTX_IN_WARP && warp[k].at == first->at) out |= 1u << k;
  return out;
}

/* The source of lane k, by the rules of shfl: c holds the last lane of the segment and which bits choose it. */
static uint32_t source_of(const ptx_inst *i, uint32_t k, uint32_t b, uint32_t c, bool *has) {
  const uint32_t segment = c >> 8 & 31, clamp = c & 31;
  const uint32_t most = (k & segment) | (clamp & ~segment), least = k & segment;
  const int64_t j = i->act == PTX_SHFL_UP     ? (int64_t)k - b
                    : i->act == PTX_SHFL_DOWN ? (int64_t)k + b
                    : i->act == PTX_SHFL_BFLY ? (int64_t)(k ^ b)
                                              : (int64_t)(least | (b & ~segment));
  *has = i->act == PTX_SHFL_UP ? j >= (int64_t)most : j <= (int64_t)most;
  return *has ? (uint32_t)j : k;
}

static bool shuffle(lane *warp, uint32_t n, uint32_t met, const ptx_inst *i) {
  uint64_t values[PTX_WARP_SIZE] = {0};
  bool unknown[PTX_WARP_SIZE] = {false};
  for (uint32_t k = 0; k < n; k++) {
    if ((met >> k & 1) == 0) continue;
    if (!ptx_readable(&warp[k], i, &i->args[0], &unknown[k])) return false;
    values[k] = ptx_value(&warp[k], &i->args[0]);
  }
  for (uint32_t k = 0; k < n; k++) {
    lane *l = &warp[k];
    bool has, vague = false;
    if ((met >> k & 1) == 0) continue;
    if (!ptx_readable(l, i, &i->args[1], &vague) || !ptx_readable(l, i, &i->args[2], &vague)) return false;
    const uint32_t from = source_of(i, k, (uint32_t)ptx_value(l, &i->args[1]) & 31,
                                    (uint32_t)ptx_value(l, &i->args[2]), &has);
    if (!vague && (met >> from & 1) == 0)
      return ptx_wrong(l, i, PTX_STUCK, SIM_MISUSE, "it takes the value of a thread that takes no part");
    l->perhaps = false;
    ptx_put(l, &i->to[0], values[from & 31], i->type, vague || unknown[from & 31]);
    if (i->to[1].kind == PTX_REGISTER) ptx_put(l, &i->to[1], has, (ptx_type){PTX_PREDICATE, 1}, vague);
  }
  return true;
}

static bool vote(lane *warp, uint32_t n, uint32_t met, const ptx_inst *i) {
  uint32_t votes = 0;
  bool unknown = false;
  for (uint32_t k = 0; k < n; k++) {
    if ((met >> k & 1) == 0) continue;
    if (!ptx_readable(&warp[k], i, &i->args[0], &unknown)) return false;
    if (ptx_value(&warp[k], &i->args[0]) != 0) votes |= 1u << k;
  }
  const uint64_t v = i->act == PTX_VOTE_BALLOT ? votes
                     : i->act == PTX_VOTE_ANY  ? votes != 0
                     : i->act == PTX_VOTE_ALL  ? votes == met
                                               : votes == met || votes == 0;
  for (uint32_t k = 0; k < n; k++) {
    if ((met >> k & 1) == 0) continue;
    warp[k].perhaps = false;
    ptx_put(&warp[k], &i->to[0], v, i->type, unknown);
  }
  return true;
}

bool ptx_warp_meet(lane *warp, uint32_t n, lane *first) {
  const ptx_inst *i = first->at;
  const uint32_t met = members(warp, n, first, i->code == PTX_SHFL ? 3 : i->code == PTX_VOTE ? 1 : 0);
  if (i->code == PTX_SHFL && !shuffle(warp, n, met, i)) return false;
  if (i->code == PTX_VOTE && !vote(warp, n, met, i)) return false;
  for (uint32_t k = 0; k < n; k++) {
    if ((met >> k & 1) == 0) continue;
    warp[k].sync += i->code == PTX_WARP;
    warp[k].status = PTX_RUNNING;
  }
  return true;
}
