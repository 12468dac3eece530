"""Snapshots as one archive, the way between hosts: a tar with an OCI layout, one blob for each part.

The archive of others is believed nothing of: each blob must have the hash that names it, the parts are read to their
end before they are stored, and setuid bits and owners that the source did not have are dropped or refused.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from controller.archive.names import Unsafe
from controller.archive.state.bounds import BoundExceeded, Bounds
from controller.archive.state.restore import Rules, verify
from controller.archive.tar import END, Entry, Reader, TarError, header, padding
from controller.engine.snapshots.folder import SnapshotFolder, content_of
from controller.engine.snapshots.worker import Owners
from controller.kinds.runtime.snapshot import SnapshotContent, SnapshotPart
from controller.ports.snapshots import SnapshotError

ARTIFACT = "application/vnd.paddock.snapshot.v1"
_PART = ARTIFACT + ".{}.tar"
_IMAGE = ARTIFACT + ".image.tar"
_CONFIG = ARTIFACT + "+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYOUT = b'{"imageLayoutVersion": "1.0.0"}'
_PIECE_BYTES = 1 << 20
_TEXT_BYTES = 8 << 20  # of a manifest, and of the description of a snapshot
_BLOBS = 256
_BLOB = re.compile(r"blobs/sha256/([0-9a-f]{64})\Z")
_NO_SETUID = 0o1777
_VERIFY_SECONDS = 600.0
_LAYERS = {"root": "root", "tmpfs": "tmpfs", "volume": "volume"}


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
    load: Callable[[Path], None],
) -> SnapshotContent:
    """Store an exported snapshot as another object's. `load` gives an image to the engine.

    Raises SnapshotError, OSError: the caller removes what was stored.
    """
    place = folder.begin(uid, None)
    try:
        texts = _stored_blobs(Reader(_reading(pieces)), place, bytes_max)
        content, image = _content(texts, place)
        for part in content.parts:
            _verify(place / part.file, content, part)
        if image is not None:
            load(image)
            image.unlink()
    except (TarError, Unsafe, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, TarError | Unsafe) else "its description can't be read"
        raise SnapshotError("Damaged", f"the archive is no snapshot of Paddock, or damaged: {reason}") from error
    except BoundExceeded as error:
        raise SnapshotError("TooLarge", f"the archive: {error}") from error
    part_files = {part.file for part in content.parts}
    for path in place.iterdir():
        if path.name not in part_files and path.name != "capture.json":
            path.unlink()
    content = replace(content, uid=uid, namespace=namespace, name=name, imported=True)
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
        for piece in reader.pieces():
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
    stored = json.loads(_text(place, manifest["config"]))
    content = content_of({**stored, "uid": "", "imported": True})
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


def _verify(path: Path, content: SnapshotContent, part: SnapshotPart) -> None:
    """Read a part to its end. Raises Unsafe, TarError, BoundExceeded."""
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
        verify(partial(_read, file.fileno()), Bounds(seconds=_VERIFY_SECONDS, bytes=1 << 44), rules)


def _read(file: int, count: int) -> bytes:
    return os.read(file, count)
