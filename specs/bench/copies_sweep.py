"""Random rows for `specs/bench/copies.py --sweep SEED`: layouts, dtypes and sizes that no table names.

Knows nothing of who copies.
"""

import math
import random

DTYPES = (
    "uint8 int8 bool uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2"
).split()
LEAST, MOST = 64, 64 << 20  # bytes of the larger side


def random_shape(draw, n):
    """About n elements; one axis of three is tiny."""
    ndim = draw.randint(1, 5)
    left, shape = n, []
    for i in range(ndim - 1):
        tiny = draw.random() < 0.33
        extent = draw.randint(2, 4) if tiny else round(left ** (draw.uniform(0.5, 1.5) / (ndim - i)))
        shape.append(max(1, min(extent, left)))
        left = max(1, left // shape[-1])
    shape.append(left)
    draw.shuffle(shape)
    return shape


def random_index(draw, shape):
    """For each axis all, backwards, every second or third, or what is not at its ends; mostly all."""
    index = []
    for extent in shape:
        cut = slice(extent // 8, extent - extent // 8)
        index.append(
            draw.choice([slice(None)] * 6 + [slice(None, None, -1), slice(None, None, draw.randint(2, 3)), cut])
        )
    return tuple(index)


def random_cases(seed, count, itemsize):
    """count of (name, shape, dtype, view, target); itemsize(dtype) is in bytes."""
    draw = random.Random(seed)
    for _ in range(count):
        source = draw.choice(DTYPES)
        target = source if draw.random() < 0.5 else draw.choice(DTYPES)
        nbytes = math.exp(draw.uniform(math.log(LEAST), math.log(MOST)))
        shape = random_shape(draw, max(1, round(nbytes / max(itemsize(source), itemsize(target)))))
        index, axes = random_index(draw, shape), list(range(len(shape)))
        if draw.random() < 0.6:
            draw.shuffle(axes)
        steps = ",".join(f"{s.start or ''}:{s.stop or ''}:{s.step or ''}" if s != slice(None) else ":" for s in index)
        name = f"{'x'.join(map(str, shape))} {source} to {target}, [{steps}], axes {axes}"
        yield name, shape, source, lambda a, index=index, axes=axes: a[index].transpose(axes), target
