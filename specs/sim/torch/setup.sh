#!/bin/sh
# Makes the environment in which PyTorch's CUDA build runs on the simulated driver: build/sim/torch-venv, by the command
# that users have, and what its specs need beside it. $1 is the `moonferry` program.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
venv=$root/build/sim/torch-venv
"$1" sim --setup torch "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 pytest==9.2.0 cuda-core==1.2.2 \
  cuda-bindings==13.5.0 expecttest==0.3.0
