"""Tar codec: compatible with other tools both ways; damaged input is refused within bounds."""

import io
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.archive.tar import BLOCK, END, FAILED, Entry, Reader, TarError, header, note, padding

PART = st.binary(min_size=1, max_size=255).filter(lambda each: not set(each) & {0, 47} and each not in (b".", b".."))
NAMES = st.lists(PART, min_size=1, max_size=12).map(b"/".join)
ENTRIES = st.lists(
    st.tuples(
        NAMES,
        st.binary(max_size=3000),
        st.integers(0, 0o7777),
        st.integers(-(10**10), 10**11),
    ),
    max_size=6,
)


def pieces_of(data: bytes, size: int) -> Reader:
    """A reader whose source gives at most `size` bytes at a time."""
    source = io.BytesIO(data)
    return Reader(lambda count: source.read(min(count, size)))


def everything(reader: Reader) -> list[tuple[Entry, bytes]]:
    return [(entry, b"".join(reader.pieces())) for entry in reader]


def written(entries: Iterable[tuple[bytes, bytes, int, int]]) -> bytes:
    text = b"".join(
        header(Entry(name, "file", len(data), mode, mtime)) + data + padding(len(data))
        for name, data, mode, mtime in entries
    )
    return text + END


@given(entries=ENTRIES, size=st.integers(1, 2000))
def test_written_entries_are_read_back(entries: list[tuple[bytes, bytes, int, int]], size: int) -> None:
    read = everything(pieces_of(written(entries), size))
    observed = [(entry.name, data, entry.mode, entry.mtime) for entry, data in read]
    assert observed == [(name, data, mode & 0o777, mtime) for name, data, mode, mtime in entries]


@given(entries=ENTRIES)
def test_other_readers_read_our_archives(entries: list[tuple[bytes, bytes, int, int]]) -> None:
    with tarfile.open(fileobj=io.BytesIO(written(entries)), mode="r|") as file:
        for (name, data, mode, mtime), member in zip(entries, file, strict=True):
            opened = file.extractfile(member)
            assert opened is not None
            assert (member.name.encode("utf-8", "surrogateescape"), opened.read()) == (name, data)
            assert (member.mode, member.uid, member.gid, member.uname, member.gname) == (
                mode & 0o777,
                65534,
                65534,
                "",
                "",
            )
            assert int(member.mtime) == mtime


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_others_are_read(tmp_path: Path, format_: int) -> None:
    deep = "d" * 60 + "/" + "e" * 60 + "/f" if format_ == tarfile.USTAR_FORMAT else "d" * 180 + "/f" * 60
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as file:
        for name, type_, data, link in (
            ("folder", tarfile.DIRTYPE, b"", ""),
            (deep, tarfile.REGTYPE, b"x" * 700, ""),
            ("link", tarfile.SYMTYPE, b"", "some/where"),
            ("hard", tarfile.LNKTYPE, b"", "folder"),
            ("fifo", tarfile.FIFOTYPE, b"", ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = type_, len(data), link
            file.addfile(member, io.BytesIO(data))
    read = everything(pieces_of(out.getvalue(), 1000))
    assert [entry.name.rstrip(b"/").decode() for entry, _ in read] == ["folder", deep, "link", "hard", "fifo"]
    assert [entry.type for entry, _ in read] == ["folder", "file", "link", "hardlink", "special"]
    assert read[1][1] == b"x" * 700
    assert read[2][0].target == b"some/where"


def test_archives_of_gnu_tar_are_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ("n" * 200)).write_bytes(b"long")
    (tmp_path / "in" / "to").symlink_to("x" * 150)
    output = subprocess.run(["tar", "-cf", "-", "-C", tmp_path, "in"], capture_output=True, check=True).stdout
    read = {entry.name: (entry, data) for entry, data in everything(pieces_of(output, 10_000))}
    assert read[b"in/" + b"n" * 200][1] == b"long"
    assert read[b"in/to"][0].target == b"x" * 150


def test_numbers_too_large_for_octal_digits() -> None:
    for size in (0o77777777777, 0o100000000000, 1 << 40):
        source = io.BytesIO(header(Entry(b"big", size=size)))
        assert next(iter(Reader(source.read))).size == size
    gnu = bytearray(header(Entry(b"big")))
    gnu[124:136] = b"\x80" + (1 << 40).to_bytes(11, "big")
    gnu[148:156] = b"%06o\0 " % (sum(gnu[:148]) + 256 + sum(gnu[156:512]))
    assert next(iter(Reader(io.BytesIO(bytes(gnu)).read))).size == 1 << 40


@given(cut=st.integers(0, 3 * BLOCK - 1))
def test_a_truncated_stream_is_an_error(cut: int) -> None:
    content = written([(b"name", b"x" * 600, 0o644, 0)])
    with pytest.raises(TarError, match=r"ends|truncated"):
        everything(pieces_of(content[:cut], 100))


@given(data=st.binary(max_size=2000))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(TarError):
        everything(pieces_of(b"noise" + data + bytes(BLOCK), 100))


def extended(data: bytes, flag: bytes = b"x", size: int | None = None) -> bytes:
    created = bytearray(header(Entry(b"pax", size=len(data) if size is None else size))[-BLOCK:])
    created[156:157] = flag
    created[148:156] = b"%06o\0 " % (sum(created[:148]) + 256 + sum(created[156:512]))
    return bytes(created) + data + padding(len(data))


@pytest.mark.parametrize(
    "hostile",
    [
        extended(b"", size=1 << 33),
        extended(b"99 path=x\n"),
        extended(b"path=x\n"),
        extended(b"0 path=x\n"),
        extended(b"12 size=-99\n") + header(Entry(b"a")),
        extended(b"13 size=none\n") + header(Entry(b"a")),
        extended(b"21 GNU.sparse.major=1\n"[:21] + b"\n") + header(Entry(b"a")),
        extended(b"x", flag=b"S"),
        header(Entry(b"a", size=5000)),
    ],
)
def test_a_hostile_header_is_refused_within_bounds(hostile: bytes) -> None:
    requested: list[int] = []
    source = io.BytesIO(hostile)

    def read(count: int) -> bytes:
        requested.append(count)
        return source.read(count)

    with pytest.raises(TarError):
        everything(Reader(read))
    assert max(requested) <= 1 << 18


def test_other_readers_skip_notes() -> None:
    stream = note(FAILED, b"it went wrong") + written([(b"a", b"1", 0o600, 0)])
    first, second = everything(pieces_of(stream, 64))
    assert (first[0].type, first[0].name, first[0].target) == ("note", FAILED, b"it went wrong")
    assert second[1] == b"1"
    with tarfile.open(fileobj=io.BytesIO(stream), mode="r|") as file:
        assert [member.name for member in file] == ["a"]
