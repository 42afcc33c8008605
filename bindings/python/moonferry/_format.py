"""How a tensor is shown: repr(t), laid out as NumPy lays out its arrays.

Responsible for text only. Invariant: at most about a thousand elements are read, however large the tensor
is; from a device they are copied to the host at once. It reads elements by indexing.
"""

import itertools
import math

from moonferry import _core
from moonferry._dtype import DType

THRESHOLD = 1000  # more elements than this are summarised
EDGE = 3  # how many are shown at each end of an axis then
WIDTH = 75  # columns
PRECISION = 8  # digits after the point


def tensor_repr(t):
    """The values of a tensor, its dtype, and its shape where the values do not show it."""
    prefix = "moonferry.Tensor("
    suffix = f", dtype={t.dtype})" if t.device == "cpu" else f", dtype={t.dtype}, device={t.device})"
    if t.size == 0:
        return f"{prefix}[], shape={t.shape}{suffix}" if t.shape != (0,) else f"{prefix}[]{suffix}"
    try:
        body = _body(t, len(prefix))
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        return f"{prefix}<{error}>, shape={t.shape}{suffix}"
    last = body.rpartition("\n")[2]
    room = WIDTH - (len(prefix) if last is body else 0)
    if len(last) + len(suffix) > room + 1:
        return prefix + body + ",\n" + " " * len(prefix) + suffix[2:]
    return prefix + body + suffix


def _body(t, indent):
    summary = t.size > THRESHOLD
    nested = _values(t, summary)
    if t.ndim == 0:
        return _formatter([nested], t)(nested).strip()
    leaves: list = []
    _collect(nested, t.ndim, leaves)
    return _layout(nested, t.ndim, _formatter(leaves, t), indent, summary and t.shape)


def _shown(extent, summary):
    """The coordinates that are shown; None stands for those left out."""
    if summary and extent > 2 * EDGE:
        return [*range(EDGE), None, *range(extent - EDGE, extent)]
    return range(extent)


def _values(t, summary):
    """Nested lists of the elements that are shown, with None where some are left out."""
    if t.dtype.code == 3:
        t = t.reinterpret(f"uint{t.dtype.bits}")
    elif t.dtype.lanes != 1:
        raise TypeError(f"{t.dtype} has more than one lane")
    if not summary:
        return t.tolist()
    corners = _singly(t) if _shares_bytes(t) else _corners(t).tolist()

    def spread(nested, depth):
        if depth == t.ndim:
            return nested
        items = iter(nested)
        shown = _shown(t.shape[depth], summary)
        return [None if i is None else spread(next(items), depth + 1) for i in shown]

    return spread(corners, 0)


def _shares_bytes(t):
    return t.dtype.bits % 8 != 0 and not t.flags & 4


def _singly(t, at=()):
    """As _corners, as nested lists, of elements within bytes, where a part may begin that is no view."""
    if len(at) == t.ndim:
        return t[at]
    return [_singly(t, (*at, i)) for i in _shown(t.shape[len(at)], True) if i is not None]


def _corners(t):
    """The elements of a large tensor that are shown, side by side: gathered where they are, read in one go."""
    pieces = [[slice(0, EDGE), slice(-EDGE, None)] if n > 2 * EDGE else [slice(0, n)] for n in t.shape]
    small = _core.empty([min(n, 2 * EDGE) for n in t.shape], t.dtype, device=t.device)
    for block in itertools.product(*pieces):
        small[block] = t[block]
    return small


def _collect(nested, depth, leaves):
    if depth == 0:
        leaves.append(nested)
        return
    for item in nested:
        if item is not None:
            _collect(item, depth - 1, leaves)


def _layout(nested, depth, show, indent, summary):
    """Lines of brackets: columns aligned, rows below one another, planes apart by empty lines."""
    if depth == 1:
        return _row(nested, show, indent)
    apart = "," + "\n" * (depth - 1) + " " * (indent + 1)
    parts = ["..." if item is None else _layout(item, depth - 1, show, indent + 1, summary) for item in nested]
    return "[" + apart.join(parts) + "]"


def _row(items, show, indent):
    words = ["..." if item is None else show(item) for item in items]
    text, line = "[", indent + 1
    for i, word in enumerate(words):
        more = len(word) + (1 if i + 1 < len(words) else 2)
        if i and line + more + 1 > WIDTH:
            text = text.rstrip() + "\n" + " " * (indent + 1)
            line = indent + 1
        elif i:
            text += " "
            line += 1
        text += word + ("," if i + 1 < len(words) else "")
        line += len(word) + 1
    return text + "]"


def _formatter(leaves, t):
    """A function from an element to text, of one width for all ${leaves}."""
    code = t.dtype.code
    if code == 5:
        real = _float_formatter([z.real for z in leaves], _digits_for(t, 2))
        imag = _float_formatter([z.imag for z in leaves], _digits_for(t, 2))
        return lambda z: real(z.real) + _imaginary(imag(z.imag), z.imag)
    if isinstance(leaves[0], float):
        return _float_formatter(leaves, _digits_for(t, 1))
    width = max(len(str(v)) for v in leaves)
    return lambda v: str(v).rjust(width)


def _imaginary(text, value):
    body = text.strip()
    if not body.startswith("-"):
        body = ("-" if math.copysign(1.0, value) < 0 else "+") + body
    return (body + "j").ljust(len(text) + 1)


def _digits_for(t, parts):
    """A function from a float to the fewest significant digits that name it in the tensor's dtype."""
    bits = t.dtype.bits // parts
    if t.dtype.code in (2, 5) and bits == 64:
        return repr
    name = DType(f"float{bits}") if t.dtype.code == 5 else t.dtype
    scratch = _core.empty((1,), name)

    def digits(value):
        for precision in range(1, 18):
            text = f"{value:.{precision}g}"
            scratch[0] = float(text)
            if scratch[0] == value:
                return text
        return repr(value)

    return digits


def _decimal(text):
    """(digits, exponent) of a finite number's text: value = 0.d1d2d3... * 10 ** exponent."""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    shift = len(whole) - (len(whole + fraction) - len(digits)) + int(exponent or 0)
    return digits.rstrip("0"), shift if digits else 0


def _float_formatter(leaves, digits):
    finite = [v for v in leaves if math.isfinite(v)]
    nonzero = [abs(v) for v in finite if v != 0]
    if nonzero and _needs_exponent(min(nonzero), max(nonzero)):
        show = _exponent_texts(finite, digits)
    else:
        show = _plain_texts(finite, digits)
    texts = {_key(v): show(v) for v in finite}
    left, right = _widths(texts.values(), leaves)

    def write(value):
        if not math.isfinite(value):
            name = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
            return name.rjust(left + right)
        text = texts[_key(value)]
        whole = text.partition(".")[0]
        return " " * (left - len(whole)) + text.ljust(len(whole) + right)

    return write


def _key(value):
    return (value, math.copysign(1.0, value))


def _needs_exponent(least, most):
    return most >= 1e8 or least < 1e-4 or most / least > 1000.0


def _widths(texts, leaves):
    """Columns before the point and from the point on; nan and inf need room, too."""
    left = max((len(text.partition(".")[0]) for text in texts), default=0)
    right = max((len(text) - len(text.partition(".")[0]) for text in texts), default=0)
    for value in leaves:
        if not math.isfinite(value):
            left = max(left, (4 if value == -math.inf else 3) - right)
    return left, right


def _plain_texts(finite, digits):
    def show(value):
        found, point = _decimal(digits(value))
        places = max(0, len(found) - point)
        if places > PRECISION or point > 17:
            text = f"{value:.{PRECISION}f}".rstrip("0")
            return text if "." in text else text + "."
        whole = found[:point].ljust(point, "0") if point > 0 else "0"
        fraction = "0" * -min(point, 0) + found[max(point, 0) :] if found else ""
        sign = "-" if math.copysign(1.0, value) < 0 else ""
        return f"{sign}{whole}.{fraction}"

    return show


def _exponent_texts(finite, digits):
    parts = {}
    for value in finite:
        found, point = _decimal(digits(value))
        if len(found) > PRECISION + 1:
            found, point = _decimal(f"{value:.{PRECISION}e}")
        parts[_key(value)] = (found or "0", point - 1 if found else 0)
    places = max(len(found) for found, _ in parts.values()) - 1
    width = max(2, max(len(str(abs(power))) for _, power in parts.values()))

    def show(value):
        found, power = parts[_key(value)]
        sign = "-" if math.copysign(1.0, value) < 0 else ""
        fraction = found[1:].ljust(places, "0")
        return f"{sign}{found[0]}.{fraction}e{'-' if power < 0 else '+'}{abs(power):0{width}d}"

    return show
