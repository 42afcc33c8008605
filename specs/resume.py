"""What passed in an earlier run of a long check, so that a run that was cut off, or of which one file failed, goes on.

Responsible for: a file with the counts of each job that passed, and the state of the tree that they hold for: that
state is of all files of the product and of the specs, but of no other job's file. Must not know: what a job runs.
"""

import hashlib
import json
import re
import subprocess
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What a job's result depends on; the programs right in specs/ only start it.
FOLDERS = ["runtime", "bindings", "lua", "sim", "cmake", "CMakeLists.txt", "CMakePresets.json", "examples", "specs"]
NOT_OF_IT = re.compile(r"specs/[^/]+$|specs/(runner|mutation|release|exchange)/|.*\.md$")
A_JOBS = re.compile(r"specs/(?:c/(\w+)_spec\.c|lua/(\w+)_spec\.lua|python/(test_\w+)\.py)$")


def files():
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *FOLDERS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and not NOT_OF_IT.match(name) and (ROOT / name).is_file()]


def job_of(name):
    """Such as c.ring, lua.view or python.test_view; None for a file that several jobs share."""
    if match := A_JOBS.match(name):
        folder, nouns = name.split("/")[1], [noun for noun in match.groups() if noun]
        return f"{folder}.{nouns[0]}"
    return None


class Passed:
    """The counts of jobs that passed, in a file; any thread may add."""

    def __init__(self, path):
        self.path, self.guard = path, threading.Lock()
        self.known = json.loads(path.read_text()) if path.exists() else {}
        self.shared, self.own = hashlib.sha256(), {}
        for name in sorted(files()):
            digest = hashlib.sha256(name.encode() + b"\0" + (ROOT / name).read_bytes()).hexdigest()
            if job := job_of(name):
                self.own[job] = digest
            else:
                self.shared.update(digest.encode())

    def state(self, job):
        return self.shared.hexdigest()[:16] + self.own.get(job, "")[:16]

    def count(self, job):
        """How many passed when this job last passed, in the tree as it is; or None."""
        state, passed = self.known.get(job, (None, None))
        return passed if state == self.state(job) else None

    def add(self, job, passed):
        with self.guard:
            self.known[job] = (self.state(job), passed)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.known, indent=1))
