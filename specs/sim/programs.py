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
from pathlib import Path

import pytest

LIBRARIES = Path(os.environ.get("SIM_LIBRARIES", "build/sim")).resolve()
FOUND = 77


class Programs:
    """What every program begins with, where its driver lies, and the seeds that it runs under."""

    def __init__(self, beginning, folders, seeds):
        self.beginning = beginning
        self.path = ":".join(str(LIBRARIES / folder) for folder in folders)
        self.seeds = seeds

    def run(self, tmp_path, program, seed=0, **settings):
        """The exit status of a program, and what the simulator reported."""
        report = tmp_path / f"report-{seed}"
        environment = dict(
            os.environ,
            LD_LIBRARY_PATH=self.path,
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
        text = report.read_text() if report.exists() else ""
        if "Traceback" in done.stderr or done.returncode not in (0, FOUND, -signal.SIGSEGV):
            pytest.fail(done.stderr + text)
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
