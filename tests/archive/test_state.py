"""Saved and restored folders: nothing of them is lost, and a hostile archive creates nothing elsewhere."""

import io
import os
import shutil
import socket
import stat
import struct
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.archive.names import Unsafe
from controller.archive.state import blocks
from controller.archive.state.bounds import BoundExceeded, Bounds, Report
from controller.archive.state.restore import Rules, restore, verify
from controller.archive.state.save import OPAQUE, Content, ForeignLayer, save
from controller.archive.tar import BLOCK, END, TarError
from tests.examples import examples

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")

MIB = 1 << 20
NAMES = st.binary(min_size=1, max_size=120).filter(lambda name: not {0, 47} & {*name} and name not in (b".", b".."))
MODES = st.integers(0, 0o7777)
IDS = st.sampled_from([0, 1000, 2_000_777, 3_000_000_000])
TIMES = st.integers(-(10**18), 4 * 10**18)
ATTRIBUTES = st.dictionaries(st.sampled_from(["user.a", "user.b"]), st.binary(max_size=300), max_size=2)
HOLES = st.lists(st.tuples(st.integers(0, 1 << 32), st.binary(min_size=1, max_size=9)), max_size=3)
FILES = st.tuples(st.just("file"), MODES, IDS, TIMES, ATTRIBUTES, st.one_of(st.binary(max_size=2000), HOLES))
OTHERS = st.tuples(
    st.sampled_from(["fifo", "link"]), MODES, IDS, TIMES, st.just({}), st.binary(min_size=1, max_size=200)
)
LEAVES = st.one_of(FILES, OTHERS)
TREES = st.recursive(
    LEAVES,
    lambda below: st.tuples(
        st.just("folder"), MODES, IDS, TIMES, ATTRIBUTES, st.dictionaries(NAMES, below, max_size=4)
    ),
    max_leaves=10,
)


Tree = tuple[Any, ...]


def create(path: bytes, tree: Tree) -> None:
    kind, mode, owner, time, attributes, content = tree
    if kind == "folder":
        os.mkdir(path)
        for name, below in content.items():
            create(path + b"/" + name, below)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        os.symlink(content.replace(b"\0", b"x"), path)
    else:
        with open(path, "wb") as file:
            for at, data in [(0, content)] if isinstance(content, bytes) else content:
                file.seek(at)
                file.write(data)
    os.chown(path, owner, owner, follow_symlinks=False)
    for key, value in attributes.items():
        os.setxattr(path, key, value)
    if kind != "link":
        os.chmod(path, mode)
    os.utime(path, ns=(time, time), follow_symlinks=False)


def describe(top: Path) -> dict[bytes, Tree]:
    """Return all that a restored folder must have in common with the saved one."""
    first_names: dict[int, bytes] = {}
    described = {}
    root = os.fsencode(top)
    paths = [root, *(os.path.join(at, name) for at, below, files in os.walk(root) for name in (*below, *files))]
    for path in sorted(paths):
        status = os.lstat(path)
        kind = stat.S_IFMT(status.st_mode)
        content: object = None
        if kind == stat.S_IFREG:
            with open(path, "rb") as file:
                content = [(at, size, os.pread(file.fileno(), size, at)) for at, size in data_places(file.fileno())]
        elif kind == stat.S_IFLNK:
            content = os.readlink(path)
        names = () if kind in (stat.S_IFLNK, stat.S_IFIFO) else sorted(os.listxattr(path))
        described[path[len(root) :]] = (
            status.st_mode,
            status.st_uid,
            status.st_gid,
            status.st_mtime_ns,
            status.st_size if kind == stat.S_IFREG else 0,
            content,
            {name: os.getxattr(path, name) for name in names},
            first_names.setdefault(status.st_ino, path[len(root) :]),
        )
    return described


def data_places(file: int) -> Iterator[tuple[int, int]]:
    end, size = 0, os.fstat(file).st_size
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(file, start, os.SEEK_HOLE)
        yield start, end - start


def saved(folder: Path, bounds: Bounds = Bounds(), content: Content = Content()) -> tuple[bytes, Report]:
    stream, fd = io.BytesIO(), os.open(folder, os.O_RDONLY)
    try:
        report = save(fd, stream.write, bounds, content)
    finally:
        os.close(fd)
    return stream.getvalue(), report


def restored(data: bytes, folder: Path, rules: Rules = Rules(), bounds: Bounds = Bounds()) -> Report:
    folder.mkdir(exist_ok=True)
    fd = os.open(folder, os.O_RDONLY)
    try:
        return restore(fd, io.BytesIO(data).read, bounds, rules)
    finally:
        os.close(fd)


@settings(max_examples=examples(60))
@given(tree=TREES, mode=MODES, time=TIMES)
def test_any_folder_returns_exactly(tree: Tree, mode: int, time: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("state")
    create(os.fsencode(folder / "in"), ("folder", mode, 1000, time, {}, {b"x": tree}))
    data, _ = saved(folder / "in")
    restored(data, folder / "out")
    assert describe(folder / "out") == describe(folder / "in")
    shutil.rmtree(folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with one of each kind of file."""
    folder = tmp_path / "in"
    (folder / "deep" / ("n" * 200) / ("m" * 200)).mkdir(parents=True)
    (folder / "deep" / ("n" * 200) / ("m" * 200) / "leaf").write_text("leaf")
    (folder / "file").write_text("data")
    os.link(folder / "file", folder / "deep" / "again")
    os.symlink("/etc/passwd", folder / "link")
    os.mkfifo(folder / "fifo", 0o640)
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 30)
        file.write(b"middle")
    os.setxattr(folder / "file", "user.note", b"v" * 2000)
    os.chown(folder / "file", 2_000_777, 2_000_777)
    (folder / "file").chmod(0o4755)
    for path in (folder / "deep", folder / "sparse"):
        os.utime(path, ns=(1, 1_600_000_000_123_456_789))
    return folder


def test_links_holes_owners_and_setuid_are_kept(source: Path, tmp_path: Path) -> None:
    data, report = saved(source)
    assert len(data) < 100 * 1024
    assert report.uids == {0, 2_000_777}
    restored(data, tmp_path / "out")
    assert describe(tmp_path / "out") == describe(source)
    assert (tmp_path / "out" / "sparse").stat().st_blocks < 100


def test_each_name_of_a_symlink_is_restored(source: Path, tmp_path: Path) -> None:
    os.link(source / "link", source / "second", follow_symlinks=False)
    restored(saved(source)[0], tmp_path / "out")
    assert {(tmp_path / "out" / name).readlink() for name in ("link", "second")} == {Path("/etc/passwd")}


def test_other_programs_read_the_archive(source: Path, tmp_path: Path) -> None:
    data, _ = saved(source)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "--xattrs", "-pxf", "-", "-C", str(tmp_path / "out")], input=data, check=True)
    seconds = {path: (*row[:3], row[3] // 10**9, *row[4:]) for path, row in describe(source).items()}
    assert {path: (*row[:3], row[3] // 10**9, *row[4:]) for path, row in describe(tmp_path / "out").items()} == seconds
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert "deep/again" in archive.getnames()


def test_sockets_and_devices_are_reported(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "in" / "socket"))
        os.mknod(tmp_path / "in" / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        data, report = saved(tmp_path / "in")
    assert sorted(report.omissions) == [("null", "it is a device"), ("socket", "it is a socket")]
    restored(data, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_deletions_of_an_overlay_are_kept_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "replaced").mkdir(parents=True)
    os.setxattr(folder / "replaced", OPAQUE, b"y")
    os.setxattr(folder / "replaced", "trusted.overlay.origin", b"x")
    os.mknod(folder / "gone", stat.S_IFCHR, 0)
    os.link(folder / "gone", folder / "replaced" / "gone")
    data, report = saved(folder, content=Content(deletions=True))
    assert not report.omissions
    with pytest.raises(Unsafe):
        restored(data, tmp_path / "refused")
    restored(data, tmp_path / "out", Rules(deletions=True))
    for name in ("gone", "replaced/gone"):
        status = (tmp_path / "out" / name).lstat()
        assert stat.S_ISCHR(status.st_mode)
        assert status.st_rdev == 0
    assert os.listxattr(tmp_path / "out" / "replaced") == [OPAQUE]
    data, report = saved(folder)
    assert {omission.name for omission in report.omissions} == {"gone", "replaced/gone"}
    os.setxattr(folder / "replaced", "trusted.overlay.redirect", b"/x")
    with pytest.raises(ForeignLayer):
        saved(folder, content=Content(deletions=True))


def test_owners_are_rewritten_also_in_access_lists(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "file").write_text("x")
    os.chown(folder / "file", 2_000_777, 2_000_777)
    entries = [(1, 6, 0xFFFFFFFF), (2, 6, 2_000_777), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(folder / "file", "system.posix_acl_access", value)

    def owner(uid: int, gid: int) -> tuple[int, int]:
        if uid not in (0, 2_000_777):
            raise Unsafe("unexpected")
        return (2_000_888 if uid else 0), (2_000_888 if gid else 0)

    data, _ = saved(folder)
    restored(data, tmp_path / "out", Rules(owner=owner))
    assert (tmp_path / "out" / "file").stat().st_uid == 2_000_888
    rewritten = os.getxattr(tmp_path / "out" / "file", "system.posix_acl_access")
    assert rewritten == value.replace(struct.pack("<I", 2_000_777), struct.pack("<I", 2_000_888))
    os.chown(folder / "file", 5, 5)
    with pytest.raises(Unsafe):
        restored(saved(folder)[0], tmp_path / "refused", Rules(owner=owner))


def test_mount_points_are_neither_saved_nor_restored(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "run" / "secrets").mkdir(parents=True)
    (folder / "run" / "secrets" / "key").write_text("secret")
    data, report = saved(folder, content=Content(mount_points=[b"run/secrets"]))
    assert b"secret" not in data
    assert not report.omission_count
    with pytest.raises(Unsafe, match="mount point"):
        restored(saved(folder)[0], tmp_path / "out", Rules(mount_points=[b"/run/secrets".lstrip(b"/")]))


def test_setuid_is_dropped_on_request(source: Path, tmp_path: Path) -> None:
    restored(saved(source)[0], tmp_path / "out", Rules(modes=0o1777))
    assert stat.S_IMODE((tmp_path / "out" / "file").stat().st_mode) == 0o755


def test_headers_of_empty_files_count_against_the_archive(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(200):
        (source / f"{number}{'n' * 200}").touch()
    with pytest.raises(BoundExceeded) as caught:
        saved(source, Bounds(bytes=1, archive_bytes=200 * 1024))
    assert caught.value.bound == "archive_bytes"


@pytest.mark.parametrize(
    ("bounds", "bound"),
    [
        (Bounds(entries=3), "entries"),
        (Bounds(depth=2), "depth"),
        (Bounds(bytes=5), "bytes"),
        (Bounds(header_bytes=1000), "header_bytes"),
        (Bounds(seconds=-1.0), "seconds"),
    ],
)
def test_bounds_end_a_save_and_a_restore(source: Path, tmp_path: Path, bounds: Bounds, bound: str) -> None:
    (source / "large").write_bytes(bytes(3 * MIB))
    data, _ = saved(source)
    with pytest.raises(BoundExceeded) as caught:
        saved(source, bounds)
    assert caught.value.bound == bound
    with pytest.raises(BoundExceeded) as caught:
        restored(data, tmp_path / "out", bounds=bounds)
    assert caught.value.bound == bound


def entry(name: bytes, flag: bytes = blocks.FILE, data: bytes = b"", **fields: Any) -> bytes:
    """Return one entry of a hostile archive."""
    target, records = fields.get("target", b""), fields.get("records", ())
    owner, size = fields.get("owner", (0, 0)), fields.get("size", len(data))
    head = blocks.header((b"", name), flag, 0o755, owner, size, 0, target, records)
    return head + data + bytes(-len(data) % BLOCK)


def device(name: bytes, number: bytes) -> bytes:
    head = bytearray(entry(name, blocks.DEVICE))
    head[329:337] = number
    head[148:156] = b" " * 8
    return bytes(head[:148]) + b"%06o\0 " % sum(head) + bytes(head[156:])


def attribute(key: bytes, value: bytes = b"y") -> bytes:
    return entry(b"a", blocks.FOLDER, records=((blocks.ATTRIBUTE + key, value),))


def holes(text: bytes, size: int, **fields: Any) -> bytes:
    data = text + bytes(-len(text) % BLOCK)
    return entry(b"GNUSparseFile.0", data=data, records=blocks.sparse_records(b"a", size), **fields)


HOSTILE: dict[str, tuple[bytes, type[Exception]]] = {
    "parent": (entry(b"../a"), Unsafe),
    "parent below": (entry(b"a/../../b"), Unsafe),
    "absolute": (entry(b"/etc/a"), Unsafe),
    "nameless file": (entry(b"."), Unsafe),
    "long part": (entry(b"a" * 300), Unsafe),
    "deep": (entry(b"/".join([b"a"] * 200)), Unsafe),
    "through a symlink": (entry(b"a", blocks.SYMLINK, target=b"../outside") + entry(b"a/b"), Unsafe),
    "below a file": (entry(b"a") + entry(b"a/b"), Unsafe),
    "missing folder": (entry(b"a/b"), Unsafe),
    "hard link out": (entry(b"a", blocks.HARD_LINK, target=b"../outside/secret"), Unsafe),
    "hard link to a symlink": (
        entry(b"a", blocks.SYMLINK, target=b"/etc/passwd") + entry(b"b", blocks.HARD_LINK, target=b"a"),
        Unsafe,
    ),
    "hard link to nothing": (entry(b"a", blocks.HARD_LINK, target=b"b"), Unsafe),
    "hard link to a file of the target": (entry(b"b", blocks.HARD_LINK, target=b"present"), Unsafe),
    "block device": (entry(b"a", b"4"), Unsafe),
    "device": (device(b"a", b"0000001\0"), Unsafe),
    "unknown type": (entry(b"a", b"g"), Unsafe),
    "link with data": (entry(b"a", blocks.SYMLINK, b"data", target=b"b"), Unsafe),
    "redirect": (attribute(b"trusted.overlay.redirect"), Unsafe),
    "metacopy": (attribute(b"trusted.overlay.metacopy"), Unsafe),
    "origin": (attribute(b"trusted.overlay.origin"), Unsafe),
    "opaque with another value": (attribute(b"trusted.overlay.opaque", b"x"), Unsafe),
    "capabilities": (attribute(b"security.capability"), Unsafe),
    "label": (attribute(b"security.selinux"), Unsafe),
    "access list": (attribute(b"system.posix_acl_access", b"12345"), Unsafe),
    "mount point": (entry(b".paddock", blocks.FOLDER), Unsafe),
    "below a mount point": (entry(b".paddock/a"), Unsafe),
    "unexpected owner": (entry(b"a", owner=(5, 5)), Unsafe),
    "unexpected group": (entry(b"a", owner=(0, 5)), Unsafe),
    "owner that means unchanged": (entry(b"a", owner=((1 << 32) - 1, 0)), TarError),
    "unknown record": (entry(b"a", records=((b"hdrcharset", b"x"),)), TarError),
    "huge header": (blocks.block((b"", b"x"), blocks.EXTENDED, 0, (0, 0), 1 << 40, 0, b""), BoundExceeded),
    "damaged header": (
        blocks.block((b"", b"x"), blocks.EXTENDED, 0, (0, 0), 8, 0, b"") + b"99 a=b\n\n".ljust(BLOCK, b"\0"),
        TarError,
    ),
    "two extended headers": (blocks.extended(((b"path", b"a"),)) * 2 + entry(b"a"), Unsafe),
    "holes out of order": (holes(b"2\n10\n1\n5\n1\n..", 20), TarError),
    "holes that overlap": (holes(b"2\n0\n9\n5\n1\n" + b".." * 9, 20), TarError),
    "data after the end": (holes(b"1\n19\n2\n", 20), TarError),
    "many holes": (holes(b"9" * 15 + b"\n", 20), BoundExceeded),
    "map without an end": (holes(b"9" * 600, 20), TarError),
    "map of letters": (holes(b"one\n", 20), TarError),
    "map of another size": (holes(b"1\n0\n5\n", 20), TarError),
    "damaged checksum": (b"x" + entry(b"aa")[1:], TarError),
    "no archive": (b"x" * 2000, TarError),
    "truncated": (entry(b"a", data=b"data")[:600], TarError),
    "huge file": (entry(b"a", size=1 << 50), BoundExceeded),
}


@pytest.mark.parametrize("case", HOSTILE, ids=str)
def test_hostile_archives_are_refused(case: str, tmp_path: Path) -> None:
    data, error = HOSTILE[case]
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "present").write_text("present")
    outside = describe(tmp_path / "outside")

    def owner(uid: int, gid: int) -> tuple[int, int]:
        if (uid, gid) != (0, 0):
            raise Unsafe("an unexpected owner")
        return uid, gid

    rules = Rules(owner=owner, deletions=True, mount_points=[b".paddock"])
    unread = ("through a symlink", "below a file", "missing folder", "access list", "data after the end")
    if case not in unread and "hole" not in case and not case.startswith("map"):
        with pytest.raises(error):
            verify(io.BytesIO(data if case == "truncated" else data + END).read, Bounds(bytes=1 << 30), rules)
    with pytest.raises(error):
        restored(data if case == "truncated" else data + END, tmp_path / "out", rules, Bounds(bytes=1 << 30))
    assert describe(tmp_path / "outside") == outside


@settings(max_examples=examples(150))
@given(at=st.integers(0, 5000), value=st.binary(min_size=1, max_size=8))
def test_a_damaged_archive_fails_cleanly(at: int, value: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    create(
        os.fsencode(folder / "in"),
        ("folder", 0o755, 0, 0, {}, {b"a" * 120: ("file", 0, 0, 0, {"user.a": b"x"}, [(9000, b"x")])}),
    )
    data, _ = saved(folder / "in")
    at %= len(data)
    with suppress(Unsafe, TarError, BoundExceeded, OSError):
        restored(data[:at] + value + data[at + len(value) :], folder / "out", bounds=Bounds(bytes=1 << 20))
    assert sorted(path.name for path in folder.iterdir()) == ["in", "out"]
    shutil.rmtree(folder)


def test_existing_files_are_replaced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / "file").mkdir(parents=True)
    (target / "file").rmdir()
    os.symlink("/etc/hostname", target / "file")
    os.symlink("/etc", target / "deep")
    restored(saved(source)[0], target)
    assert describe(target) == describe(source)
