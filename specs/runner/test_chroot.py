"""specs/chroot.py: when a system is made anew, and what runs in one."""

import subprocess
import sys
from pathlib import Path

import pytest

SPECS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPECS))
import chroot  # noqa: E402


def test_a_system_is_made_anew_only_for_other_contents(tmp_path):
    root = tmp_path / "system"
    command = ["sh", "-c", f"mkdir {root} && date +%N >{root}/born"]
    times = []
    for contents in ("sid a\n", "sid a\n", "sid a b\n"):
        chroot._make(root, command, contents)
        times.append((root / "born").read_text())
    assert times[0] == times[1] != times[2]


def test_one_that_cannot_be_made_is_made_again(tmp_path, capsys):
    root = tmp_path / "system"
    with pytest.raises(SystemExit, match="sh could not make it"):
        chroot._make(root, ["sh", "-c", f"mkdir {root}; echo no mirror; exit 3"], "sid\n")
    assert "no mirror" in capsys.readouterr().out
    chroot._make(root, ["mkdir", root], "sid\n")
    assert (root / ".moonferry-made").exists()


def test_the_repository_is_no_place_for_a_system():
    with pytest.raises(SystemExit, match="one outside of the repository is expected"):
        chroot.check(SPECS / "system")


def test_what_runs_there_has_folders_of_this_machine_and_no_variable_of_the_caller():
    root = Path("/somewhere")
    words = chroot.entering(root, "echo $HOME", shown=["/a"], writable=["/b"], network=False)
    assert "--net" in words and words[-4:-1] == ["DEBIAN_FRONTEND=noninteractive", "sh", "-ec"]
    assert "/usr/bin/env" in words and "-i" in words
    [steps] = [word for word in words if "exec chroot" in word]
    assert "mount --bind -o ro /a /somewhere/a" in steps and "mount --bind  /b /somewhere/b" in steps


@pytest.mark.parametrize(("contents", "limited"), [("sid arm64 dash\n", True), ("sid dash\n", False)])
def test_what_qemu_runs_may_not_reserve_half_a_terabyte(tmp_path, contents, limited):
    """QEMU writes down each page that is reserved, and took all memory of a machine for the simulators' addresses."""
    (tmp_path / ".moonferry-made").write_text(contents)
    words = chroot.words(tmp_path)
    steps = words[words.index("-ec") + 1].split(" && ")
    limits = [step for step in steps if step.startswith("ulimit")]
    assert limits == ([f"ulimit -v {16 << 20}"] if limited else [])
    asked = [*limits, "ulimit -v"]
    kilobytes = subprocess.run(["sh", "-ec", " && ".join(asked)], capture_output=True, text=True).stdout.strip()
    assert not limited or kilobytes == str(16 << 20)


@pytest.fixture
def unpacked(tmp_path, monkeypatch):
    """Unpacks a system whose packages contain these files, with a stand-in for what makes one."""

    def unpack(files):
        root = tmp_path / "system"
        monkeypatch.setattr(chroot, "check", lambda *words: None)
        monkeypatch.setattr(chroot, "emulate", lambda processor: None)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / ".moonferry-made").parent.mkdir(parents=True, exist_ok=True)
        names = " ".join([*chroot.SMALLEST, "ca-certificates"])
        (root / ".moonferry-made").write_text(f"trixie arm64 {names}\n")
        chroot.unpack(root, "trixie", "arm64", ["ca-certificates"])
        return root

    return unpack


def test_an_unpacked_system_has_the_bundle_of_certificates(unpacked):
    """pip of Debian 13 does not start without it, and only configuring the package would write it."""
    folder = "usr/share/ca-certificates/mozilla/"
    root = unpacked({folder + "b.crt": "second\n", folder + "a.crt": "first\n", folder + "notes": "no certificate\n"})
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text() == "first\nsecond\n"
    assert all((root / name).is_dir() for name in ("dev", "proc", "tmp"))


def test_one_without_certificates_gets_no_empty_bundle(unpacked):
    assert not (unpacked({}) / "etc/ssl/certs/ca-certificates.crt").exists()


def test_a_command_keeps_its_words(tmp_path):
    """A shell is between unshare and chroot; here one that only prints stands for what enters."""
    words = chroot.words(tmp_path)
    stand_in = [*words[: words.index("-ec") + 1][-2:], 'printf "<%s>" "$@"', "sh"]
    done = subprocess.run([*stand_in, "a b", "c'd", "$HOME"], capture_output=True, text=True)
    assert done.stdout == "<a b><c'd><$HOME>"
