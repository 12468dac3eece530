"""Folder of the snapshots of this host.

    <state folder>/snapshots/<uid>/content.json   what the archives beside it are; written last
                                   <n>.tar        one archive for each part
                                   capture.json   while it is captured: how to thaw the sandbox
                             restored/<uid>.json  which mounts of a sandbox got their files, by key and kind

Everything is root's alone (0700, 0600): the archives hold what code in sandboxes wrote, keys included.
"""

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.engine.archiver.worker import thaw
from controller.kinds.runtime.snapshot import VERSION, Omitted, PartKind, SnapshotContent, SnapshotPart

CONTENT, CAPTURE, _MARKS = "content.json", "capture.json", "restored"
RESERVE_BYTES = 256 << 20  # that stay free on the disk of the state folder
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}\Z")
_log = logging.getLogger(__name__)


class SnapshotFolder:
    """The folder; the constructor does no I/O. Any thread may use it, one at a time for one snapshot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, SnapshotContent]] = {}  # by uid, with the time of its file

    def recover(self, spared: Collection[str] = ()) -> frozenset[str]:
        """Thaw what a capture that was cut off has frozen, and remove its files; return the uids. Never raises.

        `spared` are those that are begun already by this daemon.
        """
        uids = set()
        for folder in self._folder.glob("*"):
            if folder.name in spared or not _UID.match(folder.name) or folder.name == _MARKS:
                continue
            try:
                if (folder / CAPTURE).exists():
                    freezer = json.loads((folder / CAPTURE).read_text()).get("freezer")
                    if freezer:
                        thaw((str(freezer[0]), str(freezer[1]), str(freezer[2])))
                elif (folder / CONTENT).exists():
                    continue
                shutil.rmtree(folder)
                uids.add(folder.name)
            except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
                _log.warning("unfinished snapshot stays: %s: %s", folder, error)
        return frozenset(uids)

    def begin(self, uid: str, freezer: Sequence[str] | None) -> Path:
        """Record a capture before it begins; return its empty folder. Raises OSError."""
        folder = self.path(uid)
        if folder.exists():
            shutil.rmtree(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        _write(folder / CAPTURE, {"freezer": list(freezer) if freezer else None})
        return folder

    def finish(self, content: SnapshotContent) -> None:
        """Record a complete snapshot. Raises OSError."""
        folder = self.path(content.uid)
        _write(folder / CONTENT, asdict(content))
        (folder / CAPTURE).unlink(missing_ok=True)
        _sync(folder)

    def abandon(self, uid: str) -> None:
        """Remove the files of a capture that failed."""
        shutil.rmtree(self.path(uid), ignore_errors=True)

    def content(self, uid: str) -> SnapshotContent | None:
        """Return a complete snapshot; None if there is none. Raises OSError."""
        path = self.path(uid) / CONTENT
        try:
            written_at = path.stat().st_mtime_ns
            cached = self._known.get(uid)
            if cached is None or cached[0] != written_at:
                cached = self._known[uid] = written_at, content_of(json.loads(path.read_text()))
            return cached[1]
        except FileNotFoundError:
            self._known.pop(uid, None)
            return None
        except (ValueError, TypeError, KeyError):
            _log.warning("snapshot unreadable: %s", uid)
            return None

    def contents(self) -> Mapping[str, SnapshotContent]:
        """Return all complete snapshots by uid. Raises OSError."""
        uids = [path.parent.name for path in self._folder.glob(f"*/{CONTENT}")]
        return {uid: content for uid in sorted(uids) if (content := self.content(uid)) is not None}

    def by_name(self, namespace: str, name: str) -> SnapshotContent | None:
        """Return the newest snapshot of that name. Raises OSError."""
        matches = [
            content for content in self.contents().values() if (content.namespace, content.name) == (namespace, name)
        ]
        return max(matches, key=lambda content: content.captured_at, default=None)

    def remove(self, uid: str) -> None:
        """Remove a snapshot's files; nothing if there are none. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path(uid))

    def path(self, uid: str) -> Path:
        """Return the folder of a snapshot."""
        if not _UID.match(uid) or uid == _MARKS:
            raise ValueError(f"{uid} is not a uid")
        return self._folder / uid

    def mark_of(self, uid: str, key: str, path: str, kind: PartKind) -> str:
        """Return the state of a sandbox's mount of that kind under that key: Begun, Done, or "". Raises OSError.

        The record of an older Paddock names no kind, and counts for each.
        """
        stored = self._marks_of(uid, key)
        kinds = stored.get("kinds", {})
        return str(kinds[path].get(kind, "") if path in kinds else stored.get("paths", {}).get(path, ""))

    def mark(self, uid: str, key: str, path: str, kind: PartKind, state: str) -> None:
        """Record the state of one mount, before its files are touched and after. Raises OSError."""
        stored = self._marks_of(uid, key)
        kinds = stored.get("kinds", {})
        new_kinds = {**kinds, path: {**kinds.get(path, {}), kind: state}}
        paths = {**stored.get("paths", {}), path: state}  # read by an older Paddock
        self._mark_path(uid).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(self._mark_path(uid), {"key": key, "paths": paths, "kinds": new_kinds})

    def _marks_of(self, uid: str, key: str) -> Mapping[str, Any]:
        """Return the record of a sandbox's mounts; an empty one if it is of another key. Raises OSError."""
        try:
            stored: Mapping[str, Any] = json.loads(self._mark_path(uid).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return stored if stored.get("key") == key else {}

    def sweep_marks(self, uids: Collection[str]) -> None:
        """Remove the marks of all other sandboxes. Raises OSError."""
        for path in (self._folder / _MARKS).glob("*.json"):
            if path.stem not in uids:
                path.unlink(missing_ok=True)

    def _mark_path(self, uid: str) -> Path:
        if not _UID.match(uid):
            raise ValueError(f"{uid} is not a uid")
        return self._folder / _MARKS / f"{uid}.json"


def content_of(stored: Mapping[str, Any]) -> SnapshotContent:
    """Return a content from its JSON. Raises KeyError, TypeError, ValueError."""
    if stored["version"] != VERSION:
        raise ValueError(f"a snapshot of version {stored['version']}")
    parts = tuple(
        SnapshotPart(**{**part, "uids": tuple(part["uids"]), "gids": tuple(part["gids"])}) for part in stored["parts"]
    )
    omitted = tuple(Omitted(**omission) for omission in stored["omitted"])
    return SnapshotContent(**{**stored, "parts": parts, "omitted": omitted})


def _write(path: Path, value: Any) -> None:
    fresh = path.with_suffix(".new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w") as output:
        json.dump(value, output)
        output.flush()
        os.fsync(file)
    fresh.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
