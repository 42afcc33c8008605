"""The entries of host.lua, cuda.lua and rocm.lua, as list.lua writes them.

Responsible for asking it. Must not know what an entry says.
"""

import json
import os
import subprocess

from environments import HERE, ROOT

TABLES = ["host", "cuda", "rocm"]


def libraries(table):
    """The entries of a Lua table, each with the name of its table."""
    environment = {**os.environ, "LUA_PATH": f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;;"}
    command = ["luajit", str(HERE / "list.lua"), table]
    made = subprocess.run(command, check=True, capture_output=True, env=environment, text=True, cwd=ROOT)
    return [{**entry, "table": table} for entry in json.loads(made.stdout)]
