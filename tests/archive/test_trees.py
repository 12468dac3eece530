"""Packing and unpacking of trees: byte for byte the same, and nothing outside of the folder."""

import hashlib
import io
import os
import stat
import tarfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.archive import unpack as unpacking
from controller.archive.names import Unsafe
from controller.archive.pack import pack, read_out
from controller.archive.tar import Reader, TarError
from controller.archive.unpack import AtomicFile, LimitExceeded, Rules, Unpacked, unpack
from tests.examples import examples

NAME = st.text(min_size=1, max_size=40).filter(
    lambda each: not set(each) & {"/", "\0"} and each not in (".", "..") and len(each.encode("utf-8", "replace")) < 250
)
UTF8 = NAME.filter(lambda each: each.encode("utf-8", "ignore").decode() == each)
TREE = st.recursive(st.binary(max_size=5000), lambda below: st.dictionaries(UTF8, below, max_size=4), max_leaves=8)


Tree = bytes | dict[str, object]


def packed(path: Path, top: bytes) -> bytes:
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return b"".join(read_out(pack(parent, os.fsencode(path.name), top)))
    finally:
        os.close(parent)


def unpacked(data: bytes, into: Path, rules: Rules = Rules()) -> Unpacked:
    top = os.open(into, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return unpack(Reader(io.BytesIO(data).read), top, rules)
    finally:
        os.close(top)


def make(path: Path, tree: Tree) -> None:
    if isinstance(tree, bytes):
        path.write_bytes(tree)
        return
    path.mkdir()
    for name, below in tree.items():
        make(path / name, below)  # type: ignore[arg-type]


def observe_now(path: Path) -> Tree:
    if path.is_dir():
        return {entry.name: observe_now(entry) for entry in path.iterdir()}
    return path.read_bytes()


@settings(max_examples=examples(40))
@given(tree=TREE)
def test_any_tree_comes_out_as_it_went_in(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tree")
    make(folder / "in", tree)
    unpacked(packed(folder / "in", b"out"), folder)
    assert observe_now(folder / "out") == tree


def test_modes_times_and_links_are_kept_and_setuid_is_not(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "locked").mkdir(parents=True)
    (source / "locked" / "file").write_text("x")
    (source / "locked").chmod(0o555)
    (source / "run").write_text("#!/bin/sh")
    (source / "run").chmod(0o4750)
    os.utime(source / "run", (1_600_000_000, 1_600_000_000))
    (source / "to").symlink_to("run")
    unpacked(packed(source, b"out"), tmp_path)
    out = tmp_path / "out"
    assert stat.S_IMODE((out / "locked").stat().st_mode) == 0o555
    assert (out / "locked" / "file").read_text() == "x"
    assert stat.S_IMODE((out / "run").stat().st_mode) == 0o750
    assert (out / "run").stat().st_mtime == 1_600_000_000
    assert os.readlink(out / "to") == "run"


def test_special_files_are_skipped_unopened(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    os.mkfifo(source / "fifo")
    (source / "file").write_text("x")
    done = unpacked(packed(source, b"out"), tmp_path)
    assert observe_now(tmp_path / "out") == {"file": b"x"}
    assert done.left_out == ["out/fifo was left out: it is a socket, a FIFO or a device"]


def test_a_shrinking_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * (1 << 20))
    parent = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    stream = read_out(pack(parent, b"in", b"out"))
    data = next(stream)
    os.truncate(tmp_path / "in", 10)
    data += b"".join(stream)
    os.close(parent)
    done = unpacked(data, tmp_path)
    assert (tmp_path / "out").stat().st_size == 1 << 20
    assert done.left_out == ["out changed during the read"]


def archive(*members: tuple[str, bytes, str | bytes]) -> bytes:
    """Members as (name, type, data or link)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name, type_, what in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = type_, 0o755
            data = what if isinstance(what, bytes) else b""
            info.size, info.linkname = len(data), "" if isinstance(what, bytes) else what
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE = [
    (archive(("../outside", FILE, b"x")), "leads out of the folder"),
    (archive(("a/../../outside", FILE, b"x")), "leads out of the folder"),
    (archive(("/outside", FILE, b"x")), "absolute"),
    (archive(("a", HARD, "/etc/passwd")), "hard link"),
    (archive(("a", FILE, b"x"), ("b", HARD, "a")), "hard link"),
    (archive(("null", tarfile.CHRTYPE, "")), "device"),
    (archive(("disk", tarfile.BLKTYPE, "")), "device"),
    (archive(("pipe", tarfile.FIFOTYPE, "")), "FIFO"),
    (archive(("link", LINK, "."), ("link/x", FILE, b"x")), "symlink"),
    (archive(("d", FOLDER, ""), ("d/l", LINK, ".."), ("d/l/x", FILE, b"x")), "symlink"),
]


@pytest.mark.parametrize(("data", "words"), HOSTILE)
@pytest.mark.parametrize("below", [None, 0, 1])
def test_a_hostile_archive_writes_nothing_outside(tmp_path: Path, data: bytes, words: str, below: int | None) -> None:
    into = tmp_path / "into"
    into.mkdir()
    if below == 1:  # none of their links stays in what is copied: in place of one, a folder is made
        with suppress(Unsafe):
            unpacked(data, into, Rules(below))
        assert [path.name for path in tmp_path.iterdir()] == ["into"]
        return
    with pytest.raises(Unsafe, match=words):
        unpacked(data, into, Rules(links_below=below))
    assert [path.name for path in tmp_path.iterdir()] == ["into"]


def test_hard_links_below_the_folder_are_made(tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    data = archive(("d/a", FILE, b"one"), ("d/b", HARD, "d/a"), ("c", HARD, "./d/b"), ("c", HARD, "d/a"))
    done = unpacked(data, into, Rules(hard_links=True))
    assert (done.files, done.bytes, os.stat(into / "d/a").st_nlink) == (4, 3, 3)
    assert sorted(path.name for path in into.rglob("*")) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "link", "d", "."])
def test_hard_links_to_anything_else_are_refused(tmp_path: Path, target: str) -> None:
    into = tmp_path / "into"
    into.mkdir()
    (tmp_path / "outside").write_text("x")
    (into / "link").symlink_to("../outside")
    (into / "d").mkdir()
    with pytest.raises(Unsafe):
        unpacked(archive(("b", HARD, target)), into, Rules(hard_links=True))
    assert not (into / "b").exists()


@pytest.mark.parametrize("target", ["/etc", "..", "../into/../../x", "a/../../.."])
def test_links_that_lead_out_are_skipped(tmp_path: Path, target: str) -> None:
    into = tmp_path / "into"
    into.mkdir()
    done = unpacked(archive(("l", LINK, target), ("l/x", FILE, b"x"), ("after", FILE, b"y")), into)
    assert not (into / "l").is_symlink()
    assert (into / "l" / "x").read_bytes() == b"x"  # the name was free: a folder of its own
    assert (into / "after").read_bytes() == b"y"
    assert done.left_out_count == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["into"]


def test_an_existing_link_is_replaced_and_never_entered(tmp_path: Path) -> None:
    into, outside = tmp_path / "into", tmp_path / "outside"
    into.mkdir()
    outside.mkdir()
    (outside / "victim").write_text("safe")
    (into / "file").symlink_to(outside / "victim")
    (into / "folder").symlink_to(outside)
    unpacked(archive(("file", FILE, b"new")), into)
    assert (outside / "victim").read_text() == "safe"
    assert (into / "file").read_text() == "new"
    for data in (archive(("folder/victim", FILE, b"new")), archive(("folder", FOLDER, ""))):
        with pytest.raises(Unsafe, match="symlink"):
            unpacked(data, into)
    assert (outside / "victim").read_text() == "safe"


def test_a_folder_swapped_for_a_link_is_not_followed(tmp_path: Path) -> None:
    """A process in the sandbox swaps the folder all the time during the unpacking."""
    into, outside = tmp_path / "into", tmp_path / "outside"
    (into / "d").mkdir(parents=True)
    outside.mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with suppress(OSError):  # the other made the folder meanwhile
                os.rename(into / "d", into / "aside")
            with suppress(OSError):
                os.symlink(outside, into / "d")
                os.unlink(into / "d")
            with suppress(OSError):
                os.rename(into / "aside", into / "d")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(300):
            members = archive(("d", FOLDER, ""), (f"d/{number}", FILE, b"x"))
            try:
                unpacked(members, into)
            except (Unsafe, OSError):
                continue
    finally:
        stop.set()
        swapping.join()
    assert list(outside.iterdir()) == []


def test_bounds(tmp_path: Path) -> None:
    two = archive(("a", FILE, b"x" * 600), ("b", FILE, b"x" * 600))
    with pytest.raises(LimitExceeded, match="1000 bytes"):
        unpacked(two, tmp_path, Rules(max_bytes=1000))
    with pytest.raises(LimitExceeded, match="more than 1 entries"):
        unpacked(two, tmp_path, Rules(max_entries=1))


def test_holes_count_nothing_and_stay_holes(tmp_path: Path) -> None:
    source = tmp_path / "in"
    with source.open("wb") as file:
        file.truncate(64 << 20)
        file.seek((32 << 20) + 7)
        file.write(b"data")
    done = unpacked(packed(source, b"out"), tmp_path, Rules(max_bytes=8192))
    assert (done.bytes, 0 < done.written <= 8192) == (64 << 20, True)
    assert (tmp_path / "out").stat().st_size == 64 << 20
    assert (tmp_path / "out").stat().st_blocks * 512 < 1 << 20
    with source.open("rb") as first, (tmp_path / "out").open("rb") as second:
        assert hashlib.file_digest(first, "sha256").digest() == hashlib.file_digest(second, "sha256").digest()


EXTENTS = st.lists(st.tuples(st.integers(0, 20_000), st.binary(max_size=9000)), max_size=6)


@settings(max_examples=examples(120))
@given(extents=EXTENTS, tail=st.integers(0, 20_000), size=st.integers(1, 70_000))
def test_any_sparse_file_comes_out_as_it_was(
    extents: list[tuple[int, bytes]], tail: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sparse")
    with (folder / "in").open("wb") as file:
        for gap, data in extents:
            file.seek(gap, os.SEEK_CUR)
            file.write(data)
        file.truncate(file.tell() + tail)
    stream = io.BytesIO(packed(folder / "in", b"out"))
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        unpack(Reader(lambda count: stream.read(min(count, size))), top)
    finally:
        os.close(top)
    assert (folder / "out").read_bytes() == (folder / "in").read_bytes()


def test_a_shrinking_sparse_file_is_reported(tmp_path: Path) -> None:
    with (tmp_path / "in").open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(8 << 20)
    parent = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    stream = read_out(pack(parent, b"in", b"out"))
    data = next(stream) + next(stream)
    os.truncate(tmp_path / "in", 10)
    data += b"".join(stream)
    os.close(parent)
    assert unpacked(data, tmp_path).left_out == ["out changed during the read"]
    assert (tmp_path / "out").stat().st_size == 8 << 20


def test_a_tree_too_deep_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "in"
    for _ in range(140):
        path = path / "d"
    path.mkdir(parents=True)
    done = unpacked(packed(tmp_path / "in", b"out"), tmp_path)
    assert "deeper than 128" in done.left_out[0]


@pytest.mark.parametrize("nameless", [True, False])
def test_an_unfinished_file_leaves_nothing(tmp_path: Path, nameless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not nameless:  # as on a file system without O_TMPFILE
        monkeypatch.setattr(unpacking, "_NAMELESS", os.O_WRONLY | os.O_DIRECTORY)
    (tmp_path / "name").write_text("before")
    parent = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)

    def broken() -> None:
        with AtomicFile(b"name", parent) as new:
            new.write(b"half")
            raise TarError("cut")

    with pytest.raises(TarError):
        broken()
    assert observe_now(tmp_path) == {"name": b"before"}
    with AtomicFile(b"name", parent) as new:
        new.write(b"whole")
        new.finish(0o640)
    os.close(parent)
    assert observe_now(tmp_path) == {"name": b"whole"}
    assert stat.S_IMODE((tmp_path / "name").stat().st_mode) == 0o640
