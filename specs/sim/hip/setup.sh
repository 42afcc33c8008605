#!/bin/sh
# Makes the environment in which CuPy for ROCm runs on the simulated HIP runtime: build/sim/hip-venv (or $1), and in it
# rocm/include, the public headers that our declarations are compared with.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
venv=${1:-$root/build/sim/hip-venv}
python=${PYTHON:-python3}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --no-compile --quiet --disable-pip-version-check \
  cupy-rocm-7-0==14.2.0 numpy==2.4.6 ml_dtypes==0.6.0 pytest==9.2.0

# Triton's wheel carries the headers of ROCm 7.1; Debian's own are those of 5.2. Nothing else of it is kept.
triton=3.9.0
[ "$(cat "$venv/rocm/triton" 2>/dev/null)" != "$triton" ] || exit 0
rm -rf "$venv/rocm"
mkdir -p "$venv/rocm/wheel"
"$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --dest "$venv/rocm/wheel" triton==$triton
"$venv/bin/python" - "$venv/rocm" <<'END'
import pathlib, sys, zipfile
rocm = pathlib.Path(sys.argv[1])
[wheel] = (rocm / "wheel").glob("*.whl")
prefix = "triton/backends/amd/"
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        if name.startswith(prefix + "include/hip/") and not name.endswith("/"):
            to = rocm / name.removeprefix(prefix)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(files.read(name))
END
rm -rf "$venv/rocm/wheel"
echo $triton >"$venv/rocm/triton"
