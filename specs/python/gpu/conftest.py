"""What every spec of devices shares: a driver, simulated or real, that has nothing to report at the end.

A spec that names the fixture `gpu` (or takes it through another) runs on the driver that MOONFERRY_SPEC_DEVICE names,
which must have a device; without that variable on whichever driver has one, and is skipped with Moonferry's reasons
where none has. The driver itself is asked, not Moonferry. Specs of one library are skipped where that is not installed.
"""

import gc
import importlib
import os
import sys
from pathlib import Path

import pytest

import moonferry as mf

HERE = Path(__file__).resolve().parent
sys.path[:0] = map(str, (HERE, HERE.parent, HERE.parents[1]))

from driver_abi import Driver, count_of  # noqa: E402

NAMED = os.environ.get("MOONFERRY_SPEC_DEVICE")
# A driver that is named is not asked before a spec runs: a process that has only collected the specs may fork.
KINDS = [NAMED] if NAMED else [kind for kind in ("cuda", "rocm") if count_of(kind)]


def why_none():
    return f"no GPU: {mf.device_reason('cuda')}; {mf.device_reason('rocm')}"


@pytest.fixture(scope="session", params=KINDS or ["none"])
def the_driver(request):
    if request.param == "none":
        pytest.skip(why_none())
    if not count_of(request.param):
        pytest.exit(f"MOONFERRY_SPEC_DEVICE is {NAMED}, and its driver has no device here", 1)
    return Driver(request.param)


def pytest_configure(config):
    config.addinivalue_line("markers", "reports(text): the simulated driver must report this")


@pytest.fixture(params=[0, 1, 7] if KINDS else [0], ids=lambda seed: f"seed{seed}")
def seed(request, the_driver):
    """For specs of order: work runs as late as it may, and in two random orders."""
    the_driver.seed(request.param)
    yield request.param
    the_driver.seed(0)


def settle(driver):
    """Everything that waits for queued work is given back."""
    for ordinal in range(driver.count):
        mf.synchronize(f"{driver.kind}:{ordinal}")
    if not any(mf.ledger()):
        return
    gc.collect()
    for ordinal in range(driver.count):
        mf.synchronize(f"{driver.kind}:{ordinal}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call":
        item.spec_passed = report.passed


@pytest.fixture
def gpu(the_driver, request):
    """The driver. At the end of the spec nothing is alive, and the simulator has nothing to report."""
    driver = the_driver
    driver.make_current(0)
    settle(driver)
    driver.reset()
    before = mf.ledger(), driver.current()
    yield driver
    if not getattr(request.node, "spec_passed", False):
        return  # its traceback keeps what it made
    settle(driver)
    expected = request.node.get_closest_marker("reports")
    found = driver.findings()
    driver.reset()
    if expected is not None:
        assert not driver.simulated or any(expected.args[0] in text for text in found), found
    else:
        assert not found, "\n".join(found)
    assert driver.current() == before[1], "the caller's context was left changed"
    assert mf.current_stream(f"{driver.kind}:0") == mf.Stream.default(f"{driver.kind}:0")
    assert mf.ledger() == before[0]


@pytest.fixture
def device(gpu):
    """The name of the first GPU."""
    return f"{gpu.kind}:0"


@pytest.fixture
def cuda(gpu):
    if gpu.kind != "cuda":
        pytest.skip("this is CUDA's alone")
    return gpu


def gives_a_destroyed_handle(gpu):
    """A skip on a real driver, which reads what the handle points to, whatever is there by then."""
    if not gpu.simulated:
        pytest.skip("a real driver reads what a destroyed handle points to")


def library(name):
    """The module, or a skip with the reason. A folder of that name on the path, as specs/sim/torch is, is none."""
    try:
        found = importlib.import_module(name)
        if found.__file__ is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return found
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")
