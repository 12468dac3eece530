"""Snapshots as one archive, the way between hosts: a tar with an OCI layout, one blob for each part.

The archive of others is believed nothing of: each blob must have the hash that names it, the parts are read to their
end before they are stored, and setuid bits and owners that the source did not have are dropped or refused.
"""

import hashlib
import json
import math
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from controller.archive.names import Unsafe, parts_of
from controller.archive.state.bounds import BoundExceeded, Bounds, Report
from controller.archive.state.restore import Rules, verify
from controller.archive.tar import END, Entry, Reader, TarError, header, padding
from controller.engine.archiver.worker import Owners
from controller.engine.snapshots.folder import RESERVE_BYTES, SnapshotFolder
from controller.kinds.runtime.snapshot import VERSION, SnapshotContent, SnapshotPart
from controller.ports.snapshots import SnapshotError

ARTIFACT = "application/vnd.paddock.snapshot.v1"
_PART = ARTIFACT + ".{}.tar"
_IMAGE = ARTIFACT + ".image.tar"
_CONFIG = ARTIFACT + "+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYOUT = b'{"imageLayoutVersion": "1.0.0"}'
_PIECE_BYTES = 1 << 20
_TEXT_BYTES = 1 << 20  # of a manifest, and of the description of a snapshot
_BLOBS = 256
_BLOB = re.compile(r"blobs/sha256/([0-9a-f]{64})\Z")
_NO_SETUID = 0o1777
_VERIFY_SECONDS = 600.0
_LAYERS = {"root": "root", "tmpfs": "tmpfs", "volume": "volume"}
_LETTERS, _PATH_LETTERS, _OMITTED, _ID_MAX, _COUNT_MAX = 1024, 4096, 100, (1 << 32) - 2, 1 << 40
_CONTENT: TypeAdapter[SnapshotContent] = TypeAdapter(SnapshotContent)
# Where an image's archive names images, by which the engine would replace others of this host.
_NAMING = (b"manifest.json", b"repositories", b"index.json")


def export(folder: SnapshotFolder, content: SnapshotContent, image: Path | None) -> Iterator[bytes]:
    """Yield the archive of a snapshot; `image` is its saved image. Raises OSError."""
    blobs: list[tuple[dict[str, Any], Path | bytes]] = []
    description = asdict(replace(content, uid="", source_uid="", imported=False))
    text = json.dumps(description).encode()
    config = _described(_CONFIG, text)
    blobs.append((config, text))
    for part in content.parts:
        path = folder.path(content.uid) / part.file
        blobs.append((_described(_PART.format(_LAYERS[part.kind]), path), path))
    if image is not None:
        blobs.append((_described(_IMAGE, image), image))
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "artifactType": ARTIFACT,
            "config": config,
            "layers": [description for description, _ in blobs[1:]],
        }
    ).encode()
    index = json.dumps(
        {"schemaVersion": 2, "manifests": [{**_described(_MANIFEST, manifest), "artifactType": ARTIFACT}]}
    ).encode()
    yield from _file("oci-layout", _LAYOUT)
    yield from _file("index.json", index)
    yield from _file(_blob_name(_described(_MANIFEST, manifest)), manifest)
    names = set()
    for described, source in blobs:
        if (name := _blob_name(described)) not in names:
            names.add(name)
            yield from _file(name, source)
    yield END


def take_in(
    folder: SnapshotFolder,
    uid: str,
    namespace: str,
    name: str,
    pieces: Iterator[bytes],
    bytes_max: int,
    load: Callable[[str, str, Path | None], None],
) -> SnapshotContent:
    """Store an exported snapshot as another object's.

    `load` gets the name and id of its image, and the image's archive if there is one; it refuses one that may not be.

    Raises SnapshotError, OSError: the caller removes what was stored.
    """
    place = folder.begin(uid, None)
    try:
        texts = _stored_blobs(Reader(_reading(pieces)), place, bytes_max)
        content, image = _content(texts, place)
        reports = [_verify(place / part.file, content, part) for part in content.parts]
        if image is not None:
            check_image(image)
        load(content.image, content.image_id, image)
    except (TarError, Unsafe, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, TarError | Unsafe) else "its description can't be read"
        raise SnapshotError("Damaged", f"the archive is no snapshot of Paddock, or damaged: {reason}") from error
    except BoundExceeded as error:
        raise SnapshotError("TooLarge", f"the archive: {error}") from error
    part_files = {part.file for part in content.parts}
    for path in place.iterdir():
        if path.name not in part_files and path.name != "capture.json":
            path.unlink()
    parts = tuple(
        replace(part, entries=report.entries - 1, data_bytes=report.bytes)
        for part, report in zip(content.parts, reports, strict=True)
    )
    content = replace(content, uid=uid, namespace=namespace, name=name, imported=True, parts=parts)
    folder.finish(content)
    return content


def _described(media_type: str, source: Path | bytes) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(source):
        digest.update(piece)
        size += len(piece)
    return {"mediaType": media_type, "digest": f"sha256:{digest.hexdigest()}", "size": size}


def _pieces(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _file(name: str, source: Path | bytes) -> Iterator[bytes]:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    yield header(Entry(name.encode(), "file", size))
    yield from _pieces(source)
    yield padding(size)


def _blob_name(described: Mapping[str, Any]) -> str:
    return "blobs/sha256/" + str(described["digest"]).removeprefix("sha256:")


def _reading(pieces: Iterator[bytes]) -> Callable[[int], bytes]:
    """Return a reader of at most n bytes over pieces of any size."""
    remainder = b""

    def read(count: int) -> bytes:
        nonlocal remainder
        while not remainder:
            piece = next(pieces, None)
            if piece is None:
                return b""
            remainder = piece
        data, remainder = remainder[:count], remainder[count:]
        return data

    return read


def _stored_blobs(reader: Reader, place: Path, bytes_max: int) -> dict[str, bytes]:
    """Store each blob under its hash; return the small files by name. Raises TarError, Unsafe, SnapshotError."""
    texts: dict[str, bytes] = {}
    total, count = 0, 0
    for entry in reader:
        name, count = entry.name.decode("utf-8", "replace"), count + 1
        if entry.type != "file" or count > _BLOBS:
            raise Unsafe("it has entries that no export has")
        total += entry.size
        if total > bytes_max:
            raise SnapshotError("TooLarge", f"the archive has more than {bytes_max} bytes, the limit of an import")
        if name in ("oci-layout", "index.json"):
            if entry.size > _TEXT_BYTES:
                raise Unsafe(f"{name} is too large")
            texts[name] = b"".join(reader.pieces())
            continue
        blob = _BLOB.match(name)
        if blob is None:
            raise Unsafe("it has files that no export has")
        if _store(reader, place / blob[1]) != blob[1]:
            raise TarError("a blob does not have the hash that names it")
    if texts.get("oci-layout") is None or "index.json" not in texts:
        raise TarError("it has no OCI layout")
    return texts


def _store(reader: Reader, path: Path) -> str:
    digest = hashlib.sha256()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as output:
        for count, piece in enumerate(reader.pieces()):
            if not count & 63:
                check_room(path.parent)
            digest.update(piece)
            output.write(piece)
        output.flush()
        os.fsync(file)
    return digest.hexdigest()


def _content(texts: Mapping[str, bytes], place: Path) -> tuple[SnapshotContent, Path | None]:
    """Return the snapshot's description with the files of its parts, and its image. Raises KeyError, ValueError ..."""
    index = json.loads(texts["index.json"])
    (listed,) = (
        manifest_entry for manifest_entry in index["manifests"] if manifest_entry.get("artifactType") == ARTIFACT
    )
    manifest = json.loads(_text(place, listed))
    content = _described_content(_text(place, manifest["config"]))
    if content.architecture != platform.machine():
        difference = f"it was taken on {content.architecture}, and this host is {platform.machine()}"
        raise SnapshotError("Foreign", f"the archive does not fit: {difference}")
    layers = [_path(place, layer) for layer in manifest["layers"] if layer["mediaType"] != _IMAGE]
    images = [_path(place, layer) for layer in manifest["layers"] if layer["mediaType"] == _IMAGE]
    if len(layers) != len(content.parts) or not all(path.is_file() for path in (*layers, *images)):
        raise TarError("a part is missing")
    parts = tuple(
        replace(part, file=path.name, archive_bytes=path.stat().st_size, uids=(), gids=())
        for part, path in zip(content.parts, layers, strict=True)
    )
    for part in parts:
        if part.kind not in _LAYERS or not part.path.startswith("/"):
            raise ValueError("an unknown part")
    return replace(content, parts=parts), images[0] if images else None


def _described_content(text: bytes) -> SnapshotContent:
    """Return a description that others wrote, bounded: its values come into the object's status. Raises ValueError."""
    try:
        content = _CONTENT.validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError("a field has another type") from error
    omitted = content.omitted[:_OMITTED]
    texts = (content.source_name, content.image, content.image_id, content.level, content.parent)
    paths = [text for part in content.parts for text in (part.path, part.source)]
    paths += [text for omission in omitted for text in (omission.name, omission.reason)]
    # An id of -1 means none.
    counts = (content.omitted_count, content.user_id + 1, content.group_id + 1)
    maxima = (_COUNT_MAX, _ID_MAX, _ID_MAX)
    if (
        content.version != VERSION
        or any(len(text) > _LETTERS for text in texts)
        or any(len(text) > _PATH_LETTERS for text in paths)
        or not all(math.isfinite(number) for number in (content.captured_at, content.frozen_seconds))
        or not 0 <= content.frozen_seconds <= _COUNT_MAX
        or content.captured_at < 0
        or not all(0 <= count <= most for count, most in zip(counts, maxima, strict=True))
    ):
        raise ValueError("a field is out of range")
    # A time in the future would make it the newest one for ever.
    captured_at = min(content.captured_at, time.time())
    return replace(content, uid="", source_uid="", imported=True, omitted=omitted, captured_at=captured_at)


def check_room(place: Path) -> None:
    """Refuse to write more where the disk is nearly full. Raises SnapshotError."""
    if shutil.disk_usage(place).free < RESERVE_BYTES:
        raise SnapshotError("DiskFull", "the disk of the state folder is nearly full; free some of it, and try again")


def check_image(path: Path) -> None:
    """Refuse an image's archive that names images: loaded, it would replace those of this host. Raises Unsafe ..."""
    names: set[bytes] = set()
    with path.open("rb") as file:
        reader = Reader(file.read)
        for entry in reader:
            if entry.type == "note":
                continue
            parts = parts_of(entry.name)
            name = parts[-1] if parts else b""
            if name not in _NAMING:
                continue
            # One plain file each, so that the engine reads just what is judged here.
            if len(parts) != 1 or entry.type != "file" or name in names or entry.size > _TEXT_BYTES:
                raise Unsafe("its image is no export of Paddock")
            names.add(name)
            if _has_names(name, json.loads(b"".join(reader.pieces()))):
                raise Unsafe("its image has a name, which could replace another one; export it with Paddock")


def _has_names(file: bytes, value: Any) -> bool:
    """Tell if one of an image's lists names an image."""
    if file == b"repositories":
        return bool(value)
    if file == b"manifest.json":
        return any(image.get("RepoTags") for image in value)
    keys = {str(key) for manifest in value.get("manifests", ()) for key in manifest.get("annotations") or {}}
    return any(key.endswith((".ref.name", ".image.name")) for key in keys)


def _path(place: Path, described: Mapping[str, Any]) -> Path:
    digest = str(described["digest"])
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError("not a digest")
    return place / digest.removeprefix("sha256:")


def _text(place: Path, described: Mapping[str, Any]) -> bytes:
    path = _path(place, described)
    if not path.is_file() or path.stat().st_size > _TEXT_BYTES:
        raise TarError("a description is missing or too large")
    return path.read_bytes()


def _verify(path: Path, content: SnapshotContent, part: SnapshotPart) -> Report:
    """Read a part to its end; return what is in it. Raises Unsafe, TarError, BoundExceeded."""
    owners = Owners(
        {
            "from_uid": content.user_id,
            "to_uid": content.user_id,
            "from_gid": content.group_id,
            "to_gid": content.group_id,
            "base": 0,
            "uids": (),
            "gids": (),
        }
    )
    rules = Rules(owner=owners.of, deletions=part.kind == "root", modes=_NO_SETUID)
    with path.open("rb", buffering=0) as file:
        return verify(partial(_read, file.fileno()), Bounds(seconds=_VERIFY_SECONDS, bytes=1 << 44), rules)


def _read(file: int, count: int) -> bytes:
    return os.read(file, count)
