"""DLPack 1.3 as ctypes sees it: the structs, and capsules made and read by hand.

Keeps the layouts of `dlpack.h`, nothing of Moonferry's: a spec that compares with these compares with the
standard. A `Producer` owns the struct it hands out and counts how often its deleter ran.
"""

import atexit
import collections
import contextlib
import ctypes as c
import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache

READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4
LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"


class DLDevice(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DLDataType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class DLTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", DLDevice),
        ("ndim", c.c_int32),
        ("dtype", DLDataType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


class DLPackVersion(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32)]


class DLManagedTensor(c.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c.c_void_p), ("deleter", c.c_void_p)]


class DLManagedTensorVersioned(c.Structure):
    _fields_ = [
        ("version", DLPackVersion),
        ("manager_ctx", c.c_void_p),
        ("deleter", c.c_void_p),
        ("flags", c.c_uint64),
        ("dl_tensor", DLTensor),
    ]


class DLPackExchangeAPIHeader(c.Structure):
    pass


DLPackExchangeAPIHeader._fields_ = [
    ("version", DLPackVersion),
    ("prev_api", c.POINTER(DLPackExchangeAPIHeader)),
]

SetError = c.PYFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)
Allocator = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p)
FromPyObject = c.PYFUNCTYPE(c.c_int, c.py_object, c.c_void_p)
ToPyObject = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)
CurrentWorkStream = c.PYFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.c_void_p)


class DLPackExchangeAPI(c.Structure):
    _fields_ = [
        ("header", DLPackExchangeAPIHeader),
        ("managed_tensor_allocator", c.c_void_p),
        ("managed_tensor_from_py_object_no_sync", c.c_void_p),
        ("managed_tensor_to_py_object_no_sync", c.c_void_p),
        ("dltensor_from_py_object_no_sync", c.c_void_p),
        ("current_work_stream", c.c_void_p),
    ]


_py = c.pythonapi
_py.PyCapsule_New.restype = c.py_object
_py.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
_py.PyCapsule_GetName.restype = c.c_char_p
_py.PyCapsule_GetName.argtypes = [c.py_object]
_py.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]
_py.PyCapsule_GetPointer.restype = c.c_void_p
_py.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]

_names = {}


def _static(name):
    """Capsules keep the pointer to their name, so each name is kept here for ever."""
    return None if name is None else _names.setdefault(name, c.create_string_buffer(name))


def capsule_new(address, name, destructor=None):
    kept = _static(name)
    return _py.PyCapsule_New(address, c.cast(kept, c.c_char_p) if kept else None, destructor)


def capsule_name(capsule):
    return _py.PyCapsule_GetName(capsule)


def capsule_rename(capsule, name):
    _py.PyCapsule_SetName(capsule, c.cast(_static(name), c.c_char_p))


def capsule_pointer(capsule):
    return _py.PyCapsule_GetPointer(capsule, capsule_name(capsule))


def managed(capsule):
    """The struct in a capsule that is still unused, by the capsule's name."""
    kinds = {LEGACY: DLManagedTensor, VERSIONED: DLManagedTensorVersioned}
    return kinds[capsule_name(capsule)].from_address(capsule_pointer(capsule))


def call_deleter(struct):
    """What a consumer does when it is done: the deleter, once, without the GIL."""
    c.CFUNCTYPE(None, c.c_void_p)(struct.deleter)(c.addressof(struct))


def consume(capsule):
    """Takes the struct out of a capsule as a consumer must; the caller owes it one deleter call."""
    struct = managed(capsule)
    capsule_rename(capsule, b"used_" + capsule_name(capsule))
    return struct


def extents(dl_tensor):
    return tuple(dl_tensor.shape[i] for i in range(dl_tensor.ndim))


def strides(dl_tensor):
    return tuple(dl_tensor.strides[i] for i in range(dl_tensor.ndim))


def compiler():
    """The C compiler's command, or None."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        if command and shutil.which(command.split()[0]):
            return command.split()
    return None


@cache
def temporary_directory():
    """Of this process, gone at its end; a fork of it leaves it alone."""

    def remove(owner):
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)

    path = tempfile.mkdtemp(prefix="moonferry-specs-")
    atexit.register(remove, os.getpid())
    return path


def compile_shared(source, name, flags=(), libraries=()):
    """Compiles one C file to a shared object in a new directory of temporary_directory(); its path."""
    folder = tempfile.mkdtemp(dir=temporary_directory())
    target = os.path.join(folder, name)
    options = ["-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Werror", *flags]
    # A sanitizer that is loaded before everything else is for Python, not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [*compiler(), *options, source, "-o", target, *libraries, "-lpthread"]
    subprocess.run(command, check=True, env=environment)
    return target


@cache
def probe():
    """probe.c, compiled; `MOONFERRY_PROBE` names one that a parent process has compiled already."""
    path = os.environ.get("MOONFERRY_PROBE")
    if path is None:
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe.c")
        path = os.environ["MOONFERRY_PROBE"] = compile_shared(source, "probe.so")
    lib = c.CDLL(path)
    lib.probe_delete_on_thread.argtypes = [c.c_void_p]
    lib.probe_offer.argtypes = [c.c_void_p]
    lib.probe_calls.restype = c.c_int64
    lib.probe_delete_at_exit.argtypes = [c.c_void_p, c.c_void_p, c.c_int]
    return lib


_recent = collections.deque(maxlen=500)


def address_of(function):
    return c.cast(function, c.c_void_p).value


class Producer:
    """A struct that a library would hand out, right in every field until a spec changes one.

    `values` (a ctypes array or None) is the memory; `deletes` says how often the deleter ran.
    """

    def __init__(self, shape=(2, 3), strides=(3, 1), dtype=(2, 32, 1), *, versioned=True, flags=0, values=None):
        self.memory = (c.c_uint8 * 4096)() if values is None else values
        self.counter = c.c_int64(0)
        self.shape = (c.c_int64 * max(len(shape), 1))(*shape)
        self.strides = None if strides is None else (c.c_int64 * max(len(strides), 1))(*strides)
        self.struct = DLManagedTensorVersioned() if versioned else DLManagedTensor()
        self.name = VERSIONED if versioned else LEGACY
        if versioned:
            self.struct.version = DLPackVersion(1, 3)
            self.struct.flags = flags
        deleter = probe().probe_delete_versioned if versioned else probe().probe_delete_legacy
        self.struct.deleter = address_of(deleter)
        self.struct.manager_ctx = c.addressof(self.counter)
        self.dl = self.struct.dl_tensor
        self.dl.data = c.addressof(self.memory)
        self.dl.device = DLDevice(1, 0)
        self.dl.ndim = len(shape)
        self.dl.dtype = DLDataType(*dtype)
        self.dl.shape = c.cast(self.shape, c.POINTER(c.c_int64))
        if self.strides is not None:
            self.dl.strides = c.cast(self.strides, c.POINTER(c.c_int64))

        # A tensor may outlive the object that handed it out, and the deleter still counts then.
        _recent.append(self)

    @property
    def deletes(self):
        return self.counter.value

    def capsule(self, name=None, destructor="probe_destroy_capsule"):
        destructor = address_of(getattr(probe(), destructor))
        return capsule_new(c.addressof(self.struct), self.name if name is None else name, destructor)

    def image(self):
        """The bytes of the struct: a refused import leaves them as they were."""
        return bytes(self.struct)


def taker(slot):
    """A type of another library whose table takes structs as that function of probe.c does."""
    table = DLPackExchangeAPI()
    table.header.version = DLPackVersion(1, 3)
    table.managed_tensor_to_py_object_no_sync = address_of(getattr(probe(), slot))
    capsule = capsule_new(c.addressof(table), b"dlpack_exchange_api")
    return type("Taker", (), {"table": table, "__dlpack_c_exchange_api__": capsule})


class Lender:
    """A producer whose deleter is Python code, which has exceptions of its own."""

    def __init__(self):
        self.producer, self.deletes = Producer(), 0
        self.deleter = c.CFUNCTYPE(None, c.c_void_p)(self.delete)
        self.producer.struct.deleter = c.cast(self.deleter, c.c_void_p).value

    def delete(self, struct):
        self.deletes += 1
        with contextlib.suppress(KeyError):
            {}[self]

    def fails(self):
        """For a call that has another argument before: that one goes while this exception is on its way."""
        assert self.deletes == 0
        raise ValueError("mine")

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        return self.producer.capsule()
