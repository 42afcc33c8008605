"""The package as a user finds it: names, documentation, stubs, headers, one copy of the library, examples."""

import ast
import inspect
import os
import subprocess
import sys

import pytest

import dlpack_abi as abi
import moonferry as mf

PACKAGE = os.path.dirname(os.path.abspath(mf.__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PUBLIC = [name for name in mf.__all__ if not isinstance(getattr(mf, name), str)]
MEMBERS = [n for n, v in vars(mf.Tensor).items() if not n.startswith("_") or n in ("__dlpack__", "__dlpack_device__")]


def test_every_promised_name_is_public():
    promised = """Tensor DType Device ExchangeError empty zeros ones full tensor asarray frombuffer from_dlpack equal
    into ledger get_include get_lua_path float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16
    uint32 uint64 complex64 complex128"""
    assert set(promised.split()) - {"bool"} <= set(mf.__all__)
    assert len(set(mf.__all__)) == len(mf.__all__) and all(hasattr(mf, name) for name in mf.__all__)
    assert mf.__version__ == "0.1.0"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name):
    assert len((inspect.getdoc(getattr(mf, name)) or "").split()) >= 3


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_of_tensor_is_documented(name):
    assert len((inspect.getdoc(vars(mf.Tensor)[name]) or "").split()) >= 3


@pytest.mark.parametrize(
    "name", [n for n in PUBLIC if callable(getattr(mf, n)) and not inspect.isclass(getattr(mf, n))]
)
def test_functions_have_signatures(name):
    assert inspect.signature(getattr(mf, name)) is not None


def test_the_signatures_are_the_array_apis():
    dunder = inspect.signature(mf.Tensor.__dlpack__).parameters
    assert list(dunder) == ["self", "stream", "max_version", "dl_device", "copy"]
    assert all(dunder[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(dunder)[1:])
    function = inspect.signature(mf.from_dlpack).parameters
    assert [p.kind.name for p in function.values()] == ["POSITIONAL_ONLY", "KEYWORD_ONLY", "KEYWORD_ONLY"]
    assert list(function)[1:] == ["device", "copy"]


def stub_names(path):
    with open(path) as stream:
        body = ast.parse(stream.read()).body
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def test_the_package_is_typed():
    assert os.path.exists(os.path.join(PACKAGE, "py.typed"))
    stubs = [name for name in os.listdir(PACKAGE) if name.endswith(".pyi")]
    assert stubs
    typed = {name for stub in stubs for name in stub_names(os.path.join(PACKAGE, stub))}
    typed |= set(stub_names(os.path.join(PACKAGE, "__init__.py")))
    assert set(PUBLIC) <= typed


def test_the_package_carries_headers_and_lua():
    assert os.path.exists(os.path.join(mf.get_include(), "moonferry.h"))
    assert os.path.exists(os.path.join(mf.get_include(), "moonferry_python.h"))
    assert os.path.exists(os.path.join(mf.get_lua_path(), "moonferry", "init.lua"))


def test_one_copy_of_the_library_is_mapped():
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libmoonferry" in line}
    assert len(paths) == 1


def test_import_is_quick_and_quiet_and_needs_no_other_library():
    source = "import sys, moonferry; print(sorted({'numpy', 'torch', 'jax', 'tvm_ffi'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_the_example_of_the_readme_runs(torch, tmp_path):
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "examples", "exchange.py")], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("True") >= 2 and "False" not in done.stdout


def test_two_builds_cannot_share_a_process(tmp_path):
    source = tmp_path / "another.c"
    source.write_text('const char *mf_build_id(void) { return "another build"; }\n')
    libraries = [os.environ.get("LD_PRELOAD"), abi.compile_shared(str(source), "another.so")]
    environment = {**os.environ, "LD_PRELOAD": " ".join(filter(None, libraries))}
    command = [sys.executable, "-c", "import moonferry"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"built for libmoonferry {mf._core.build_id}, but this process has loaded another build" in done.stderr
