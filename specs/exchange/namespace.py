"""Moonferry as the array module of the array API's test suite, as far as the suite's DLPack part needs one.

Everything that is exchanged is moonferry.Tensor's own: __dlpack__, __dlpack_device__ and from_dlpack are passed on as
they are, signatures included. What Moonferry has not, because it computes nothing, is made up here with NumPy:
comparison, `all`, and the little that Hypothesis asks of a module to fill arrays.
"""

import numpy as np

import moonferry as mf

__name__ = "moonferry"  # noqa: A001
__array_api_version__ = "2025.12"
__version__ = mf.__version__

bool = mf.bool  # noqa: A001
int8, int16, int32, int64 = mf.int8, mf.int16, mf.int32, mf.int64
uint8, uint16, uint32, uint64 = mf.uint8, mf.uint16, mf.uint32, mf.uint64
float32, float64, complex64, complex128 = mf.float32, mf.float64, mf.complex64, mf.complex128
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi


class Array:
    """A tensor with comparison."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getattr__(self, name):
        return getattr(self.tensor, name)

    @property
    def __dlpack__(self):
        return self.tensor.__dlpack__

    @property
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__

    def __array__(self, dtype=None, copy=None):
        return np.array(self.tensor, dtype)

    def __getitem__(self, key):
        found = self.tensor[key]
        return Array(found) if isinstance(found, mf.Tensor) else Array(mf.asarray(found, self.tensor.dtype))

    def __setitem__(self, key, value):
        self.tensor[key] = value.tensor if isinstance(value, Array) else value

    def __eq__(self, other):
        return compared(np.equal, self, other)

    def __ne__(self, other):
        return compared(np.not_equal, self, other)

    def __bool__(self):
        return self.tensor.__bool__()

    def __int__(self):
        return int(self.tensor)

    def __float__(self):
        return float(self.tensor)

    def __complex__(self):
        return complex(self.tensor)

    def __len__(self):
        return len(self.tensor)

    def __repr__(self):
        return repr(self.tensor)


def compared(how, a, b):
    return Array(mf.asarray(np.asarray(how(np.asarray(a), np.asarray(b)))))


def plain(value):
    return value.tensor if isinstance(value, Array) else value


def from_dlpack(x, /, *, device=None, copy=None):
    return Array(mf.from_dlpack(x, device=device, copy=copy))


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    return Array(mf.asarray(plain(obj), dtype, device=device, copy=copy))


def empty(shape, *, dtype=None, device=None):
    return Array(mf.empty(shape, dtype or float64, device=device))


def zeros(shape, *, dtype=None, device=None):
    return Array(mf.zeros(shape, dtype or float64, device=device))


def ones(shape, *, dtype=None, device=None):
    return Array(mf.ones(shape, dtype or float64, device=device))


def full(shape, fill_value, *, dtype=None, device=None):
    return Array(mf.full(shape, fill_value, dtype, device=device))


def reshape(x, /, shape, *, copy=None):
    return Array(plain(x).reshape(shape))


def all(x, /, *, axis=None, keepdims=False):  # noqa: A001
    return Array(mf.asarray(np.asarray(np.all(np.asarray(plain(x)), axis=axis, keepdims=keepdims))))


def any(x, /, *, axis=None, keepdims=False):  # noqa: A001
    return Array(mf.asarray(np.asarray(np.any(np.asarray(plain(x)), axis=axis, keepdims=keepdims))))


def isnan(x, /):
    return Array(mf.asarray(np.asarray(np.isnan(np.asarray(plain(x))))))


def isfinite(x, /):
    return Array(mf.asarray(np.asarray(np.isfinite(np.asarray(plain(x))))))


def unique_values(x, /):
    return Array(mf.asarray(np.unique(np.asarray(plain(x)))))


def astype(x, dtype, /, *, copy=True, device=None):
    return Array(plain(x).astype(dtype, copy=copy))


def iinfo(dtype, /):
    return np.iinfo(np.dtype(str(dtype)))


class finfo:  # noqa: N801
    def __init__(self, dtype, /):
        known = np.finfo(np.dtype(str(dtype)))
        self.bits, self.dtype = known.bits, dtype
        for name in ("eps", "max", "min", "smallest_normal"):
            setattr(self, name, float(getattr(known, name)))


KINDS = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]


def isdtype(dtype, kind):
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for one in kinds:
        if dtype == one or isinstance(one, str) and dtype in KINDS.get(one, ()):
            return True
    return False


class Info:
    """What __array_namespace_info__ gives."""

    def capabilities(self):
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self):
        return mf.Device("cpu")

    def default_dtypes(self, *, device=None):
        return {"real floating": float64, "complex floating": complex128, "integral": int64, "indexing": int64}

    def dtypes(self, *, device=None, kind=None):
        every = KINDS["bool"] + KINDS["numeric"]
        return {str(dtype): dtype for dtype in every if kind is None or isdtype(dtype, kind)}

    def devices(self):
        kinds = [mf.Device(f"{kind}:{i}") for kind in ("cuda", "rocm") for i in range(mf.device_count(kind))]
        return [mf.Device("cpu"), *kinds]


def __array_namespace_info__():  # noqa: N807
    return Info()
