"""A program on a pseudo-terminal, typed at and read from as a person does it."""

import ctypes
import errno
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest
from programs import PACKAGE

try:
    ctypes.CDLL("libedit.so.2")
    EDITOR = True
except OSError:
    EDITOR = False
edited = pytest.mark.skipif(not EDITOR, reason="libedit is not installed (Debian: libedit2)")
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0-9A-B]?|\x07")


def plain_environment(folder, **settings):
    drop = ("LUA_", "MOONFERRY_", "PYTHON", "XDG_", "VIRTUAL_ENV", "SIM_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    python = {"MOONFERRY_PYTHON": sys.executable, "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**clean, **python, "HOME": str(folder), "TERM": "xterm", **settings}


class Terminal:
    """Everything that was shown is in `shown`, as text without escapes; `expect` goes on from where it matched."""

    def __init__(self, words, env, cwd):
        main, other = pty.openpty()
        self.main = main
        self.shown = ""
        self.at = 0
        self.child = subprocess.Popen(
            words, stdin=other, stdout=other, stderr=other, env=env, cwd=cwd, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(other)

    def _read(self, seconds):
        if not select.select([self.main], [], [], seconds)[0]:
            return True
        try:
            part = os.read(self.main, 65536)
        except OSError as error:
            assert error.errno == errno.EIO, error
            return False
        self.shown += ESCAPES.sub(b"", part).decode(errors="replace").replace("\r", "")
        return bool(part)

    def expect(self, text, seconds=20):
        """Waits for a text; returns what came before it, since the last one."""
        end = time.monotonic() + seconds
        while (found := self.shown.find(text, self.at)) < 0:
            alive = time.monotonic() < end and self._read(0.2)
            assert alive or text in self.shown[self.at :], f"{text!r} did not come; shown:\n{self.shown[self.at :]}"
        before = self.shown[self.at : found]
        self.at = found + len(text)
        return before

    def type(self, keys):
        os.write(self.main, keys if isinstance(keys, bytes) else keys.encode())

    def line(self, text, answer=None, prompt="\n> "):
        """Types a line, and returns what was shown from then to the next prompt."""
        self.type(text + "\r")
        said = self.expect(prompt).partition("\n")[2]
        if answer is not None:
            assert answer in said, said
        return said

    def run(self, text):
        """Types a line that says when it runs, and waits for that; the line itself is shown before it."""
        self.type(f"print 'ready' {text}\r")
        self.expect("\nready\n")

    def sleep(self):
        """Waits until the program waits for something itself."""
        stat = f"/proc/{self.child.pid}/stat"
        end = time.monotonic() + 20
        while open(stat).read().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end, "it does not wait"

    def takes_lines(self):
        """Whether the terminal has the modes that a command expects, and not those of an editor of lines."""
        local = termios.tcgetattr(self.main)[3]
        return local & (termios.ICANON | termios.ECHO) == termios.ICANON | termios.ECHO

    def interrupt(self):
        self.type("\x03")

    def end(self, keys="\x04"):
        """Ends the input and returns the exit status."""
        self.type(keys)
        return self.wait()

    def wait(self, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._read(0.1):
            if self.child.poll() is not None:
                break
        return self.child.wait(max(0.1, end - time.monotonic()))

    def close(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()
        os.close(self.main)
