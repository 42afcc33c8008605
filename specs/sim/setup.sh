#!/bin/sh
# Makes the environment in which other people's GPU libraries run on the simulated driver: build/sim/venv (or $1).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${1:-$root/build/sim/venv}
python=${PYTHON:-python3}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --no-compile --quiet --disable-pip-version-check \
  cuda-core==1.2.2 cuda-bindings==13.5.0 numba-cuda==0.30.4 numba==0.68.1 numpy==2.4.6 ml_dtypes==0.6.0 pytest==9.2.0 \
  warp-lang==1.19.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-nvcc==13.0.88 nvidia-cuda-nvrtc==13.0.88 \
  nvidia-cuda-runtime-cu12==12.9.79
# numba-cuda asks libcudart for its version and NVRTC for its architectures; cuda.h comes with libcudart; of nvcc only
# ptxas is used. Of the runtimes, that of CUDA 12 too, the names and declarations are compared with the simulated ones.
# Where the specs look for the assembler.
for ptxas in "$venv"/lib/python*/site-packages/nvidia/cu*/bin/ptxas; do
  if [ -x "$ptxas" ]; then ln -sf "$ptxas" "$(dirname "$venv")/ptxas"; fi
done
