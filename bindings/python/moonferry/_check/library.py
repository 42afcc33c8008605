"""A library as the rules see it: how to make an array there, and how to give it one.

Nothing of any library is built in but names that several of them share; what is not found is NotOffered. Must not
know: any rule.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Callable

from .abi import Foreign, Managed, elements
from .values import FLOAT32, float32, nested

MAKERS = ("asarray", "tensor", "array", "as_tensor", "to_tensor")
IMPORTERS = ("from_dlpack", "utils.dlpack.from_dlpack", "dlpack.from_dlpack")


# The dtypes that a library without names for them can be asked for.
NUMPYS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128")  # fmt: skip

# What to do where the names above lead nowhere.
MAKE = "--make EXPRESSION says how it makes an array, such as --make 'xp.empty(shape, dtype)'"


def _numpy_dtype(name: str) -> Any:
    numpy = importlib.import_module("numpy")
    return numpy.dtype(name)


class NotOffered(Exception):
    """The library has nothing that the rule is about."""


class Broken(Exception):
    """The rule does not hold; the text says what was seen."""


def expect(good: Any, text: str) -> None:
    if not good:
        raise Broken(text)


def said(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:160]}" if first else type(error).__name__


def load(name: str) -> Any:
    """The module, or what a dotted name names inside one."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ImportError(f"{name!r} is no name of a module, as import takes it")
    path, rest = name, ""
    while True:
        try:
            found = importlib.import_module(path)
            break
        except ModuleNotFoundError as error:
            if "." not in path or error.name not in (path, path.rpartition(".")[0]):
                raise
            path, _, last = path.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
    for part in filter(None, rest.split(".")):
        found = getattr(found, part)
    return found


def _lookup(owner: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        owner = getattr(owner, part, None)
    return owner


class Library:
    def __init__(self, name: str, make: str | None = None):
        self.name = name
        self.xp = load(name)
        self.make = make
        self._stand_in: Callable[[str], Any] | None = None
        if not any(_lookup(self.xp, n) for n in (*MAKERS, "zeros", *IMPORTERS)):
            for inner in ("numpy", "array_api"):  # jax itself has no arrays, jax.numpy has
                try:
                    self.xp = importlib.import_module(f"{name}.{inner}")
                    break
                except ImportError:
                    continue
        self._stand_in = self._choose_stand_in()

    def dtype(self, name: str) -> Any:
        """The module's attribute of that name, or what stands for dtypes where it has no such attributes."""
        for n in (name, name + "_") if name == "bool" else (name,):
            if (found := getattr(self.xp, n, None)) is not None:
                return found
        if self._stand_in is None or name not in NUMPYS:
            raise NotOffered(f"{self.name} has no {name}")
        return self._stand_in(name)

    def _choose_stand_in(self) -> Callable[[str], Any] | None:
        """Some libraries have no dtypes of their own: their functions take names, or NumPy's dtypes."""
        if self.make is not None or getattr(self.xp, "float32", None) is not None:
            return None
        for kind in (str, _numpy_dtype):
            for name in MAKERS:
                maker = getattr(self.xp, name, None)
                try:
                    if callable(maker) and "float32" in str(maker([0.0], dtype=kind("float32")).dtype):
                        return kind
                except Exception:
                    continue
        return None

    def array(self, shape: tuple[int, ...] = (2, 3), dtype: str = "float32", values: Any = None) -> Any:
        """An array of that shape; its elements are `values`, or 0, 1, 2 ..."""
        count = 1
        for extent in shape:
            count *= extent
        flat = list(range(count)) if values is None else list(values)[:count]
        if self.make is not None:
            return self._by_expression(shape, dtype)
        made = self._by_maker(flat, shape, dtype)
        if made is None and dtype == "float32":
            made = self.take(Foreign(float32(*flat) or b"", shape, FLOAT32.triple))
        if made is None:
            raise NotOffered(f"{self.name} has none of {', '.join(MAKERS)}; {MAKE}")
        return made

    def _by_expression(self, shape: tuple[int, ...], dtype: str) -> Any:
        assert self.make is not None
        names = compile(self.make, "--make", "eval").co_names
        for name, plain in (("shape", (2, 3)), ("dtype", "float32")):
            if name not in names and (shape if name == "shape" else dtype) != plain:
                raise NotOffered(f"--make does not use `{name}`")
        kind = getattr(self.xp, dtype, dtype)
        return eval(self.make, {"xp": self.xp, self.name.partition(".")[0]: load(self.name.partition(".")[0])},
                    {"shape": shape, "dtype": kind})  # fmt: skip

    def _by_maker(self, flat: list[Any], shape: tuple[int, ...], dtype: str) -> Any:
        for name in MAKERS:
            maker = getattr(self.xp, name, None)
            if not callable(maker):
                continue
            if 0 in shape and callable(getattr(self.xp, "zeros", None)):
                return self.xp.zeros(shape, dtype=self.dtype(dtype))
            return maker(nested([self._typed(v, dtype) for v in flat], shape), dtype=self.dtype(dtype))
        return None

    @staticmethod
    def _typed(value: Any, dtype: str) -> Any:
        if dtype.startswith("float") or dtype == "bfloat16":
            return float(value)
        return value if dtype.startswith("complex") or dtype == "bool" else int(value)

    def makes(self) -> bool:
        """Whether arrays are of its own making; else they are what it took from a producer."""
        return self.make is not None or any(callable(getattr(self.xp, name, None)) for name in MAKERS)

    def importer(self) -> Callable[..., Any]:
        for name in IMPORTERS:
            if callable(found := _lookup(self.xp, name)):
                return found
        raise NotOffered(f"{self.name} has no from_dlpack")

    def imports(self) -> bool:
        return any(callable(_lookup(self.xp, name)) for name in IMPORTERS)

    def take(self, producer: Any, **keywords: Any) -> Any:
        return self.importer()(producer, **keywords)

    def takes(self, keyword: str) -> bool:
        """Whether its from_dlpack has the keyword, as far as its signature tells."""
        try:
            parameters = inspect.signature(self.importer()).parameters.values()
        except (TypeError, ValueError):
            return True
        return any(p.name == keyword or p.kind is p.VAR_KEYWORD for p in parameters)


def export(array: Any, **keywords: Any) -> Managed:
    """Through __dlpack__, asking for what is newest, or, of a library that knows no versions, for nothing."""
    if "max_version" in keywords:
        return Managed(array.__dlpack__(**keywords))
    try:
        return Managed(array.__dlpack__(max_version=(1, 3), **keywords))
    except TypeError:
        return Managed(array.__dlpack__(**keywords))


def contents(array: Any) -> bytes:
    """An array's elements in row-major order, through its own export."""
    held = export(array)
    data = elements(held.tensor)
    held.release()
    return data


def refused(action: Callable[[], Any], kinds: tuple[type[BaseException], ...], what: str) -> str:
    """An exception of one of the kinds, or the rule is broken."""
    names = "an exception" if kinds == (Exception,) else " or ".join(k.__name__ for k in kinds)
    try:
        action()
    except kinds as error:
        return said(error)
    except Exception as error:
        raise Broken(f"{what} raised {said(error)}; expected: {names}") from None
    raise Broken(f"{what} was accepted; expected: {names}")
