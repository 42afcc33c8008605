/* region.c: the bytes that an operation touches, as rows and slices.
 *
 * Invariant: two regions overlap exactly if they share a byte; a bounding box is only the first question. It
 * must not know whose bytes they are. */
#include "engine.h"

sim_region sim_flat(uintptr_t base, size_t nbytes) {
  return (sim_region){.base = base, .width = nbytes, .pitch = nbytes, .rows = 1, .slice = nbytes, .depth = 1};
}

bool sim_region_empty(const sim_region *r) {
  return r->width == 0 || r->rows == 0 || r->depth == 0;
}

uintptr_t sim_region_end(const sim_region *r) {
  if (sim_region_empty(r)) return r->base;
  return r->base + (r->depth - 1) * r->slice + (r->rows - 1) * r->pitch + r->width;
}

static bool dense(const sim_region *r) {
  return (r->rows == 1 || r->pitch == r->width) && (r->depth == 1 || r->slice == r->width * r->rows);
}

/* Whether [lo, hi) holds the start or the inside of a row of this slice. */
static bool slice_overlaps(const sim_region *r, uintptr_t slice, uintptr_t lo, uintptr_t hi) {
  const uintptr_t end = slice + (r->rows - 1) * r->pitch + r->width;
  if (hi <= slice || lo >= end) return false;
  if (lo <= slice || r->rows == 1 || r->pitch == 0) return true;
  const size_t row = (lo - slice) / r->pitch;
  const uintptr_t start = slice + row * r->pitch;
  if (row < r->rows && lo < start + r->width) return true;
  return row + 1 < r->rows && start + r->pitch < hi;
}

static bool overlaps_range(const sim_region *r, uintptr_t lo, uintptr_t hi) {
  if (dense(r)) return lo < sim_region_end(r) && r->base < hi;
  for (size_t d = 0; d < r->depth; d++)
    if (slice_overlaps(r, r->base + d * r->slice, lo, hi)) return true;
  return false;
}

bool sim_region_overlap(const sim_region *a, const sim_region *b) {
  if (sim_region_empty(a) || sim_region_empty(b)) return false;
  if (sim_region_end(a) <= b->base || sim_region_end(b) <= a->base) return false;
  if (dense(a)) return overlaps_range(b, a->base, sim_region_end(a));
  if (dense(b)) return overlaps_range(a, b->base, sim_region_end(b));
  const sim_region *few = a->rows * a->depth < b->rows * b->depth ? a : b, *other = few == a ? b : a;
  for (size_t d = 0; d < few->depth; d++)
    for (size_t i = 0; i < few->rows; i++) {
      const uintptr_t lo = few->base + d * few->slice + i * few->pitch;
      if (overlaps_range(other, lo, lo + few->width)) return true;
    }
  return false;
}
