"""`paddock cp` and `paddock port-forward`."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from tests.forks import run_paddock_bytes
from tests.helpers_api import ApiStack

ROOT = Path(__file__).resolve().parents[2]
Cp = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def root(served: ApiStack) -> Path:
    served.apply()
    return served.files.root(served.view.show(served.sandbox()).id)


@pytest.fixture
def cp(served: ApiStack) -> Cp:
    def run(*arguments: object, stdin: bytes = b"", command: str = "cp") -> "subprocess.CompletedProcess[bytes]":
        message = ["--server", f"unix://{served.socket}", command, *map(str, arguments)]
        return run_paddock_bytes(message, environment=os.environ, cwd=ROOT, stdin=stdin, seconds=60)

    return run


def packed(*names: bytes, mode: str = "w") -> bytes:
    """An archive of a file `x`, and of hard links to it by these names."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, encoding="utf-8", errors="surrogateescape") as file:  # type: ignore[call-overload]
        first = tarfile.TarInfo("x")
        first.size = 100_000
        file.addfile(first, io.BytesIO(b"x" * 100_000))
        for name in names:
            link = tarfile.TarInfo(os.fsdecode(name))
            link.type, link.linkname = tarfile.LNKTYPE, "x"
            file.addfile(link)
    return out.getvalue()


def test_gzipped_archives_with_hard_links_are_unpacked(cp: Cp, root: Path) -> None:
    done = cp("-", "quickstart:/workspace", stdin=packed(b"y", b"\xff", mode="w:gz"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert (root / "workspace/y").stat().st_nlink == 3
    assert Path(os.fsdecode(os.fsencode(root) + b"/workspace/\xff")).read_bytes() == b"x" * 100_000
    parts = gzip.compress(packed()[:512]) + gzip.compress(packed()[512:])
    assert cp("-", "quickstart:/tmp", stdin=parts).returncode == 0, "members one after another are one stream"
    damaged = cp("-", "quickstart:/workspace", stdin=b"\x1f\x8bdamaged")
    assert (damaged.returncode, b"damaged gzip" in damaged.stderr) == (2, True), damaged.stderr


def test_names_that_are_not_utf8_are_copied(cp: Cp, root: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff\xfe b")
    (tmp_path / odd).write_text("hello")
    assert cp(tmp_path / odd, "quickstart:/workspace/").returncode == 0
    assert (root / "workspace" / odd).read_text() == "hello"
    done = cp(f"quickstart:/workspace/{odd}", tmp_path / "back")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "back").read_text() == "hello"


def test_copy_both_ways_without_a_bar_in_pipes(cp: Cp, root: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello")
    done = cp(tmp_path / "a", "quickstart:/workspace/b")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (root / "workspace/b").read_text() == "hello"
    assert cp("sandbox/quickstart:/workspace", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "b").read_text() == "hello"


def test_archives_on_stdin_and_stdout(cp: Cp, root: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        info = tarfile.TarInfo("d/f")
        info.size = 2
        file.addfile(info, io.BytesIO(b"hi"))
    assert cp("-", "quickstart:/workspace", stdin=out.getvalue()).returncode == 0
    assert (root / "workspace/d/f").read_text() == "hi"
    back = cp("quickstart:/workspace/d", "-").stdout
    with tarfile.open(fileobj=io.BytesIO(back)) as read:
        assert sorted(read.getnames()) == ["d", "d/f"]


def test_skipped_entries_are_reported_and_fail(cp: Cp, root: Path, tmp_path: Path) -> None:
    (root / "workspace/abs").symlink_to("/etc/passwd")
    done = cp("quickstart:/workspace", tmp_path / "out")
    assert done.returncode == 1
    assert b"warning: out/abs was left out" in done.stderr or b"leads out of the copied tree" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_pull_is_bounded(cp: Cp, root: Path, tmp_path: Path) -> None:
    (root / "workspace/much").write_bytes(b"x" * 5000)
    done = cp("quickstart:/workspace", tmp_path, "--max-size", "4k")
    assert (done.returncode, b"more than 4000 bytes" in done.stderr, b"--max-size" in done.stderr) == (1, True, True)
    assert cp("quickstart:/workspace", tmp_path, "--max-size", "4Q").returncode == 2
    assert cp("quickstart:/workspace", tmp_path, "--max-entries", "1").returncode == 1
    assert cp("quickstart:/workspace", tmp_path, "--max-size", "8Ki", "--max-entries", "2").returncode == 0


def test_no_archive_on_a_terminal(served: ApiStack, root: Path) -> None:
    arguments = ["-m", "controller", "--server", f"unix://{served.socket}", "cp", "quickstart:/workspace", "-"]
    terminal = pexpect.spawn(sys.executable, arguments, cwd=str(ROOT), timeout=60)
    terminal.expect("stdout is a terminal")
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 2


def test_mistakes_are_reported(cp: Cp, root: Path, tmp_path: Path) -> None:
    for message, answer in (
        (("a", "b"), b"NAME:PATH"),
        (("quickstart:/a", "quickstart:/b"), b"NAME:PATH"),
        (("quickstart:", "b"), b"has no path"),
        (("quickstart:/none", tmp_path), b"no such file or folder"),
        (("none:/x", tmp_path), b"none"),
    ):
        done = cp(*message)
        assert done.returncode in (1, 2)
        assert answer in done.stderr, done.stderr
    for reported in (("quickstart", "x:y"), ("quickstart", "0"), ("none", "80")):
        assert cp(*reported, command="port-forward").returncode in (1, 2)
