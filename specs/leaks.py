"""What processes leak that hold other people's libraries: AddressSanitizer's reports, read from files.

CPython and what it loads leave memory behind at exit, and every call of ours that Python makes has CPython's frames
below it, so that no list of frames to overlook can tell theirs from ours. Who has allocated tells: a leak is ours if
the first frame that is no allocator's is one of our sources. A block that only a leaked block holds is its holder's.

What CPython allocates for us, an object of whose references one is lost, has no such frame; exact counts find that
(specs/python/test_memory.py). Must not know which programs run.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = re.compile(rf" {re.escape(str(ROOT))}/(?:runtime|bindings|sim)/")
ALLOCATOR = re.compile(r"__interceptor_\w+|_?Py(?:Mem|Object)_\w*(?:[Aa]lloc|Strdup)\w*|mf__alloc\w*")


# GCC 12's libsanitizer takes a block of thread-local storage that begins 16 bytes into a page for one of glibc 2.19's,
# reads where it begins from what lies before it, and dies of that address, in some 1 of 100 processes. Without its own
# list of such blocks it takes them for the loader's, whose memory always counts as reachable.
TLS = "intercept_tls_get_addr=0"


def options(folder):
    """For ASAN_OPTIONS: reports go to the folder, a leak ends no process, and any other error aborts it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return f"detect_leaks=1:exitcode=0:abort_on_error=1:allocator_may_return_null=1:{TLS}:log_path={folder}/report"


def of_ours(report):
    """The direct leaks of a report that a source of ours has allocated, each as its text."""
    found = []
    for leak in re.findall(r"^Direct leak of .*?(?=\n\n|\Z)", report, re.MULTILINE | re.DOTALL):
        frames = re.findall(r"^ +#\d+ 0x\w+ (?:in )?(.*)$", leak, re.MULTILINE)
        callers = [frame for frame in frames if not ALLOCATOR.match(frame)]
        if callers and OURS.search(" " + callers[0].split(" ", 1)[-1]):
            found.append(leak)
    return found


def findings(folder):
    """(file, text) of each report that has an error or a leak of ours."""
    for path in sorted(folder.glob("report.*")):
        text = path.read_text(errors="replace")
        if re.search(r"ERROR: AddressSanitizer|fatal error", text):
            yield path.name, text[-6000:]
        elif leaks := of_ours(text):
            yield path.name, "\n\n".join(leaks)
