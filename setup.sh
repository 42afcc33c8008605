#!/usr/bin/env bash
# Makes this clone ready to build: Debian packages (where apt is there, otherwise it says what is missing)
# and .venv/ with the pinned Python packages. Idempotent; a second run takes well under a second. It writes
# nothing outside .venv/ but what apt installs. Its arguments are further programs, by Debian's names: valgrind.
set -euo pipefail
cd "$(dirname "$0")"
requirements=specs/requirements.txt
venv=.venv

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# 0. A GPU machine without a network takes all of it from build/gpu-kit/ (specs/gpu/README.md).
if [[ -d build/gpu-kit && ! -e $venv/.stamp ]]; then
  exec specs/gpu/here --setup
fi

# 1. Programs and libraries. name on Debian | how to see that it is there without asking dpkg
needs=(
  'gcc|command -v gcc'
  'g++|command -v g++'
  'make|command -v make'
  'cmake|command -v cmake'
  'ninja-build|command -v ninja'
  'pkg-config|command -v pkg-config'
  'luajit|command -v luajit'
  'libluajit-5.1-dev|pkg-config --exists luajit'
  'libsdl2-dev|pkg-config --exists sdl2'
  'libgl-dev|pkg-config --exists gl'
  'libegl1|ldconfig -p | grep -q "libEGL.so.1 "'
  'libgl1-mesa-dri|ls /usr/lib/*/dri/swrast_dri.so'
  'libvulkan-dev|pkg-config --exists vulkan'
  'mesa-vulkan-drivers|ls /usr/share/vulkan/icd.d/lvp_icd.*.json'
  'vulkan-validationlayers|ls /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json'
  'lua-busted|command -v busted'
  'lua-check|command -v luacheck'
  'libcmocka-dev|pkg-config --exists cmocka'
  'libedit-dev|pkg-config --exists libedit'
  'clang-14|command -v clang-14'
  'libclang-rt-14-dev|test -e "$(clang-14 -print-file-name=libclang_rt.fuzzer-x86_64.a)" -o -e "$(clang-14 -print-file-name=libclang_rt.fuzzer-aarch64.a)"'
  'git|command -v git'
  'love|command -v love'
  'ca-certificates|test -e /etc/ssl/certs/ca-certificates.crt -o -n "${SSL_CERT_FILE:-}" -o "$(uname)" = Darwin'
)
for program in "$@"; do needs+=("$program|command -v $program"); done

missing=()
for need in "${needs[@]}"; do
  (eval "${need#*|}") >/dev/null 2>&1 || missing+=("${need%%|*}")
done

# The stamp names everything that .venv/ depends on: equal stamp, nothing to do.
stamp_of() { { cat setup.sh "$requirements"; pwd; } | sha256sum | cut -d' ' -f1; }
if ((!${#missing[@]})) && [[ -f $venv/.stamp && $(<"$venv/.stamp") == "$(stamp_of)" ]] &&
  "$venv/bin/python" -c '' 2>/dev/null; then
  exit 0
fi

# The interpreter for .venv: the first in PATH with its headers, pip and a shared libpython beside it, and
# new enough for the pinned packages.
usable_python='
import ensurepip, os, sys, sysconfig, venv
v = sysconfig.get_config_var
names = {v("INSTSONAME"), v("LDLIBRARY"), "libpython%d.%d.so.1.0" % sys.version_info[:2]}
dirs = [v("LIBDIR"), os.path.join(v("LIBDIR") or "", v("MULTIARCH") or "")]
shared = any(os.path.exists(os.path.join(d, n)) for d in dirs for n in names if n and ".so" in n or n and ".dylib" in n)
header = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
sys.exit(not (sys.version_info >= (3, 11) and header and shared))'
find_python() {
  local name path
  for name in python3 python3.11 python3.12 python3.13 python3.14; do
    while read -r path; do
      if "$path" -c "$usable_python" 2>/dev/null; then
        "$path" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))'
        return
      fi
    done < <(type -aP "$name")
  done
  return 1
}
python=$(find_python) || missing+=(python3 python3-venv python3-dev)

if ((${#missing[@]})); then
  if ! command -v apt-get >/dev/null; then
    fail "missing, and there is no apt-get to install it (names of Debian's packages): ${missing[*]}" \
      "(a Python of 3.11 or newer needs its headers, venv and a shared libpython)"
  fi
  as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "missing: ${missing[*]}. Run as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y)
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  say "asking Debian for: ${missing[*]} (a minute or so)"
  if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install: ${missing[*]}"
  fi
  [[ -n $python ]] || python=$(find_python) ||
    fail "no Python of 3.11 or newer with headers, venv and a shared libpython, even after apt-get"
fi

# 2. .venv/
which='import sys; print(sys.base_prefix, sys.version)'
if [[ ! -x $venv/bin/python || $("$venv/bin/python" -c "$which" 2>/dev/null) != "$("$python" -c "$which")" ]]; then
  say "making $venv/ with $python"
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
say "installing the pinned Python packages into $venv/ (a minute or two; PyTorch and JAX are large)"
pip_log=$venv/pip.log
# Most modules are never imported. Compiling all of them takes longer than installing them; an import compiles its own.
if ! "$venv/bin/python" -m pip install --no-compile --disable-pip-version-check --no-input -r "$requirements" >"$pip_log" 2>&1 </dev/null; then
  grep -iv '^WARNING' "$pip_log" | tail -n 20 >&2
  fail "pip failed; all it said is in $pip_log"
fi
# So that .venv/bin/python imports what `make build` builds.
"$venv/bin/python" - "$PWD/build/dev/python" <<'END'
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "moonferry.pth").write_text(sys.argv[1] + "\n")
END
stamp_of >"$venv/.stamp"
say "done"
