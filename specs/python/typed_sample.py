"""What a type checker says of a program that uses Moonferry: `mypy --strict` is silent. A comment that an error is to
be ignored is an error itself where there is none, so each of those lines is one that the checker finds."""

from typing import Any

import numpy as np
import numpy.typing as npt

import moonferry
from moonferry.luajit import Lua, LuaTable


def arrays(scale: float, where: str = "cuda:1") -> npt.NDArray[Any]:
    moonferry.zeros(2).to("cuda:0").to(moonferry.Device(where)).to((1, 0))
    t = moonferry.zeros((2, 3), "float32", device="cpu")
    t.fill(scale)
    for dtype in (np.float32, np.dtype("int8"), moonferry.bfloat16, float):
        moonferry.empty(4, dtype).astype("float64").to("cpu")
    with memoryview(t.permute_dims(1, 0).contiguous()) as view:
        print(view.shape, t.tobytes(), t.dtype.name, t.shape[0] + 1)
    back: npt.NDArray[Any] = moonferry.into(np.ndarray, t)
    moonferry.asarray(back, copy=False).broadcast_to((4, 2, 3)).expand_dims(0)
    return back


def mistakes() -> None:
    moonferry.zeros(2, "float23")  # type: ignore[arg-type]
    moonferry.zeros(2, 3)  # type: ignore[arg-type]
    moonferry.zeros(2).astype("flaot32")  # type: ignore[arg-type]
    moonferry.zeros(2, device="cdua")  # type: ignore[arg-type]
    moonferry.zeros(2).to("cuda:0 ")  # type: ignore[arg-type]
    moonferry.zeros(2).permute(0)  # type: ignore[attr-defined]
    x: str = moonferry.into(np.ndarray, moonferry.zeros(2))  # type: ignore[assignment]
    moonferry.zeros(2).to(3)  # type: ignore[arg-type]
    print(x)


def hosting(lua: Lua) -> LuaTable:
    lua.execute("x = ...", moonferry.zeros(2))
    with lua.nogc():
        print(lua.eval("x"), lua.lua_version[0] + 1, lua.get_memory_used(), lua.lua_implementation.upper())
    return lua.table(1, 2, a=lua.table_from([1, 2]))


if __name__ == "__main__":
    print(arrays(2.5), hosting(Lua()))
