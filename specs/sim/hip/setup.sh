#!/bin/sh
# Makes the environment in which CuPy for ROCm runs on the simulated HIP runtime: build/sim/hip-venv (or $1).
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
venv=${1:-$root/build/sim/hip-venv}
python=${PYTHON:-python3}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  cupy-rocm-7-0==14.2.0 numpy==2.4.6 ml_dtypes==0.6.0 pytest==9.2.0
