"""Runs a part of moonferry/_check in any Python: `python _tool.py run numpy`, which the `moonferry` program does.

The part is imported under a name of its own, so that neither Moonferry's extension, which is built for one CPython, nor
the folder that the package lies in is needed or seen. Must not know: what the parts do.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback

UNABLE, INTERRUPTED = 2, 130
HERE = os.path.dirname(os.path.abspath(__file__))


def load(part):
    """moonferry/_check/PART.py as moonferry_check.PART."""
    folder = os.path.join(HERE, "_check")
    spec = importlib.util.spec_from_file_location(
        "moonferry_check", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return importlib.import_module("moonferry_check." + part)


class Beside:
    """Finds the moonferry that lies here, if Python finds none and the extension is built for this CPython."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        suffixes = importlib.machinery.EXTENSION_SUFFIXES
        if name == "moonferry" and any(os.path.exists(os.path.join(HERE, "_core" + s)) for s in suffixes):
            init = os.path.join(HERE, "__init__.py")
            return importlib.util.spec_from_file_location(name, init, submodule_search_locations=[HERE])
        return None


def main():
    # The folder of this file must not be where other modules are looked for, and the working folder should.
    try:
        sys.path[0] = os.getcwd()
    except OSError:  # it was deleted, or may not be known: nothing can be imported from there
        del sys.path[0]
    if sys.version_info < (3, 9):  # noqa: UP036  (any Python may be asked for)
        found = ".".join(map(str, sys.version_info[:2]))
        sys.stderr.write("moonferry: " + sys.executable + " is Python " + found + "; expected: 3.9 or later\n")
        return UNABLE
    sys.meta_path.append(Beside)
    part = sys.argv[1]
    try:
        return load(part).main(sys.argv[2:], [os.path.abspath(__file__), part])
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        return UNABLE


if __name__ == "__main__":
    sys.exit(main())
