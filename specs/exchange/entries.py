"""The entries of host.lua, more.lua, cuda.lua and rocm.lua, as list.lua writes them.

Responsible for asking it. Must not know what an entry says.
"""

import json
import os
import subprocess

from environments import HERE, ROOT

# Every library of one of these with every other; those of "more", which are the host's as well, with Moonferry alone.
TABLES = ["host", "cuda", "rocm"]
ALONE = "more"


def libraries(table):
    """The entries of a Lua table, each with the name of its table."""
    environment = {**os.environ, "LUA_PATH": f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;;"}
    command = ["luajit", str(HERE / "list.lua"), table]
    made = subprocess.run(command, check=True, capture_output=True, env=environment, text=True, cwd=ROOT)
    return [{**entry, "table": table} for entry in json.loads(made.stdout)]
