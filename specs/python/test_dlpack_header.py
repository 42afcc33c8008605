"""runtime/abi/dlpack/dlpack.h, our declaration of DLPack 1.3, is the standard's header; builds need no other."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

import dlpack_abi as abi

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OURS = os.path.join(ROOT, "runtime", "abi")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


@pytest.fixture(scope="module")
def official():
    """The directory of the standard's header, which tvm-ffi carries."""
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None:
        pytest.skip("tvm_ffi, which carries the standard's header, is not installed for this Python")
    return os.path.join(os.path.dirname(spec.origin), "include")


def text_of(directory):
    """The header without comments."""
    with open(os.path.join(directory, "dlpack", "dlpack.h"), encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read(), flags=re.DOTALL)


def names_of(directory):
    """kind -> the names that a header declares: macros, enumerators, types, and the fields of each struct."""
    text = text_of(directory)
    names = {
        "macros": set(re.findall(r"#\s*define\s+(\w+)", text)),
        "enumerators": set(re.findall(r"\b(kDL\w+)\s*=", text)),
        "types": set(re.findall(r"\}\s*(DL\w+)\s*;", text) + re.findall(r"typedef\s+int\s*\(\s*\*\s*(\w+)\s*\)", text)),
    }
    for body, name in re.findall(r"typedef\s+struct\s*\w*\s*\{([^}]*)\}\s*(\w+)\s*;", text):
        fields = [re.search(r"\(\s*\*\s*(\w+)\s*\)|(\w+)\s*$", field) for field in body.split(";") if field.strip()]
        names[name] = [field[1] or field[2] for field in fields]
    return names


def test_it_declares_the_same_names(official):
    theirs = names_of(official)
    assert len(theirs["enumerators"]) == 34 and len(theirs["types"]) == 15 and len(theirs["macros"]) >= 8
    assert theirs["DLTensor"] == ["data", "device", "ndim", "dtype", "shape", "strides", "byte_offset"]
    assert names_of(OURS) == theirs


def test_its_declarations_are_the_same_but_for_spaces(official):
    path = os.path.join(ROOT, "lua", "generate_cdef.py")
    spec = importlib.util.spec_from_file_location("generate_cdef", path)
    cdef = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cdef)
    both = []
    for directory in (official, OURS):
        text = cdef.preprocess("#include <dlpack/dlpack.h>\n", directory)
        both.append({re.sub(r"\s*([{}(),;])\s*", r"\1", declaration) for declaration in cdef.declarations(text)})
    assert both[1] == both[0] and len(both[0]) == 15


# A function of each type, spelt out: a pointer to another type of function does not compile.
FUNCTIONS = """
DLPACK_EXTERN_C DLPACK_DLL int main(void);
static int allocate(DLTensor *a, DLManagedTensorVersioned **b, void *c, void (*d)(void *, const char *, const char *))
{ (void)a; (void)b; (void)c; (void)d; return 0; }
static int import(void *a, DLManagedTensorVersioned **b) { (void)a; (void)b; return 0; }
static int borrow(void *a, DLTensor *b) { (void)a; (void)b; return 0; }
static int stream(DLDeviceType a, int32_t b, void **c) { (void)a; (void)b; (void)c; return 0; }
static int export(DLManagedTensorVersioned *a, void **b) { (void)a; (void)b; return 0; }
static void delete(DLManagedTensor *a) { (void)a; }
static void delete_versioned(DLManagedTensorVersioned *a) { (void)a; }
static const DLPackExchangeAPI table = {{{1, 3}, NULL}, allocate, import, export, borrow, stream};
static const DLManagedTensor owner = {.deleter = delete};
static const DLManagedTensorVersioned owner_versioned = {.deleter = delete_versioned};
"""


def program_of(names):
    """A C program that prints every number of a header that has these names."""
    lines = ["#include <dlpack/dlpack.h>", "#include <stdio.h>", FUNCTIONS, "int main(void) {"]
    lines += ["  (void)table; (void)owner; (void)owner_versioned;"]
    print_it = '  printf("{0} %lld\\n", (long long)({0}));'.format
    lines += [print_it(name) for name in sorted(names["enumerators"])]
    lines += [print_it(name) for name in sorted(names["macros"]) if re.match("DLPACK_(M|FLAG)", name)]
    lines += [print_it(f"sizeof({name})") for name in sorted(names["types"])]
    lines += [print_it(f"_Alignof({name})") for name in sorted(names["types"])]
    for name in sorted(set(names) - {"macros", "enumerators", "types"}):
        lines += [print_it(f"offsetof({name}, {field})") for field in names[name]]
        lines += [print_it(f"sizeof((({name} *)0)->{field})") for field in names[name]]
    # The sign of an enumeration's type, and the type of the flags, which shifts and masks depend on.
    lines += [print_it("(DLDeviceType)-1 < 0"), print_it("sizeof(DLPACK_FLAG_BITMASK_READ_ONLY)"), "  return 0;", "}"]
    return "\n".join(lines)


def run_with(directory, source, tmp_path):
    (tmp_path / "numbers.c").write_text(source)
    target = str(tmp_path / "numbers")
    command = [*abi.compiler(), "-std=c11", "-Wall", "-Werror", "-I", directory, str(tmp_path / "numbers.c")]
    subprocess.run([*command, "-o", target], check=True, env=ENVIRONMENT)
    return subprocess.run([target], check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout.splitlines()


def test_its_numbers_are_the_same(official, tmp_path):
    source = program_of(names_of(official))
    theirs = run_with(official, source, tmp_path)
    assert len(theirs) == 131 and "kDLFloat4_e2m1fn 17" in theirs and "sizeof(DLTensor) 48" in theirs
    assert run_with(OURS, source, tmp_path) == theirs


def test_it_serves_cpp_and_beside_the_standards(official, tmp_path):
    for first, second in ((OURS, official), (official, OURS)):
        headers = [f'#include "{directory}/dlpack/dlpack.h"' for directory in (first, second)]
        (tmp_path / "both.cpp").write_text("\n".join([*headers, 'static_assert(sizeof(DLDeviceType) == 4, "");']))
        command = [shutil.which("c++") or "g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, str(tmp_path / "both.cpp")], check=True, env=ENVIRONMENT)


# Which header a build takes.


def configure(tmp_path, *options):
    """What CMake says of the runtime alone; its status and its text."""
    command = ["cmake", "-S", ROOT, "-B", str(tmp_path / "build"), f"-DPython_EXECUTABLE={sys.executable}"]
    command += [f"-DMOONFERRY_{part}=OFF" for part in ("PYTHON", "LUA", "SIM")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=ENVIRONMENT)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def fake(tmp_path, minor):
    folder = tmp_path / "fake" / "dlpack"
    folder.mkdir(parents=True)
    (folder / "dlpack.h").write_text(f"#define DLPACK_MAJOR_VERSION 1\n#define DLPACK_MINOR_VERSION {minor}\n")
    return str(folder.parent)


needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake here")


@needs_cmake
def test_a_build_takes_the_header_that_it_is_told(tmp_path):
    include = fake(tmp_path, 3)
    status, said = configure(tmp_path, f"-DMOONFERRY_DLPACK_INCLUDE={include}")
    assert status == 0 and f"dlpack.h of DLPack 1.3: {include}" in said
    assert (tmp_path / "build" / "include" / "dlpack" / "dlpack.h").read_text().startswith("#define DLPACK_MAJOR")


@needs_cmake
@pytest.mark.parametrize("minor", [2, 4])
def test_a_header_of_another_version_that_it_is_told_is_refused(tmp_path, minor):
    include = fake(tmp_path, minor)
    status, said = configure(tmp_path, f"-DMOONFERRY_DLPACK_INCLUDE={include}")
    assert status != 0 and f"MOONFERRY_DLPACK_INCLUDE is {include}" in said and f"of version '1.{minor}'" in said


@needs_cmake
@pytest.mark.parametrize("minor, taken", [(2, False), (3, True), (4, False)])
def test_a_header_that_is_found_is_taken_if_it_fits(tmp_path, minor, taken):
    include = fake(tmp_path, minor)
    status, said = configure(tmp_path, "-DPython_EXECUTABLE=/nowhere/python", f"-DCMAKE_INCLUDE_PATH={include}")
    assert status == 0 and f"dlpack.h of DLPack 1.3: {include if taken else OURS}" in said
