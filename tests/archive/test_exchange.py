"""Layers of images as an engine saves them: read into archives, and packed for an engine to unpack."""

import io
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.archive.names import Unsafe
from controller.archive.state.bounds import BoundExceeded, Bounds, Report
from controller.archive.state.exchange import from_layer
from controller.archive.state.restore import Rules, packed, restore, verify
from controller.archive.state.save import OPAQUE, save
from controller.archive.tar import TarError
from controller.engine.archiver.worker import carry_out

LONG = "d" * 90 + "/" + "f" * 90


def layer(*members: tuple[str, Mapping[str, Any], bytes], mode: str = "w") -> io.BytesIO:
    """Return a layer with these entries: name, fields, data."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode=mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for name, fields, data in members:
            member = tarfile.TarInfo(name)
            for field, value in {"uid": os.geteuid(), "gid": os.getegid(), **fields}.items():
                setattr(member, field, value)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return output


_KINDS = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE)
FOLDER, LINK, HARD, FIFO = ({"type": kind} for kind in _KINDS)
CHANGED = (
    ("a/", {**FOLDER, "mode": 0o750, "mtime": 5}, b""),
    ("a/.wh.gone", {}, b""),
    ("a/file", {"mode": 0o640, "mtime": 7, "pax_headers": {"SCHILY.xattr.user.note": "n"}}, b"text"),
    ("a/hard", {**HARD, "linkname": "a/file"}, b""),
    ("a/link", {**LINK, "linkname": "/etc/passwd"}, b""),
    ("a/pipe", FIFO, b""),
    ("replaced/", FOLDER, b""),
    ("replaced/.wh..wh..opq", {}, b""),
    ("dev/", FOLDER, b""),
    ("dev/null", {}, b"of another mount"),
    (f"{'d' * 90}/", FOLDER, b""),
    (LONG, {}, b"long"),
)


def converted(layer_file: io.BytesIO, **options: Any) -> tuple[bytes, Report]:
    output = io.BytesIO()
    report = from_layer(layer_file, output.write, mount_points=[b"dev"], **options)
    return output.getvalue(), report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root marks deletions")
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_layer_is_what_an_overlay_has(tmp_path: Path, mode: str) -> None:
    data, report = converted(layer(*CHANGED, mode=mode))
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        restore(folder, io.BytesIO(data).read, rules=Rules(deletions=True))
    finally:
        os.close(folder)
    file = tmp_path / "a/file"
    assert (file.read_text(), file.stat().st_nlink, file.stat().st_mtime) == ("text", 2, 7)
    assert os.getxattr(file, "user.note") == b"n"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o750
    assert (tmp_path / "a/link").readlink() == Path("/etc/passwd")
    assert stat.S_ISFIFO((tmp_path / "a/pipe").stat().st_mode)
    assert stat.S_ISCHR((tmp_path / "a/gone").lstat().st_mode)
    assert os.listxattr(tmp_path / "replaced") == [OPAQUE]
    assert not (tmp_path / "dev").exists()
    assert (tmp_path / LONG).read_text() == "long"
    assert report.bytes == 8


@pytest.mark.parametrize("name", ["a/.wh.", "a/.wh..", "a/.wh...", ".wh.dev", ".wh."])
def test_a_name_like_a_deletion_breaks_no_restore(name: str) -> None:
    """Code in a sandbox makes such files: each of these would be refused at each restore."""
    data, report = converted(layer(("a/", FOLDER, b""), (name, {}, b""), ("a/file", {}, b"text")))
    verified = verify(io.BytesIO(data).read, rules=Rules(deletions=True, mount_points=[b"dev"]))
    assert verified.entries == 2
    assert [omission.name for omission in report.omissions] == ([name] if name != ".wh.dev" else [])


def test_a_deletion_of_what_is_there_is_omitted() -> None:
    members = [("+a/", FOLDER, b""), ("+a/file", {}, b"text"), (".wh.+a", {}, b""), (".wh.b", {}, b""), ("b", {}, b"b")]
    data, report = converted(layer(*members))
    assert [omission.name for omission in report.omissions] == [".wh.+a"]
    assert verify(io.BytesIO(data).read, rules=Rules(deletions=True)).entries == 4


def test_a_hard_link_to_no_file_is_omitted() -> None:
    members = [("link", {**LINK, "linkname": "x"}, b""), ("second", {**HARD, "linkname": "link"}, b"")]
    data, report = converted(layer(*members, ("third", {**HARD, "linkname": "dev/null"}, b"")))
    assert [omission.name for omission in report.omissions] == ["second", "third"]
    assert verify(io.BytesIO(data).read, rules=Rules(deletions=True)).entries == 1


def image(layer_file: io.BytesIO, manifest: bytes = b'[{"Layers": ["below.tar", "top.tar"]}]') -> io.BytesIO:
    """Return a saved image with that top layer."""
    return layer(
        ("manifest.json", {}, manifest), ("below.tar", {}, b"no layer"), ("top.tar", {}, layer_file.getvalue())
    )


def worked(tmp_path: Path, saved: io.BytesIO, **bounds: float) -> tuple[dict[str, Any], bytes]:
    """Have the worker convert a saved image; return its result, and the archive."""
    (tmp_path / "image.tar").write_bytes(saved.getvalue())
    with (tmp_path / "image.tar").open("rb") as source, (tmp_path / "0.tar").open("w+b") as target:
        part = {"input": source.fileno(), "output": target.fileno(), "mount_points": ["dev"]}
        limits = {"entries": 100, "bytes": 1 << 20, "seconds": 60, **bounds}
        result = carry_out({"operation": "convert", "bounds": limits, "parts": [part]})
    return result, (tmp_path / "0.tar").read_bytes()


def test_a_worker_converts_a_saved_image(tmp_path: Path) -> None:
    result, data = worked(tmp_path, image(layer(*CHANGED)))
    (report,) = result["reports"]
    assert (report["bytes"], report["archive_bytes"]) == (8, len(data))
    assert data == converted(layer(*CHANGED))[0]


@pytest.mark.parametrize(
    ("saved", "bounds", "reason"),
    [
        (image(layer(*CHANGED)), {"entries": 3}, "TooLarge"),
        (image(layer(*CHANGED)), {"bytes": 7}, "TooLarge"),
        (image(layer(*[("file", {}, b"")] * 70)), {"seconds": -1}, "TooLarge"),
        (image(layer(), b"[]"), {}, "Damaged"),
        (image(layer(), b'[{"Layers": []}]'), {}, "Damaged"),
        (image(layer(), b'[{"Layers": ["gone.tar"]}]'), {}, "Damaged"),
        (image(io.BytesIO(b"no layer" * 100)), {}, "Damaged"),
        (image(layer(("file", {"pax_headers": {"SCHILY.xattr.user." + "n" * 300: "v"}}, b""))), {}, "Damaged"),
    ],
)
def test_a_hostile_image_ends_a_conversion(
    saved: io.BytesIO, bounds: dict[str, float], reason: str, tmp_path: Path
) -> None:
    """The last one would be refused at each restore."""
    assert worked(tmp_path, saved, **bounds)[0]["error"] == reason


def test_the_first_pass_counts_entries() -> None:
    output = io.BytesIO()
    with pytest.raises(BoundExceeded):
        from_layer(layer(*[(f"{number}/", FOLDER, b"") for number in range(9)]), output.write, Bounds(entries=5))
    assert not output.getvalue()


def test_what_is_packed_is_the_new_owners() -> None:
    data, _ = converted(layer(*CHANGED))
    report = Report()
    rules = Rules(owner=lambda _uid, _gid: (20000, 20001), deletions=True, modes=0o1777)
    packed_data = b"".join(packed(io.BytesIO(data).read, report, rules=rules))
    with tarfile.open(fileobj=io.BytesIO(packed_data)) as archive:
        members = {member.name: member for member in archive}
    assert {(member.uid, member.gid) for member in members.values()} == {(20000, 20001)}
    assert members["a/hard"].linkname == "a/file"
    assert members["a/file"].pax_headers["SCHILY.xattr.user.note"] == "n"
    assert LONG in members
    assert "a/gone" not in members
    assert [omission.name for omission in report.omissions] == ["a/gone", "replaced"]


def test_holes_are_packed_as_holes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    folder, output = os.open(tmp_path, os.O_RDONLY), io.BytesIO()
    try:
        save(folder, output.write)
    finally:
        os.close(folder)
    packed_data = b"".join(packed(io.BytesIO(output.getvalue()).read, Report()))
    assert len(packed_data) < 1 << 16
    with pytest.raises(BoundExceeded):  # the engine writes zeros
        b"".join(packed(io.BytesIO(output.getvalue()).read, Report(), Bounds(bytes=1 << 20)))
    with tarfile.open(fileobj=io.BytesIO(packed_data)) as archive:
        member = archive.getmember("sparse")
        data = archive.extractfile(member)
        assert data is not None
        assert data.read() == bytes(1 << 20) + b"end"


@pytest.mark.parametrize("name", ["../out", "a/../../out"])
def test_a_layer_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(Unsafe):
        converted(layer((name, {}, b"x")))


def test_a_damaged_layer_is_an_error() -> None:
    with pytest.raises(TarError):
        converted(io.BytesIO(layer(("file", {}, b"x" * 2000)).getvalue()[:1500]))
    with pytest.raises(TarError):
        converted(io.BytesIO(b"no layer" * 100))


def test_bounds_end_a_conversion() -> None:
    with pytest.raises(BoundExceeded):
        converted(layer(*CHANGED), bounds=Bounds(entries=3))
    with pytest.raises(BoundExceeded):
        converted(layer(("file", {}, bytes(2000))), bounds=Bounds(bytes=1000))
