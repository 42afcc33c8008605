/* lz4.c: decompresses an LZ4 block, the form in which CUDA 12's compiler packs machine code.
 *
 * A block is a row of sequences: a token, literals, then how far back and how many bytes to repeat; the last one ends
 * behind its literals. Invariant: nothing is read or written outside of the two buffers, whatever the block says. It
 * must not know what the bytes mean. */
#include <string.h>

#include "fatbin.h"

typedef struct block {
  const unsigned char *at, *end;
} block;

/* 15 in a token means that bytes follow to be added, up to the first that is not 255. SIZE_MAX: the block is broken. */
static size_t length(block *b, unsigned nibble) {
  enum { MORE = 15, LAST = 255 };
  size_t n = nibble;
  if (nibble != MORE) return n;
  while (b->at < b->end) {
    const unsigned byte = *b->at++;
    n += byte;
    if (byte != LAST) return n;
  }
  return SIZE_MAX;
}

static size_t room(const unsigned char *at, const unsigned char *end) {
  return (size_t)(end - at);
}

bool lz4_unpack(const unsigned char *from, size_t n, unsigned char *to, size_t wanted) {
  enum { SHORTEST = 4, NIBBLE = 4, LOW = 15, BYTE = 8 };
  block b = {from, from + n};
  unsigned char *out = to, *const end = to + wanted;
  while (b.at < b.end) {
    const unsigned token = *b.at++;
    const size_t literals = length(&b, token >> NIBBLE);
    if (literals > room(b.at, b.end) || literals > room(out, end)) return false;
    memcpy(out, b.at, literals);
    out += literals;
    b.at += literals;
    if (b.at == b.end) return out == end;
    if (room(b.at, b.end) < 2) return false;
    const size_t back = b.at[0] | (size_t)b.at[1] << BYTE;
    b.at += 2;
    const size_t repeated = length(&b, token & LOW);
    if (back == 0 || back > room(to, out)) return false;
    if (repeated > room(out, end) || repeated + SHORTEST > room(out, end)) return false;
    for (size_t i = 0; i < repeated + SHORTEST; i++, out++) *out = *(out - back); /* it may repeat what it writes */
  }
  return false;
}
