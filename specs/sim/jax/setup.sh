#!/bin/sh
# Makes the environment in which JAX's CUDA build runs on the simulated driver: build/sim/jax-venv, by the command that
# users have, and what its specs need beside it. $1 is the `moonferry` program.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
venv=$root/build/sim/jax-venv
"$1" sim --setup jax "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check pytest==9.2.0
