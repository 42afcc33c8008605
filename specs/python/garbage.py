"""Collections that look at what the specs make alone: one that walks what all the libraries have loaded takes up to a
second, and some specs have several.

Must not know what a spec is.
"""

import gc
import sys

_loaded = 0  # modules when that was done last


def leave_out_what_is_loaded():
    """What is there when modules have come since the last call is not collected, nor looked at, any more."""
    global _loaded
    if len(sys.modules) > _loaded:
        gc.collect()
        gc.freeze()
        _loaded = len(sys.modules)
