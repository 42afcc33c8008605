#!/bin/sh
# Makes an environment with JAX for CUDA in the folder $1: what `moonferry sim --setup jax` runs. Of the libraries of
# kernels none is installed, and JAX is told not to ask for their versions, nor to say at length that they are not there.
# It looks for a GPU among the files of /dev, so that list gets one that is always there. JAX is another version than
# this, PYTHON another interpreter.
set -eu
venv=$1
jax=${JAX:-0.10.2}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
install() {
  "$venv/bin/python" -m pip install --no-compile --quiet --disable-pip-version-check "$@"
}
install "jax==$jax" "jaxlib==$jax"
install --no-deps "jax-cuda13-plugin==$jax" "jax-cuda13-pjrt==$jax"
looks=$("$venv/bin/python" -c 'import jax._src.hardware_utils as h; print(h.__file__)')
sed "s|^_NVIDIA_GPU_DEVICES = \[$|&'/dev/null',|" "$looks" >"$looks.new"
mv "$looks.new" "$looks"
echo 'import os; [os.environ.setdefault(*it) for it in dict(JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1", TF_CPP_MIN_LOG_LEVEL="3").items()]' \
  >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/jax_on_a_simulated_gpu.pth"
"$venv/bin/python" -c 'import sys, jax._src.hardware_utils as h; sys.exit(not h.has_visible_nvidia_gpu())'
echo "$venv has JAX $jax for CUDA; now: moonferry sim -- $venv/bin/python program.py"
