/* hip_copy.h: the kernels for HIP that copy elements of SIZE bytes: one by one, and by tiles. An item of a tile is a
 * square of elements: LINES lines of LINE bytes, as many as there are elements in a line. It is C that hiprtc takes as
 * C++; axes are as in hip_walk.h. */
MF__HIP_TEXT(copy,
typedef struct item {
  unsigned char bytes[LINES * LINE];
} __attribute__((aligned(LINES * LINE))) item;

ENTRY mf_copy(const job j) {
  for (u64 i = first(); i < j.numel; i += step()) {
    const place p = place_of(&j, i, 0);
    item one;
    take(one.bytes, p.from, SIZE);
    give(p.to, one.bytes, SIZE);
  }
}

/* Its lines lie ${apart} bytes apart, and become columns. */
INSIDE item take_item(const char *from, long long apart) {
  item was;
  item is;
  for (int line = 0; line < LINES; line++) take(was.bytes + line * LINE, from + line * apart, LINE);
  for (int line = 0; line < LINES; line++)
    for (int column = 0; column < LINES; column++)
      for (int k = 0; k < SIZE; k++)
        is.bytes[column * LINE + line * SIZE + k] = was.bytes[line * LINE + column * SIZE + k];
  return is;
}

/* Axis 0 is the destination's fastest and axis 1 the source's: a block takes tiles of 32 by 32 items of these two
 * through its own memory, so that neighbouring threads read neighbours and write neighbours. A row of the tile is
 * padded by an item, so that a column does not lie in one bank of that memory. numel is the number of tiles, and fits
 * 31 bits as each extent does. */
ENTRY mf_transpose(const job j) {
  SHARED item tile[32][33];
  const unsigned n0 = (unsigned)j.shape[0];
  const unsigned n1 = (unsigned)j.shape[1];
  const unsigned tiles0 = (n0 + 31) / 32;
  const unsigned tiles1 = (n1 + 31) / 32;
  const unsigned x = thread() % 32;
  const unsigned y = thread() / 32;
  for (unsigned i = block(); i < j.numel; i += blocks()) {
    const unsigned at0 = i % tiles0 * 32;
    const unsigned at1 = i / tiles0 % tiles1 * 32;
    const place p = place_of(&j, i / tiles0 / tiles1, 2);
    for (unsigned k = y; k < 32; k += THREADS / 32) {
      if (at0 + k >= n0 || at1 + x >= n1) continue;
      const char *from = p.from + (at0 + k) * j.src_strides[0] + (at1 + x) * j.src_strides[1];
      const item one = take_item(from, j.src_strides[0] / LINES);
      put(&tile[k][x], &one, LINES * LINE);
    }
    if (meet()) return;
    for (unsigned k = y; k < 32; k += THREADS / 32) {
      item one;
      if (at1 + k >= n1 || at0 + x >= n0) continue;
      char *to = p.to + (at1 + k) * j.dst_strides[1] + (at0 + x) * j.dst_strides[0];
      get(&one, &tile[x][k], LINES * LINE);
      for (int line = 0; line < LINES; line++)
        give(to + line * (j.dst_strides[1] / LINES), one.bytes + line * LINE, LINE);
    }
    if (meet()) return;
  }
}
)
