"""Debians in folders, and how a command runs in one: those of specs/platforms, specs/release/bare and specs/cross.

A system of this machine's own kind is made by debootstrap, and packages may be installed there. One of another
processor is what its packages contain, unpacked by mmdebstrap in a minute; QEMU runs its programs, for which the
kernel is told of it (binfmt_misc), and nothing is configured there, as QEMU would take half an hour. A command enters
in namespaces of its own, so that nothing stays mounted; `rm -rf` of the folder undoes a system. All of it needs root.
Must not know: what a system is for, or what runs there.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import debian

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"unshare": "util-linux", "chroot": "coreutils"}  # those that are not called as the program is
BINFMT = Path("/proc/sys/fs/binfmt_misc")
# Debian's name of a processor: the kernel's name, and the first bytes of its programs, with those bits that count.
EMULATED = {
    "arm64": (
        "aarch64",
        rb"\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
        rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
    )
}
# Of addresses, for a command where QEMU runs it: it writes down each page that a program reserves, and the simulators
# reserve half a terabyte where no limit is lower.
KILOBYTES = 16 << 20
# What any program there wants: a shell, its tools, users. mmdebstrap adds what these need, but not what is essential.
SMALLEST = ["base-files", "base-passwd", "dash", "coreutils", "libc-bin", "grep", "sed"]
ENVIRONMENT = "PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive"


def fail(text):
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


def say(text):
    print(f"{Path(sys.argv[0]).name}: {text}", flush=True)


def check(root, *programs):
    """That systems can be made here, and that this one lies outside of the repository."""
    if ROOT == root or ROOT in root.parents:
        fail(f"the system's folder is {root}; one outside of the repository is expected")
    if os.geteuid() != 0:
        fail("only root can make a system and enter it")
    for program in ("unshare", "chroot", *programs):
        if shutil.which(program) is None:
            fail(f"there is no {program} here (Debian's package: {PACKAGES.get(program, program)})")


def _make(root, command, contents):
    """Runs what makes a system, unless the folder has one of these contents."""
    made = root / ".moonferry-made"
    if made.exists() and made.read_text() == contents:
        return
    say(f"making {root}")
    shutil.rmtree(root, ignore_errors=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print("\n".join(done.stdout.splitlines()[-20:]))
        fail(f"{command[0]} could not make it")
    made.write_text(contents)


def make(root, suite, packages=()):
    """A system of this machine's kind, from the mirror that debootstrap takes by itself."""
    check(root, "debootstrap")
    include = [f"--include={','.join(packages)}"] if packages else []
    _make(root, ["debootstrap", "--variant=minbase", *include, suite, str(root)], f"{suite} {' '.join(packages)}\n")


def unpack(root, suite, processor, packages):
    """A system of another processor, from the mirror of this machine's packages."""
    check(root, "mmdebstrap")
    emulate(processor)
    names = [*SMALLEST, *packages]
    options = [f"--include={','.join(names)}", "--variant=extract", f"--arch={processor}", "--skip=check/qemu"]
    # A mirror may be older than its lists allow, and is then still this Debian.
    options += ['--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=APT::Install-Recommends "false"']
    source = f"deb [signed-by={debian.KEYS}] {debian.mirror()} {suite} main"
    _make(root, ["mmdebstrap", *options, suite, str(root), source], f"{suite} {processor} {' '.join(names)}\n")
    for folder in ("dev", "proc", "tmp"):
        (root / folder).mkdir(exist_ok=True)
    # What configuring ca-certificates would write, without which pip does not start.
    bundle, parts = root / "etc/ssl/certs/ca-certificates.crt", (root / "usr/share/ca-certificates").rglob("*.crt")
    if texts := [part.read_text() for part in sorted(parts)]:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_text("".join(texts))


def emulate(processor):
    """Has the kernel give that processor's programs to QEMU, which it opens now: a system needs no copy of it."""
    name, magic, mask = EMULATED[processor]
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], check=True)
    entry = BINFMT / f"qemu-{name}"
    if entry.exists() and "F" in entry.read_text().partition("flags:")[2].split("\n")[0]:
        return
    if entry.exists():
        entry.write_text("-1")
    program = shutil.which(f"qemu-{name}-static") or fail(
        f"there is no qemu-{name}-static here (Debian's package: qemu-user-static)"
    )
    (BINFMT / "register").write_bytes(b":qemu-%b:M::%b:%b:%b:OPF" % (name.encode(), magic, mask, program.encode()))


def foreign(root):
    """Whether a system is of another processor."""
    made = root / ".moonferry-made"
    return made.exists() and made.read_text().split()[1:2] in [[name] for name in EMULATED]


def words(root, shown=(), writable=(), network=True):
    """What stands before the words of a command that runs in the system, with /proc and /dev for as long as it runs,
    and with these folders of this machine's at their own paths. The caller's environment stays."""
    steps = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
    for folder in (*shown, *writable):
        option = "-o ro" if folder in shown else ""
        steps.append(f"mkdir -p {root}{folder} && mount --bind {option} {folder} {root}{folder}")
    if foreign(root):
        steps.append(f"ulimit -v {KILOBYTES}")
    steps.append(f'exec chroot {root} "$@"')
    apart = ["unshare", "--mount", *([] if network else ["--net"]), "--propagation", "private"]
    return [*apart, "sh", "-ec", " && ".join(steps), "sh"]


def entering(root, command, **options):
    """What runs a shell command in the system, without the caller's environment."""
    return [*words(root, **options), "/usr/bin/env", "-i", *shlex.split(ENVIRONMENT), "sh", "-ec", command]


def inside(root, command, **options):
    """Runs it, and waits; options are subprocess.run's."""
    return subprocess.run(entering(root, command), **options)
