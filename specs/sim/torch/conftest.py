"""Cases that run PyTorch's CUDA build on the simulated driver, each under many seeds.

PyTorch is imported once, which touches no device; then each case runs in a forked child of its own, under its seed. The
child reports what the simulator found. Memory that PyTorch keeps until the process ends is not what these are about, so
the children end without a ledger. Must not know: what a case does.
"""

import ctypes
import json
import os
import select
import signal
import time
import traceback

import pytest
import torch  # noqa: F401 before any fork

SEEDS = int(os.environ.get("MOONFERRY_SPEC_SEEDS", "20"))
PATIENCE = 120


def in_child(case, seed, out):
    try:
        os.environ.update(SIM_SEED=str(seed), SIM_LINES="5000")
        case()
        import torch

        torch.cuda.synchronize(0)
        error = None
    except BaseException:
        error = traceback.format_exc()
    sim = ctypes.CDLL("libcuda.so.1")
    sim.sim_finding.restype = ctypes.c_char_p
    texts, i = [], 0
    while (text := sim.sim_finding(ctypes.c_size_t(i))) is not None:
        texts.append(text.decode())
        i += 1
    with os.fdopen(out, "w") as file:
        json.dump({"error": error, "findings": [t for t in texts if not t.startswith("warning")]}, file)


def read_all(fd, child):
    text, end = b"", time.monotonic() + PATIENCE
    while select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
        part = os.read(fd, 1 << 16)
        if not part:
            return text
        text += part
    os.kill(child, signal.SIGKILL)
    return text


def run(case, seed):
    """What the case raised (None: nothing), and the findings."""
    back, out = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(back)
        try:
            in_child(case, seed, out)
        finally:
            os._exit(0)
    os.close(out)
    text = read_all(back, child)
    os.close(back)
    _, status = os.waitpid(child, 0)
    if status != 0 or not text:
        pytest.fail(f"seed {seed}: the process ended with status {status} and said {text!r}")
    said = json.loads(text)
    return said["error"], said["findings"]


class Cases:
    run = staticmethod(run)

    def right(self, case):
        """Nothing is raised and nothing found, under any seed."""
        for seed in range(SEEDS):
            error, findings = run(case, seed)
            assert error is None and not findings, f"seed {seed}: {error}\n" + "\n".join(findings)

    def wrong(self, case, *expected):
        """Under every seed something is found that has these words; what a case computes may be wrong then."""
        for seed in range(SEEDS):
            error, findings = run(case, seed)
            assert error is None and len(findings) == 1, f"seed {seed}: {error}\n" + "\n".join(findings)
            for words in expected:
                assert words in findings[0], f"seed {seed}: {findings[0]}"


@pytest.fixture
def cases():
    return Cases()
