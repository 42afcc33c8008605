"""A pytest plugin: Moonferry stands between PyTorch as the producer and PyTorch as the consumer.

Whoever asks a tensor for its capsule is given Moonferry's of that tensor, with what was asked for: so do
`torch.from_dlpack`, `to_dlpack` and a test itself. Kernels are computed by the host. Each test must leave no race.
Must not know the tests.
"""

import ctypes
import unittest

import computed
import pytest
import torch
import torch.utils.dlpack

import moonferry

# What PyTorch's tests want refused, and Moonferry answers otherwise.
OTHERWISE = {
    "test_dlpack_cuda_per_thread_stream": "Moonferry knows the per-thread stream, PyTorch refuses it",
    "test_dlpack_invalid_cuda_streams": "0 is refused by a ValueError, PyTorch's is an AssertionError",
    "test_dlpack_invalid_cpu_stream": "a stream of the CPU is refused by a ValueError, PyTorch's is an AssertionError",
    "test_dlpack_tensor_on_different_device": "Moonferry takes a tensor of any device, whichever is current",
    "test_unsupported_device_error": "the BufferError says it in other words",
}


class Producer:
    """A tensor of PyTorch's with its own methods."""

    dlpack = torch.Tensor.__dlpack__

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **asked):
        return Producer.dlpack(self.tensor, **asked)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


passed_through = 0


def capsule(tensor, **asked):
    global passed_through
    passed_through += 1
    return moonferry.from_dlpack(Producer(tensor)).__dlpack__(**asked)


torch.Tensor.__dlpack__ = capsule
torch.utils.dlpack.to_dlpack = capsule


def sleep(cycles):
    """Something that is queued on the current stream."""
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda").copy_(torch.empty(1 << 20, dtype=torch.uint8).pin_memory())


torch.cuda._sleep = sleep
torch.backends.cudnn.is_acceptable = lambda tensor: False  # it is a stand-in


def found():
    """What the simulator found, or None."""
    sim = ctypes.CDLL("libcuda.so.1")
    sim.sim_finding.restype = ctypes.c_char_p
    text = sim.sim_finding(ctypes.c_size_t(0)) if sim.sim_findings(0) else None
    sim.sim_reset()
    return text and text.decode()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    otherwise = next((why for name, why in OTHERWISE.items() if item.name.startswith(name)), None)
    found()
    with computed.ComputedByTheHost():
        result = yield
    wrong, raised = found(), [info.value for info in item._excinfo or []]  # unittest's are not raised here
    if wrong:
        pytest.fail(wrong)
    if otherwise is None or any(isinstance(error, (unittest.SkipTest, pytest.skip.Exception)) for error in raised):
        return result
    if not raised:
        pytest.fail(f"passes, and is listed as otherwise: {otherwise}")
    item._excinfo = None
    pytest.skip(f"otherwise: {otherwise}")


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{passed_through} capsules came through Moonferry")
