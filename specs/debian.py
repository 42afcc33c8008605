"""Sources of Debian's packages, from the mirror that this machine's own packages come from.

This machine's own lists of packages are not touched. Must not know: what a source is for.
"""

import subprocess
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror():
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return next(address for address in known if "security" not in address)


def apt(folder, suite):
    """apt-get for the sources of a release, with its lists in that folder."""
    lists = folder / f"lists-{suite}"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    (folder / f"{suite}.list").write_text(f"deb-src [signed-by={KEYS}] {mirror()} {suite} main\n")
    settings = {
        "Dir::Etc::SourceList": folder / f"{suite}.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": lists,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Acquire::Check-Valid-Until": "false",
    }
    return ["apt-get", "-qq", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]


def fetch_original(folder: Path, suite, package):
    """The archive of the package's authors, without Debian's changes; None where the mirror does not give it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = apt(folder, suite)
    quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if subprocess.run([*command, "update"], **quiet).returncode:
        return None
    got = subprocess.run([*command, "source", "--download-only", "--tar-only", "--only-source", package], **quiet)
    archives = sorted(folder.glob(f"{package}_*.orig.tar.*[!c]"))
    return archives[-1] if got.returncode == 0 and archives else None
