"""Which part of a suite is run with each commit, where all of it takes too long.

Invariant: the seed of the commit decides (MOONFERRY_SPEC_SEED), so that every part has its turn. Must not know how a
suite is run (specs/run).
"""

import os

WHOLE = "MOONFERRY_SPEC_WHOLE"
# Some sixty interpreters one after another, and bytes that build/dev counts as exactly.
LONG_UNDER_ASAN = ("lua.python_environment", "python.test_memory")


def is_whole():
    """Whether the sanitizers have no share (--whole, which `make test-sanitizers` says), but all that there is."""
    return WHOLE in os.environ


def draw(place):
    """0 or 1, as the seed of this commit has it at a place of its own."""
    return int(os.environ.get("MOONFERRY_SPEC_SEED", "0")) // place % 2


def with_threads_under_tsan(preset, tests):
    """Under ThreadSanitizer those in which there is a second thread."""
    if preset != "tsan" or is_whole():
        return tests
    return [test for test in tests if test.labels & {"threads", "helped"}]


def half_under_asan(preset, tests):
    """Of files whose programs take several times as long under AddressSanitizer, every second one there, the others
    with another commit."""
    if preset != "asan" or is_whole():
        return tests
    every = sorted(tests, key=lambda test: test.name)
    return [test for test in every[draw(8) :: 2] if test.name not in LONG_UNDER_ASAN]
