"""The operations of Python's interface, each a function of the bench that gives the same each time, and Lua's.

Responsible for the table of operations under their names, and for which public names each stands for. Must not know
which event strikes, nor where.
"""

from bench import Index, Producer, noisy

import moonferry as mf

PYTHON = {
    "zeros": lambda b: mf.zeros((2, Index(3)), "float32", device=b.device),
    "slice": lambda b: b.t[Index(0) :, ::2],
    "from_dlpack": lambda b: mf.from_dlpack(Producer(noisy())),
    "lua.eval": lambda b: b.lua.eval("1 + ...", Index(1)),
}


def uses_lua(name):
    """Whether an operation of Python's has anything to do with Lua."""
    return name.startswith("lua")
