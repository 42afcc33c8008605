"""Lua in Python: moonferry.Lua is a LuaJIT state.

    import moonferry
    lua = moonferry.Lua()
    lua.eval("1 + 1")                       # 2
    f = lua.eval("function(x, y) return x * y end")
    f(6, 7)                                 # 42
    lua.globals().print = print             # Python's, called from Lua

The names are lupa's, for `import moonferry.luajit as lupa`; docs/python-hosts-lua.md lists what differs.
"""

from __future__ import annotations

import builtins
import collections.abc
import contextlib
import ctypes
import functools
import importlib.machinery
import importlib.util
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from moonferry import _hint, _options, _sandbox

_AS_ITEMS = 1
_COLLECT, _STOP, _RESTART = 2, 0, 1


def _is_global() -> bool:
    """Whether whatever this process loads finds a Lua's symbols, as where LuaJIT hosts Python."""
    return hasattr(ctypes.CDLL(None), "lua_newstate")


def _load_extension() -> Any:
    """The bridge that is in this process already where LuaJIT hosts Python, else the one that brings LuaJIT along."""
    name = "moonferry._lua"
    if name in sys.modules:
        return sys.modules[name]
    if not _is_global():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ImportError(
                "moonferry.Lua is not part of this installation, which was built with MOONFERRY_LUA=OFF; "
                "build it with LuaJIT's headers there (Debian and Ubuntu: apt-get install libluajit-5.1-dev)"
            ) from error
        except ImportError as error:
            raise ImportError(
                "moonferry.Lua needs LuaJIT's shared library (Debian and Ubuntu: apt-get install libluajit-5.1-2), "
                f"and it cannot be loaded: {error}"
            ) from error
    if not hasattr(ctypes.CDLL(None), "luaJIT_setmode"):
        raise ImportError("moonferry.Lua cannot be had in this process: it exports another Lua than LuaJIT")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "moonferry_bridge.so")
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


if TYPE_CHECKING:
    from moonferry import _lua
else:
    _lua = _load_extension()


def _library() -> str:
    """The file that this process has LuaJIT from: a library of the system, one that a wheel brings, or the program."""
    place = (ctypes.c_char_p * 4)()  # Dl_info of <dlfcn.h>, whose first field is the file
    function = ctypes.cast(ctypes.CDLL(_lua.__file__).lua_newstate, ctypes.c_void_p)
    if not ctypes.CDLL(None).dladdr(function, place):
        raise ImportError("moonferry.Lua: the loader does not say where LuaJIT is")
    return os.fsdecode(place[0] or b"")


LuaObject = _lua.LuaObject
LuaTable = _lua.LuaTable
LuaFunction = _lua.LuaFunction
LuaCoroutineFunction = _lua.LuaCoroutineFunction
LuaThread = _lua.LuaThread
LuaError = _lua.LuaError
LuaSyntaxError = _lua.LuaSyntaxError
LuaMemoryError = _lua.LuaMemoryError

LUA_VERSION = (5, 1)
LUA_MAXINTEGER = 2**53
LUA_MININTEGER = -(2**53)

lua_type = _lua.lua_type


class LuaInterrupt(LuaError):
    """Lua.interrupt() ended the script."""


def as_attrgetter(obj: Any) -> Any:
    """Returns obj in a wrapper for Lua, in which o.name is always an attribute, even if obj has items."""
    return _lua.view(obj, 0)


def as_itemgetter(obj: Any) -> Any:
    """Returns obj in a wrapper for Lua, in which o.name is always an item."""
    return _lua.view(obj, _AS_ITEMS)


def _split(args: tuple) -> tuple[tuple, dict]:
    if len(args) == 1 and isinstance(args[0], LuaTable):
        return _lua.arguments_of(args[0])
    return args, {}


def unpacks_lua_table(func: Any) -> Any:
    """Decorates a function so that Lua can call it with named arguments: f{x = 1, y = 2}, f{1, y = 2} or f(1, 2).
    The function's first argument must never be a Lua table.
    """

    @functools.wraps(func)
    def wrapper(*args):
        args, kwargs = _split(args)
        return func(*args, **kwargs)

    return wrapper


def unpacks_lua_table_method(meth: Any) -> Any:
    """As unpacks_lua_table, for methods."""

    @functools.wraps(meth)
    def wrapper(self, *args):
        args, kwargs = _split(args)
        return meth(self, *args, **kwargs)

    return wrapper


def sandbox_filter(obj: Any, name: Any, is_setting: bool, encoding: str = "UTF-8") -> str:
    """The attribute_filter that a sandbox has by default, which a filter of your own can call first.

    Returns the name, or raises AttributeError if the attribute leads out of the sandbox. encoding: of a name in bytes.
    """
    return _sandbox.checked_name(obj, name, is_setting, encoding, (_lua.State,))


def _is_recursive(value: Any) -> bool:
    kinds = (collections.abc.Mapping, collections.abc.Sequence)
    return isinstance(value, kinds) and not isinstance(value, (str, bytes))


def _watch(state: collections.abc.Callable[[], Lua | None], seconds: float, running: Any, striking: Any) -> None:
    """Past the limit it interrupts again and again: nothing may have run just then, and something later."""
    limit = TimeoutError(f"a Lua script ran for more than {seconds} s")
    wait = min(seconds, threading.TIMEOUT_MAX)
    while not running.acquire(timeout=wait):
        with striking:
            lua = state()
            if lua is not None and running.locked():
                lua.interrupt(limit)
            del lua
        wait = 0.02


class Lua(_options.NoAttributes, _lua.State):
    """A LuaJIT state, with the arguments of lupa's LuaRuntime.

    encoding, source_encoding: of Lua strings, which encoding=None makes bytes, and of Lua code.
    attribute_filter: called as attribute_filter(obj, name, is_setting) when Lua uses an attribute; returns its name.
    attribute_handlers: a pair (getter, setter) of functions that Lua's access to attributes calls instead.
    register_eval, register_builtins: whether Lua has python.eval and python.builtins.
    unpack_returned_tuples: whether a returned tuple becomes several Lua values.
    overflow_handler: called with an int beyond 2**53; Lua gets its result. Without it OverflowError is raised.
    max_memory: bytes that Lua may use beyond an empty state; 0 counts without a limit, None does not count.
    string_hash_seed: must be None, because LuaJIT takes no seed.
    interruptible: lets interrupt(), time_limit() and Ctrl-C end a script at any instruction; turns the compiler off.
    sandbox: removes io, os, ffi, debug, package, bytecode and the table `python`; turns the compiler off.
    c_modules: makes LuaJIT's symbols global, for C modules that Lua code requires.
    """

    __slots__ = ("_interruptible", "_sandbox", "_source_encoding")

    _source_encoding: str
    _interruptible: bool
    _sandbox: bool

    if not TYPE_CHECKING:  # a checker would take every name for one of these

        def __getattr__(self, name: str) -> Any:
            self._lacks(name, f"lua.globals().{name} is one of Lua's globals")

    def __new__(  # noqa: PLR0913  (lupa has so many)
        cls,
        encoding: str | None = "UTF-8",
        source_encoding: str | None = None,
        attribute_filter: Any = None,
        attribute_handlers: Any = None,
        register_eval: bool = True,
        unpack_returned_tuples: bool = False,
        register_builtins: bool = True,
        overflow_handler: Any = None,
        max_memory: int | None = None,
        string_hash_seed: Any = None,
        *,
        interruptible: bool = False,
        sandbox: bool = False,
        c_modules: bool = False,
    ) -> Lua:
        encoding = _options.ascii_text(encoding, "encoding")
        source_encoding = _options.ascii_text(source_encoding, "source_encoding") or encoding or "UTF-8"
        if attribute_filter is not None and not callable(attribute_filter):
            raise ValueError("attribute_filter must be callable")
        getter, setter = _options.handlers_of(attribute_handlers)
        if attribute_filter is not None and (getter or setter):
            raise ValueError("attribute_filter and attribute_handlers are mutually exclusive")
        if sandbox and attribute_filter is None:
            # A handler comes before the filter, which stands behind the half that has none.
            attribute_filter = functools.partial(sandbox_filter, encoding=source_encoding)
        if overflow_handler is not None and not callable(overflow_handler):
            raise ValueError("overflow_handler must be callable")
        if string_hash_seed is not None:
            raise ValueError(f"string_hash_seed is {string_hash_seed!r}; None expected: LuaJIT takes no seed")
        max_memory = None if max_memory is None else _options.memory(max_memory)
        for codec in filter(None, (encoding, source_encoding)):
            "".encode(codec)
        if c_modules and not _is_global():
            ctypes.CDLL(_library(), mode=ctypes.RTLD_GLOBAL)
        self = _lua.open(
            cls,
            encoding,
            source_encoding,
            os.fsencode(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lua")),
            attribute_filter,
            getter,
            setter,
            eval if register_eval else None,
            builtins if register_builtins else None,
            max_memory,
            bool(unpack_returned_tuples),
            bool(sandbox),
            bool(interruptible),
        )
        self._source_encoding = source_encoding
        self._interruptible = bool(interruptible)
        self._sandbox = bool(sandbox)
        if overflow_handler is not None:
            _lua.set_overflow_handler(self, overflow_handler)
        return self

    def close(self) -> None:
        """Closes the state: runs Lua's finalizers and drops its references to Python objects. Any thread may call it.

        Afterwards every use of the state and of its functions, tables and coroutines raises RuntimeError. Tensors that
        came from it stay usable. `with moonferry.Lua() as lua:` closes the state at the end. A second close does
        nothing.
        Raises RuntimeError while any thread, this one included, runs a call into the state.
        """
        _lua.close(self)

    def __enter__(self) -> Lua:
        return self

    def __exit__(self, *exc: object) -> None:
        _lua.close(self)

    def _encode(self, code: Any, what: str = "Lua code") -> bytes:
        if isinstance(code, str):
            return code.encode(self._source_encoding)
        if isinstance(code, (bytes, bytearray)):
            return bytes(code)
        raise TypeError(f"{what} must be a string, not {type(code).__name__}")

    def _load(self, code: bytes, name: Any, mode: Any) -> Any:
        chunk = b"<python>" if name is None else self._encode(name, "name")
        mode = "t" if self._sandbox else mode
        try:
            return _lua.load(self, code, chunk.replace(b"\0", b""), _options.ascii_text(mode, "mode"))
        except LuaSyntaxError as error:
            raise error.with_traceback(None) from None

    def eval(self, lua_code: str | bytes, *args: Any, name: Any = None, mode: Any = None) -> Any:
        """Returns the value of a Lua expression, in which ... stands for args. name: in error messages."""
        return self._loaded(b"return " + self._encode(lua_code), name, mode)(*args)

    def execute(self, lua_code: str | bytes, *args: Any, name: Any = None, mode: Any = None) -> Any:
        """Runs a Lua program, in which ... stands for args, and returns what it returns."""
        return self._loaded(self._encode(lua_code), name, mode)(*args)

    def _loaded(self, code: bytes, name: Any, mode: Any) -> Any:
        try:
            return self._load(code, name, mode)
        except LuaSyntaxError as error:
            told = LuaSyntaxError("error loading code: " + str(error))
            told.value, told.message = error.value, error.message
            raise told from None

    def compile(self, lua_code: str | bytes, name: Any = None, mode: Any = None) -> LuaFunction:
        """Returns a Lua program as a function, without calling it. mode: "t" accepts only text, "b" only bytecode."""
        return self._load(self._encode(lua_code), name, mode)

    def require(self, modulename: str | bytes) -> Any:
        """Returns what Lua's require returns for the module."""
        if not isinstance(modulename, (str, bytes)):
            raise TypeError("modulename must be a string")
        require = self.globals()["require" if self._is_text() else b"require"]
        if require is None:
            raise LuaError("require is not defined")
        return require(modulename if self._is_text() else self._encode(modulename))

    def _is_text(self) -> bool:
        return _lua.encoding(self) is not None

    def globals(self) -> LuaTable:
        """Returns the table of Lua's globals."""
        return _lua.globals(self)

    def table(self, *items: Any, **kwargs: Any) -> LuaTable:
        """Returns a new Lua table with the items, from index 1 on, and the keywords."""
        return self.table_from(items, kwargs)

    def table_from(self, *args: Any, recursive: bool = False) -> LuaTable:
        """Returns a new Lua table with the pairs of mappings and, from index 1 on, the items of iterables.

        recursive: nested mappings and sequences become tables, too. An object that occurs twice becomes one table.
        """
        return self._table(args, {} if recursive else None)

    def _table(self, sources: tuple, seen: dict | None) -> Any:
        values: list = []
        pairs: list = []
        if seen is not None and len(sources) == 1:
            return self._nested(sources[0], seen)
        for source in sources:
            self._collect(source, values, pairs)
        if seen is not None:
            values = [self._inner(v, seen) for v in values]
            pairs = [(self._inner(k, seen), self._inner(v, seen)) for k, v in pairs]
        return _lua.table(self, values, pairs)

    @staticmethod
    def _collect(source: Any, values: list, pairs: list) -> None:
        if isinstance(source, (collections.abc.Mapping, LuaTable)):
            pairs.extend((key, value) for key, value in source.items())
        else:
            values.extend(source)

    def _inner(self, value: Any, seen: dict) -> Any:
        return self._nested(value, seen) if _is_recursive(value) else value

    def _nested(self, source: Any, seen: dict) -> Any:
        """The table of a source; it is remembered before it is filled, because it may contain itself."""
        if id(source) in seen:
            return seen[id(source)][0]
        values: list = []
        pairs: list = []
        made = _lua.table(self, [], [])
        seen[id(source)] = made, source
        self._collect(source, values, pairs)
        for index, value in enumerate(values, 1):
            made[index] = self._inner(value, seen)
        for key, value in pairs:
            made[self._inner(key, seen)] = self._inner(value, seen)
        return made

    @contextlib.contextmanager
    def nogc(self) -> collections.abc.Iterator[None]:
        """Returns a context manager that stops Lua's garbage collector while its block runs.

        Blocks may nest, and overlap in several threads: the collector goes on after the last of them. Within one, only
        gccollect(), a script's collectgarbage(), and a call that follows on one which ran out of memory collect.
        """
        stopped: list[None] = []
        try:
            _lua.collector(self, _STOP, stopped)
            yield
        finally:
            _lua.collector(self, _RESTART, stopped)

    def gccollect(self) -> None:
        """Runs a full cycle of Lua's garbage collector."""
        _lua.collector(self, _COLLECT, [])

    def set_overflow_handler(self, overflow_handler: Any) -> None:
        """Sets the function that is called with an int beyond 2**53; Lua gets its result. None raises OverflowError
        instead.
        """
        if overflow_handler is not None and not callable(overflow_handler):
            raise ValueError("overflow_handler must be callable")
        _lua.set_overflow_handler(self, overflow_handler)

    def get_max_memory(self, total: bool = False) -> int | None:
        """Returns the limit in bytes (0: none), or None if memory is not counted. total: includes an empty state's
        memory.
        """
        account = _lua.memory(self)
        if account is None:
            return None
        _, base, limit = account
        return limit if total or limit == 0 else limit - base

    def get_memory_used(self, total: bool = False) -> int | None:
        """Returns the bytes in use, 0 at least, or None if memory is not counted. total: includes an empty state's
        memory, which can have shrunk a little since."""
        account = _lua.memory(self)
        if account is None:
            return None
        used, base, _ = account
        return used if total else max(used - base, 0)

    def set_max_memory(self, max_memory: int, total: bool = False) -> None:
        """Sets the limit in bytes; 0 removes it. total: includes an empty state's memory."""
        account = _lua.memory(self)
        if account is None:
            raise RuntimeError("max_memory must be set on creation of the Lua state")
        nbytes = _options.memory(max_memory, "or 0")
        _lua.set_limit(self, nbytes + account[1] if nbytes and not total else nbytes)

    def interrupt(self, exception: Any = None) -> None:
        """Interrupts the script that runs on another thread, if any: the call there raises exception (LuaInterrupt).

        In a state that is not interruptible, compiled code goes on until it calls Python.
        """
        if exception is None:
            exception = LuaInterrupt("interrupted")
        if isinstance(exception, type):
            exception = exception()
        if not isinstance(exception, BaseException):
            raise TypeError(f"exception is {exception!r}; an exception expected")
        _lua.interrupt(self, exception)

    @contextlib.contextmanager
    def time_limit(self, seconds: float) -> collections.abc.Iterator[None]:
        """Returns a context manager that ends, with TimeoutError, what runs in an interruptible state for longer."""
        if not self._interruptible:
            raise RuntimeError("time_limit needs a state that is interruptible=True")
        if not isinstance(seconds, (int, float)):
            raise TypeError(f"seconds is {seconds!r}; a number expected")
        if not seconds >= 0:
            raise ValueError(f"seconds is {seconds!r}; at least 0 expected")
        striking, running = threading.Lock(), threading.Lock()
        running.acquire()
        # A thread whose start a signal's exception breaks off is kept by `threading` for ever, with what it knows.
        watch = threading.Thread(target=_watch, args=(weakref.ref(self), seconds, running, striking), daemon=True)
        try:
            watch.start()
            yield
        finally:
            running.release()  # first, and by one call that is no Python code: a signal's exception may come in any
            with striking:
                pass

    @property
    def lua_version(self) -> tuple[int, int]:
        """tuple: the version of the language, (5, 1)."""
        return LUA_VERSION

    @property
    def lua_implementation(self) -> str:
        """str: such as "LuaJIT 2.1.0-beta3"."""
        return _lua.implementation


LuaRuntime = Lua

__all__ = [
    "LUA_MAXINTEGER",
    "LUA_MININTEGER",
    "LUA_VERSION",
    "Lua",
    "LuaCoroutineFunction",
    "LuaError",
    "LuaFunction",
    "LuaInterrupt",
    "LuaMemoryError",
    "LuaObject",
    "LuaRuntime",
    "LuaSyntaxError",
    "LuaTable",
    "LuaThread",
    "as_attrgetter",
    "as_itemgetter",
    "lua_type",
    "sandbox_filter",
    "unpacks_lua_table",
    "unpacks_lua_table_method",
]

__getattr__ = _hint.lacks(__name__, __all__)
