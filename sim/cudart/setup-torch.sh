#!/bin/sh
# Makes an environment with PyTorch for CUDA in the folder $1: what `moonferry sim --setup torch` runs. Of the 3 GB of
# libraries that PyTorch brings for kernels none is installed; stubs.py compiles stand-ins for them into PyTorch's own
# folder. TORCH is another version than this, PYTHON another interpreter.
set -eu
venv=$1
here=$(dirname "$0")
torch=${TORCH:-2.14.1}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
install() {
  "$venv/bin/python" -m pip install --no-compile --quiet --disable-pip-version-check "$@"
}
# === takes no build for another device, such as 2.14.1+cpu, for the version that is meant.
install --no-deps "torch===$torch"
# The real CUDA runtime, of 12 or of 13, lies where an ordinary install has it: by its name, or as a part of the toolkit.
install "$("$venv/bin/python" -c '
import re
from importlib.metadata import requires
for line in requires("torch"):
    found = re.match(r"nvidia-cuda-runtime-cu12==[\w.]+|cuda-toolkit\[\S*\bcudart\b\S*\]==[\w.]+", line)
    if found:
        print(re.sub(r"\[.*\]", "[cudart]", found[0]))
')"
install filelock fsspec jinja2 networkx sympy typing_extensions numpy
folder=$("$venv/bin/python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
"$venv/bin/python" "$here/stubs.py" "$folder/lib" "$folder/lib" "$folder/../nvidia"
echo "$venv has PyTorch $torch for CUDA; now: moonferry sim -- $venv/bin/python program.py"
