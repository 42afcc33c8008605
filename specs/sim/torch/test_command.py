"""`moonferry sim` with PyTorch: the example of the page, in processes of its own."""

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MOONFERRY = ROOT / "build" / "dev" / "bin" / "moonferry"
EXAMPLE = ROOT / "examples" / "race" / "torch_race.py"
OWN = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
PYTHON = ROOT / "build" / "dev" / "python"


def moonferry_sim(*words):
    environment = {name: value for name, value in os.environ.items() if name not in OWN} | {"PYTHONPATH": str(PYTHON)}
    return subprocess.run([MOONFERRY, "sim", *words], env=environment, capture_output=True, text=True, timeout=300)


def test_the_example_races_unless_it_waits():
    done = moonferry_sim("--no-ledger", "--seeds", "4", "--", sys.executable, EXAMPLE)
    assert done.returncode == 1, done.stderr
    assert re.search(r"first  written by stream .* cudaMemcpyAsync, .*torch_race\.py:29 in main", done.stderr)
    assert re.search(r"then   read by stream .* cuMemcpyAsync, .*torch_race\.py:35 in main", done.stderr)
    assert "seen   under all seeds 0 to 3" in done.stderr
    assert "wrong bytes: [203, 203, 203, 203] ..." in done.stdout
    done = moonferry_sim("--no-ledger", "--seeds", "4", "--", sys.executable, EXAMPLE, "--wait")
    assert (done.returncode, done.stdout) == (0, "all bytes are 7\n" * 4), done.stderr


def test_the_page_shows_the_example_as_it_is():
    page = (ROOT / "docs" / "sim-torch.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown in EXAMPLE.read_text()


# Zeros are a fill of the driver's since PyTorch 2.15, and a kernel before.
FILLS_ZEROS = tuple(map(int, importlib.metadata.version("torch").split("+")[0].split(".")[:2])) >= (2, 15)


@pytest.mark.parametrize("statement", ["torch.zeros(4, device='cuda')", "x.zero_()"])
def test_zeros_are_a_fill_or_a_kernel(statement):
    program = f"import torch; x = torch.arange(6).cuda(); print(int(({statement}).cpu().abs().sum()))"
    done = moonferry_sim("--", sys.executable, "-c", program)
    if FILLS_ZEROS:
        assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    else:
        assert re.search(r"misuse: kernel \S+ is compiled code, which cannot run here", done.stderr)


@pytest.mark.parametrize("statement", ["x.fill_(1)", "x.to(torch.float64)", "x == x"])
def test_what_the_page_says_is_a_kernel_is_named(statement):
    program = f"import torch; x = torch.arange(6).cuda(); print(x, x[1].item(), x.clone().cpu().tolist()); {statement}"
    done = moonferry_sim("--", sys.executable, "-c", program)
    assert done.stdout == "tensor([0, 1, 2, 3, 4, 5], device='cuda:0') 1 [0, 1, 2, 3, 4, 5]\n", done.stderr
    assert "operation not supported" in done.stderr
    assert re.search(r"misuse: kernel \w+ is compiled code", done.stderr)


def test_a_standin_says_that_it_was_called():
    program = "import torch; x = torch.ones(3, 3).cuda(); x @ x"
    done = moonferry_sim("--", sys.executable, "-c", program)
    assert "CUBLAS_STATUS_NOT_INITIALIZED" in done.stderr
    assert re.search(r"libcublas\.so\.1[23] is a stand-in for the real one: cublasCreate\w* does nothing", done.stderr)


def test_the_host_touches_what_is_on_the_device():
    program = "import ctypes, torch; x = torch.arange(6).cuda(); ctypes.string_at(x.data_ptr() + 8, 4)"
    done = moonferry_sim("--", sys.executable, "-c", program)
    assert done.returncode == 128 + signal.SIGSEGV, done.stderr
    assert "misuse: the host reads a device's memory, which no host can touch, at 0x" in done.stderr
    assert re.search(r"here   call #\d+ the program, thread 1 at <string>:1 in <module> from", done.stderr)
    assert re.search(r"made   call #\d+ cudaMalloc, .*libc10_cuda\.so", done.stderr)


OPAQUE = """
import torch
s, t = torch.cuda.Stream(), torch.cuda.Stream()
a = torch.arange(1 << 10, dtype=torch.float32).cuda()
torch.cuda.synchronize()
with torch.cuda.stream(s):
    b = a + 1
if {wait}:
    t.wait_stream(s)
with torch.cuda.stream(t):
    back = b.cpu()
print(hex(back.view(torch.uint8)[0]))
torch.cuda.synchronize()
"""


@pytest.mark.parametrize("wait", [True, False])
def test_a_kernel_can_stand_for_what_its_arguments_reach(wait):
    program = OPAQUE.format(wait=wait)
    environment = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"]
    done = moonferry_sim("--kernels", "opaque", "--no-ledger", "--", *environment, sys.executable, "-c", program)
    if wait:
        assert (done.returncode, done.stdout) == (0, "0xeb\n"), done.stderr
        assert "0 findings; 2 warnings" in done.stderr  # that it was not computed, and what PyTorch leaves
    else:
        assert done.returncode == 1
        assert re.search(r"written by stream .*cudaLaunchKernel.*\n.*read by stream .* cudaMemcpyAsync", done.stderr)
