"""What a Python sees of itself that a PYTHON* variable can change, on one line: for python_environment_spec.lua."""

import asyncio.coroutines
import ctypes
import faulthandler
import locale
import os
import site
import sys
import tracemalloc
import warnings

for function in (ctypes.pythonapi.PyMem_Malloc, ctypes.pythonapi.PyMem_Free):
    function.restype = ctypes.c_void_p
ctypes.pythonapi.PyMem_Malloc.argtypes = [ctypes.c_size_t]
ctypes.pythonapi.PyMem_Free.argtypes = [ctypes.c_void_p]


def flags():
    names = [name for name in dir(sys.flags) if not name.startswith(("_", "n_", "count", "index"))]
    return {name: getattr(sys.flags, name) for name in names}


def streams():
    return [(s.encoding, s.errors, s.write_through, s.line_buffering) for s in (sys.stdin, sys.stdout, sys.stderr)]


def colors():
    try:
        import _colorize
    except ImportError:
        return None
    return _colorize.can_colorize()


def call(name, *arguments):
    """A function of sys, where this version has it."""
    function = getattr(sys, name, None)
    return function(*arguments) if function else None


def allocator():
    """pymalloc counts its blocks, malloc none; the hooks of debugging fill what is new."""
    block = ctypes.pythonapi.PyMem_Malloc(64)
    is_filled = ctypes.string_at(block, 64) == bytes([0xCD] * 64)
    ctypes.pythonapi.PyMem_Free(block)
    return bool(sys.getallocatedblocks()), is_filled


def debug_ranges():
    code = compile("a + b", "x", "eval")
    return hasattr(code, "co_positions") and any(None not in place for place in list(code.co_positions())[2:4])


SEEN = {
    "flags": flags(),
    "gil": call("_is_gil_enabled"),
    "prefixes": (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.executable),
    "platlibdir": sys.platlibdir,
    "path": [entry for entry in sys.path if entry not in ("", os.path.dirname(os.path.abspath(sys.argv[0])))],
    "pycache": (sys.pycache_prefix, sys.dont_write_bytecode),
    "hash": hash("a" * 50) if os.environ.get("PYTHONHASHSEED", "").isdigit() else None,
    "digits": call("get_int_max_str_digits"),
    "streams": streams(),
    "filesystem": (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()),
    "locale": (locale.getpreferredencoding(False), locale.setlocale(locale.LC_CTYPE)),
    "site": (site.getuserbase(), site.getusersitepackages(), site.ENABLE_USER_SITE),
    "warnings": (sys.warnoptions, [(action, kind.__name__) for action, _, kind, _, _ in warnings.filters]),
    "faulthandler": faulthandler.is_enabled(),
    "tracemalloc": (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()),
    "asyncio": asyncio.coroutines._is_debug_mode(),
    "breakpoint": breakpoint() if os.environ.get("PYTHONBREAKPOINT") else "not called",
    "allocator": allocator(),
    "ranges": debug_ranges(),
    "cpus": os.cpu_count(),
    "frozen": getattr(os.__spec__, "origin", None) == "frozen",
    "perf": call("is_stack_trampoline_active"),
    "remote": call("is_remote_debug_enabled"),
    "colors": colors(),
    "options": sys._xoptions,
}
print("OBSERVED", "; ".join(f"{name}: {value!r}" for name, value in SEEN.items()))
