"""Runs a part of the package in any Python: `python _tool.py check ...`, which the `moonferry` program does.

The part is imported under a name of its own, so that neither Moonferry's extension, which is built for one CPython, nor
the folder that the package lies in is needed or seen. Must not know: what the parts do.
"""

import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def load(name):
    """The package moonferry/_NAME as moonferry_NAME."""
    folder = os.path.join(HERE, "_" + name)
    spec = importlib.util.spec_from_file_location(
        "moonferry_" + name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return importlib.import_module(spec.name + ".run")


if __name__ == "__main__":
    # The folder of this file must not be where other modules are looked for, and the working folder should.
    sys.path[0] = os.getcwd()
    part = sys.argv[1]
    sys.exit(load(part).main(sys.argv[2:], [os.path.abspath(__file__), part]))
