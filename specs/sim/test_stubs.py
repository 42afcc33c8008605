"""Stand-ins for libraries that are not there, made from what a program's libraries ask for."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

STUBS = Path(__file__).resolve().parents[2] / "sim" / "cudart" / "stubs.py"
VERSIONS = {"libfirst.so.3": "libfirst.so.3 { global: *; };\n", "libsecond.so.7": None}


def compiled(folder, name, source, *words):
    (folder / "source.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", "-o", folder / name, folder / "source.c", f"-Wl,-soname,{name}", *words]
    subprocess.run([str(word) for word in command], check=True)


@pytest.fixture
def asking(tmp_path):
    """A library that is linked with two which are gone: the symbols of one have a version."""
    away, here = tmp_path / "away", tmp_path / "here"
    away.mkdir(), here.mkdir()
    (away / "versions.map").write_text(VERSIONS["libfirst.so.3"])
    compiled(away, "libfirst.so.3", "int firstOpen(void){return 0;}", f"-Wl,--version-script={away / 'versions.map'}")
    compiled(away, "libsecond.so.7", "int secondRun(void){return 0;} int secondStop(void){return 0;}")
    source = (
        "int firstOpen(void), secondRun(void), getpid(void);"
        "int open_first(void){return firstOpen();} int run_second(void){return secondRun() + 0 * getpid();}"
    )
    compiled(here, "libasking.so", source, away / "libfirst.so.3", away / "libsecond.so.7", "-Wl,-rpath,$ORIGIN")
    return here


def stubs(out, *folders):
    return subprocess.run([sys.executable, STUBS, out, *folders], capture_output=True, text=True)


def test_a_standin_has_what_is_asked_for_and_nothing_else(asking):
    done = stubs(asking, asking)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "libfirst.so.3: 1 functions\nlibsecond.so.7: 1 functions\n"
    second = ctypes.CDLL(str(asking / "libsecond.so.7"))
    assert second.secondRun() == 1
    assert not hasattr(second, "secondStop")


def test_a_call_of_a_standin_is_said_and_fails(asking):
    assert stubs(asking, asking).returncode == 0
    program = f"import ctypes; l = ctypes.CDLL({str(asking / 'libasking.so')!r}); print(l.open_first(), l.run_second())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "1 1\n"
    assert done.stderr == (
        "libfirst.so.3 is a stand-in for the real one: firstOpen does nothing and fails\n"
        "libsecond.so.7 is a stand-in for the real one: secondRun does nothing and fails\n"
    )


def test_versions_are_those_that_are_asked_for(asking):
    assert stubs(asking, asking).returncode == 0
    symbols = subprocess.run(
        ["nm", "-D", "--with-symbol-versions", asking / "libfirst.so.3"], capture_output=True, text=True, check=True
    ).stdout
    assert "firstOpen@@libfirst.so.3" in symbols


def test_standins_are_made_again_and_real_libraries_are_left_alone(asking):
    first = stubs(asking, asking)
    assert stubs(asking, asking).stdout == first.stdout
    (asking / "libsecond.so.7").write_bytes((asking.parent / "away" / "libsecond.so.7").read_bytes())
    assert stubs(asking, asking).stdout == "libfirst.so.3: 1 functions\n"
    assert ctypes.CDLL(str(asking / "libsecond.so.7")).secondStop() == 0


def test_what_the_simulator_has_gets_no_standin(asking, tmp_path):
    (tmp_path / "cuda").mkdir()
    compiled(tmp_path / "cuda", "libcudart.so.13", "int cudaMalloc(void){return 0;}")
    source = "int cudaMalloc(void); int f(void){return cudaMalloc();}"
    compiled(asking, "libother.so", source, tmp_path / "cuda" / "libcudart.so.13")
    stubs(asking, asking)
    assert not (asking / "libcudart.so.13").exists()


def test_files_that_are_no_libraries_are_passed_over(asking):
    (asking / "notes.so.txt").write_text("not ELF")
    (asking / "empty.so").write_bytes(b"")
    assert stubs(asking, asking).returncode == 0
    assert stubs(asking).returncode != 0


def test_a_library_that_is_cut_off_is_named(asking):
    whole = (asking / "libasking.so").read_bytes()
    (asking / "libcut.so").write_bytes(whole[: len(whole) // 2])
    done = stubs(asking, asking)
    assert done.returncode == 1
    assert done.stderr == f"{asking / 'libcut.so'}: its tables are damaged, or it is not whole\n"
