"""docs/streams.md: what it shows runs, and what its table of streams says is what is done.

The page is written for CUDA; on ROCm the same is run with the other name. CuPy is used where it is installed and
runs, which on a simulated driver is ROCm's.
"""

import ctypes
import gc
import os
import re
import subprocess
from pathlib import Path

import pytest
from test_peers import cupy  # noqa: F401

import dlpack_abi as abi
import moonferry as mf
from conftest import gives_a_destroyed_handle

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "streams.md").read_text()
BEFORE_PYTHON = 't = moonferry.zeros((4,), device="cuda:0")\n'
BEFORE_LUA = 'local mf = require "moonferry"\nlocal t\n'


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(text, gpu, **names):
    exec(compile(text.replace("cuda", gpu.kind), "a block of a page", "exec"), {"moonferry": mf, **names})


def name_of(text):
    return text.splitlines()[0]


@pytest.mark.parametrize("text", [t for t in blocks(PAGE, "python") if "cupy" not in t], ids=name_of)
def test_the_python_of_the_page(gpu, seed, text):
    # 1 is a default stream on CUDA alone.
    run(BEFORE_PYTHON + (text if gpu.kind == "cuda" else text.replace("stream=1", "stream=0")), gpu)


@pytest.mark.parametrize("text", [t for t in blocks(PAGE, "python") if "cupy" in t], ids=name_of)
def test_the_python_of_the_page_with_cupy(gpu, cupy, seed, text):  # noqa: F811
    names = {"moonferry": mf, "cupy": cupy, "t": mf.full((4, 8), 5, "uint8", device=f"{gpu.kind}:0")}
    # It is cupy.cuda on ROCm, too.
    code = text.replace("cuda:0", f"{gpu.kind}:0") + "assert v.tolist() == [[5] * 8] * 4\n"
    exec(compile(code, "docs/streams.md", "exec"), names)
    theirs = names.pop("theirs")  # a stream outlives the memory that was used on it
    names.clear()
    gc.collect()
    mf.synchronize(gpu.kind)
    cupy.get_default_memory_pool().free_all_blocks()
    theirs.synchronize()


@pytest.mark.parametrize("text", blocks(PAGE, "lua"), ids=name_of)
def test_the_lua_of_the_page(gpu, text):
    code = BEFORE_LUA + text.replace("cuda", gpu.kind)
    path = f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;;"
    library = os.path.join(os.path.dirname(mf.__file__), "libmoonferry.so.0")
    environment = dict(os.environ, LUA_PATH=path, MOONFERRY_LIBRARY=library, SIM_LEDGER="off", SIM_EXIT="77")
    done = subprocess.run(["luajit", "-e", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


# The table.


def rows_of_the_table():
    table = PAGE[PAGE.index("| `stream=` |") :].partition("\n\n")[0].splitlines()
    heads = [re.findall(r"`(\w+)`", cell) for cell in table[0].strip("| ").split(" | ")][1:]
    for line in table[2:]:
        label, *cells = line.strip("| ").split(" | ")
        assert len(cells) == len(heads), line
        for word in re.findall(r"`([^`]+)`|(a [a-z A-Z]+)", label):
            for kinds, cell in zip(heads, cells):
                for kind in kinds:
                    yield kind, "".join(word), re.split(r": | \(|, of", cell)[0].strip("`")


CELLS = list(rows_of_the_table())
NBYTES = 256


class Values:
    """What the labels of the table's rows stand for, and the streams that were made for that."""

    def __init__(self, gpu):
        self.gpu = gpu
        self.made = []

    def stream(self, ordinal=0):
        self.gpu.make_current(ordinal)
        self.made.append(self.gpu.stream())
        self.gpu.make_current(0)
        return self.made[-1]

    def of(self, label):
        if label == "a handle":
            return self.stream()
        if label == "a handle of another GPU":
            if self.gpu.count < 2:
                pytest.skip("there is one GPU")
            return self.stream(1)
        if label == "a handle that was destroyed":
            gives_a_destroyed_handle(self.gpu)
            self.gpu.destroy(gone := self.gpu.stream())
            return gone
        return mf.Stream(self.gpu.kind) if label == "a stream object" else eval(label)

    def close(self):
        for ordinal in range(self.gpu.count):
            mf.synchronize(f"{self.gpu.kind}:{ordinal}")
        for handle in self.made:
            self.gpu.destroy(handle)


@pytest.fixture
def values(gpu):
    made = Values(gpu)
    yield made
    made.close()


def written(gpu, kind):
    """Memory that a stream of its own still writes."""
    t = mf.empty((NBYTES,), "uint8", device=f"{gpu.kind}:0" if kind == "cpu" else kind)
    producer = mf.Stream(gpu.kind)
    t.acquire(producer, write=True)
    gpu.memset(t.data_ptr, 9, NBYTES, producer.handle)
    t.record(producer, write=True)
    return t, producer


def races(gpu):
    found = gpu.findings()
    gpu.reset()
    return [text for text in found if "race" in text]


def is_ordered(gpu, address, native):
    """Whether that stream may write the memory now; a simulated driver knows, a real one cannot be asked."""
    gpu.memset(address, 8, NBYTES, native)
    return not races(gpu)


def check_meaning(gpu, address, meaning, value):
    """That the memory is ready for whom the page says, and for nobody else."""
    default = gpu.default
    native = {"the calling thread's default stream": 2, "that stream": value}.get(meaning, default)
    if meaning == "the host waits":
        assert ctypes.string_at(address, NBYTES) == b"\t" * NBYTES
    elif meaning == "no order":
        assert not gpu.simulated or not is_ordered(gpu, address, default)
    else:
        assert native != default or meaning in ("legacy default stream", "default stream")
        assert is_ordered(gpu, address, native)


@pytest.mark.parametrize("kind, label, meaning", CELLS)
def test_each_cell_of_the_table(gpu, values, kind, label, meaning):
    if kind != "cpu" and not kind.startswith(gpu.kind):
        pytest.skip(f"{kind} is not this driver's")
    value = values.of(label)
    t, producer = written(gpu, kind)
    asked = {"dl_device": (1, 0)} if kind == "cpu" else {}
    if meaning in ("ValueError", "TypeError"):
        with pytest.raises({"ValueError": ValueError, "TypeError": TypeError}[meaning], match="(?i)stream"):
            t.__dlpack__(stream=value, max_version=(1, 3), **asked)
        gpu.reset()  # a destroyed handle is reported, as it should be
        return
    struct = abi.consume(t.__dlpack__(stream=value, max_version=(1, 3), **asked))
    check_meaning(gpu, struct.dl_tensor.data, meaning, value)
    mf.synchronize(gpu.kind)
    abi.call_deleter(struct)


def test_the_table_has_all_that_matters():
    assert {kind for kind, *_ in CELLS} == {"cpu", "cuda", "cuda_host", "cuda_managed", "rocm", "rocm_host"}
    labels = {label for _, label, _ in CELLS}
    assert {"None", "-1", "0", "1", "2", "a handle", "-2", "1 << 63", "True", "1.5"} <= labels
