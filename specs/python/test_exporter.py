"""Buffers of exporters that fill the struct as they like, and those with as many axes as there can be."""

import ctypes as c
import gc

import pytest

import moonferry as mf
from test_buffer import Buffer

GETBUFFER = c.CFUNCTYPE(c.c_int, c.py_object, c.POINTER(Buffer), c.c_int)
BF_GETBUFFER = 1


class Slot(c.Structure):
    _fields_ = (("slot", c.c_int), ("function", c.c_void_p))


class Spec(c.Structure):
    _fields_ = (
        ("name", c.c_char_p), ("basicsize", c.c_int), ("itemsize", c.c_int), ("flags", c.c_uint),
        ("slots", c.POINTER(Slot)),
    )  # fmt: skip


MEMORY = (c.c_uint8 * 12)(*range(12))


class Exporter:
    """An object whose buffer has these fields; all else is NULL or 0."""

    def __init__(self, **fields):
        def fill(obj, view, flags):
            c.memset(view, 0, c.sizeof(Buffer))
            view[0].buf, view[0].len, view[0].itemsize, view[0].ndim = c.addressof(MEMORY), 12, 1, 1
            for name, value in fields.items():
                setattr(view[0], name, value)
            c.pythonapi.Py_IncRef(c.py_object(obj))
            view[0].obj = id(obj)
            return 0

        self.fill = GETBUFFER(fill)
        slots = (Slot * 2)(Slot(BF_GETBUFFER, c.cast(self.fill, c.c_void_p).value), Slot(0, None))
        make = c.pythonapi.PyType_FromSpec
        make.restype, make.argtypes = c.py_object, [c.POINTER(Spec)]
        self.object = make(c.byref(Spec(b"specs.Exporter", object.__basicsize__, 0, 0, slots)))()


def extents(*values):
    return (c.c_ssize_t * len(values))(*values)


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, list(range(12))),
        ({"shape": extents(3)}, [0, 1, 2]),
        ({"format": b"h", "itemsize": 2, "readonly": 1}, [256 * (2 * i + 1) + 2 * i for i in range(6)]),
        ({"shape": extents(3), "strides": extents(2)}, [0, 2, 4]),
        ({"ndim": 0, "len": 1}, 0),
    ],
)
def test_an_exporter_that_leaves_fields_out(fields, expected):
    exporter = Exporter(**fields)
    t = mf.asarray(exporter.object)
    assert t.tolist() == expected and t.readonly == bool(fields.get("readonly"))
    del t
    gc.collect()


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"itemsize": 3}, "format 'B' with items of 3 bytes"),
        ({"format": b"h", "itemsize": 3}, "format 'h' with items of 3 bytes"),
        ({"ndim": 65, "shape": extents(*[1] * 65)}, "has 65 axes, at most 64"),
    ],
)
def test_an_exporter_whose_fields_do_not_fit(fields, said):
    exporter = Exporter(**fields)
    with pytest.raises(mf.ExchangeError, match=said):
        mf.asarray(exporter.object, copy=False)


def test_as_many_axes_as_a_tensor_can_have():
    kind = c.c_uint8
    for _ in range(64):
        kind *= 1
    assert mf.asarray(kind()).shape == (1,) * 64
    with pytest.raises(mf.ExchangeError, match="has 65 axes, at most 64"):
        mf.asarray((kind * 1)(), copy=False)
