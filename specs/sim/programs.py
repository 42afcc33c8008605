"""Programs that run on a simulated GPU, each in a process of its own.

The simulator reads its settings once and reports at the end. A right program must leave nothing to report under any
seed; a wrong one must be reported under every seed. The ledger is drawn up only where the program gives everything
back itself: libraries leave it to the end of the process.
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

# Where the drivers lie: what a program gets as LD_LIBRARY_PATH.
LIBRARY_PATH = os.environ["SIM_LIBRARY_PATH"]
FOUND = 77


class Programs:
    """What every program begins with, and the seeds that it runs under."""

    def __init__(self, beginning, seeds):
        self.beginning = beginning
        self.seeds = seeds

    def run(self, tmp_path, program, seed=0, **settings):
        """The exit status of a program, and what the simulator reported, or said where the process died."""
        report = tmp_path / f"report-{seed}"
        environment = dict(
            os.environ,
            LD_LIBRARY_PATH=LIBRARY_PATH,
            CUPY_CACHE_DIR=str(tmp_path / "cupy"),
            WARP_CACHE_PATH=str(tmp_path / "warp"),
            SIM_SEED=str(seed),
            SIM_REPORT=str(report),
            SIM_EXIT=str(FOUND),
            **{"SIM_LEDGER": "off", **settings},
        )
        done = subprocess.run(
            [sys.executable, "-c", self.beginning + textwrap.dedent(program)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        text = report.read_text() if report.exists() else done.stderr
        if "Traceback" in done.stderr or done.returncode not in (0, FOUND, -signal.SIGSEGV):
            pytest.fail(done.stderr + (text if report.exists() else ""))
        return done.returncode, text

    def right(self, tmp_path, program, **settings):
        for seed in self.seeds:
            status, report = self.run(tmp_path, program, seed, **settings)
            assert status == 0, report

    def wrong(self, tmp_path, program, *expected, **settings):
        for seed in self.seeds:
            status, report = self.run(tmp_path, program, seed, **settings)
            assert status == FOUND, f"seed {seed}: nothing found\n{report}"
            for text in expected:
                assert text in report, report
