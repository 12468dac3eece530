"""Files of workflow runs: ends of stages, transcripts and artifacts, in a folder for each run.

NAMESPACE/UID/STAGE.ATTEMPT.end.json      how an attempt ended
NAMESPACE/UID/STAGE.ATTEMPT.jsonl         the transcript of an agent, a message a line
NAMESPACE/UID/artifacts/NAME.tar .json    an artifact, and its list of files
"""

import dataclasses
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from controller.archive.names import Unsafe, parts_of, shown
from controller.archive.tar import CHANGED, FAILED, Entry, Reader, TarError
from controller.kinds.workflowrun import StageEnd

MOST_FILES = 20_000  # of one artifact
_log = structlog.get_logger("paddock.workflow")


class ArtifactRefused(Exception):
    """An artifact that is not kept; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """One file of an artifact."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """A kept artifact: a tar archive of `size` bytes with these files."""

    name: str
    stage: str
    size: int
    files: tuple[ArtifactFile, ...] = ()

    @property
    def file_bytes(self) -> int:
        """Return the bytes of its files, without the archive around them."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class RunKey:
    """A run's namespace and uid."""

    namespace: str
    uid: str


class RunFiles:
    """The folders of all runs (None: none can work). Raises OSError.

    `namespace_bytes` bounds the artifacts of a namespace.
    """

    def __init__(self, folder: Path | None, namespace_bytes: int) -> None:
        self._root, self._namespace_bytes = folder, namespace_bytes
        self._lock = threading.Lock()
        self._writing: dict[str, int] = {}  # bytes of unfinished artifacts by namespace

    @property
    def _folder(self) -> Path:
        if self._root is None:
            raise OSError("workflow runs are not served by this daemon")
        return self._root

    def end_of(self, run: RunKey, stage: str, attempt: int) -> StageEnd | None:
        """Return the stored end of an attempt; None if there is none."""
        try:
            document = json.loads((self._of(run) / f"{stage}.{attempt}.end.json").read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            return StageEnd("Failed", reason="Lost", message="the record of its end is damaged", repeatable=False)
        return StageEnd(**document)

    def save_end(self, run: RunKey, stage: str, attempt: int, end: StageEnd) -> None:
        """Store the end of an attempt, whole or not at all."""
        data = {field.name: getattr(end, field.name) for field in dataclasses.fields(end)} | {
            "outputs": dict(end.outputs)
        }
        self._write(self._make_folder(run) / f"{stage}.{attempt}.end.json", json.dumps(data).encode())

    def transcript(self, run: RunKey, stage: str, attempt: int) -> list[dict[str, Any]]:
        """Return the messages of an agent's attempt. A last line that was not written whole is left out."""
        try:
            lines = (self._of(run) / f"{stage}.{attempt}.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines[:-1]]

    def add_to_transcript(self, run: RunKey, stage: str, attempt: int, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append messages to a transcript."""
        path = self._make_folder(run) / f"{stage}.{attempt}.jsonl"
        text = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        with path.open("ab+") as file:
            _cut_after_last_line(file)
            file.write(text)

    def keep(self, run: RunKey, stage: str, name: str, read: Callable[[], bytes]) -> Artifact:
        """Store a tar stream as an artifact, whole or not at all. Raises ArtifactRefused."""
        folder = self._make_folder(run) / "artifacts"
        folder.mkdir(exist_ok=True)
        spare = folder / f"{name}.part"
        reserved = _Held(self, run.namespace)
        try:
            with spare.open("wb") as file:
                files = _copy(read, file, reserved)
            artifact = Artifact(name, stage, reserved.bytes, files)
            spare.replace(folder / f"{name}.tar")
            self._write(folder / f"{name}.json", json.dumps(dataclasses.asdict(artifact)).encode())
        finally:
            spare.unlink(missing_ok=True)
            reserved.close()
        return artifact

    def artifacts(self, run: RunKey) -> list[Artifact]:
        """Return the artifacts of a run by name."""
        paths = sorted((self._of(run) / "artifacts").glob("*.json"))
        return [_artifact(json.loads(path.read_text())) for path in paths]

    def open_artifact(self, run: RunKey, name: str) -> BinaryIO | None:
        """Open an artifact's archive; None if there is none of that name."""
        if not any(artifact.name == name for artifact in self.artifacts(run)):
            return None
        return (self._of(run) / "artifacts" / f"{name}.tar").open("rb")

    def forget(self, existing: Collection[str]) -> None:
        """Remove the folders of all runs but those of these uids."""
        for folder in self._root.glob("*/*") if self._root and self._root.is_dir() else ():
            if folder.name not in existing:
                shutil.rmtree(folder, ignore_errors=True)

    def used_bytes(self, namespace: str) -> int:
        """Return the bytes of a namespace's artifacts."""
        return sum(path.stat().st_size for path in (self._folder / namespace).glob("*/artifacts/*.tar"))

    def reserve(self, namespace: str, count: int) -> None:
        with self._lock:
            total = self._writing.get(namespace, 0) + count
            if total + self.used_bytes(namespace) > self._namespace_bytes:
                raise ArtifactRefused(
                    f"namespace `{namespace}` may keep {self._namespace_bytes} bytes of artifacts "
                    "as tar archives (artifacts_per_namespace_bytes); "
                    "delete old runs, or copy less"
                )
            self._writing[namespace] = total

    def give_back(self, namespace: str, count: int) -> None:
        with self._lock:
            self._writing[namespace] -= count

    def _of(self, run: RunKey) -> Path:
        return self._folder / run.namespace / run.uid

    def _make_folder(self, run: RunKey) -> Path:
        folder = self._of(run)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _write(self, path: Path, data: bytes) -> None:
        spare = path.with_name(f"{path.name}.new")
        spare.write_bytes(data)
        spare.replace(path)


class _Held:
    """Bytes of one unfinished artifact, taken from its namespace's bound in steps."""

    _STEP_BYTES = 1 << 20

    def __init__(self, files: RunFiles, namespace: str) -> None:
        self._files, self._namespace = files, namespace
        self._taken = self.bytes = 0

    def add(self, count: int) -> None:
        """Count bytes. Raises ArtifactRefused beyond the bound."""
        self.bytes += count
        if self.bytes > self._taken:
            addition = max(self.bytes - self._taken, min(self._STEP_BYTES, self.bytes))
            self._files.reserve(self._namespace, addition)
            self._taken += addition

    def close(self) -> None:
        """Give back what it took."""
        if self._taken:
            self._files.give_back(self._namespace, self._taken)


def _copy(read: Callable[[], bytes], file: BinaryIO, reserved: _Held) -> tuple[ArtifactFile, ...]:
    """Copy an archive entry by entry; return its files. Raises ArtifactRefused for what no artifact may hold."""
    remainder = b""

    def piece(count: int) -> bytes:
        nonlocal remainder
        remainder = remainder or read()
        chunk, remainder = remainder[:count], remainder[count:]
        reserved.add(len(chunk))
        file.write(chunk)
        return chunk

    reader = Reader(piece)
    try:
        files = tuple(_check(reader))
        while piece(1 << 18):
            pass
    except TarError as error:
        raise ArtifactRefused(f"the copy was cut off: {error}") from error
    return files


def _check(reader: Reader) -> Iterator[ArtifactFile]:
    for count, entry in enumerate(reader):
        if count >= MOST_FILES:
            raise ArtifactRefused(f"it has more than {MOST_FILES} files; pack them in the sandbox, and copy that file")
        if entry.type == "note":
            _refuse_note(entry)
            continue
        try:
            parts = parts_of(entry.name)
        except Unsafe as error:
            raise ArtifactRefused(str(error)) from error
        name = shown(b"/".join(parts))
        if entry.type not in ("file", "folder"):
            raise ArtifactRefused(f"{name} is a {entry.type}, and artifacts hold files and folders only; remove it")
        if entry.type == "file":
            digest = hashlib.sha256()
            for data in reader.pieces():
                digest.update(data)
            yield ArtifactFile(name, entry.size, digest.hexdigest())


def _refuse_note(entry: Entry) -> None:
    name, _, why = entry.target.partition(b"\0")
    if entry.name == FAILED:
        raise ArtifactRefused(f"{shown(entry.target)}; try again")
    if entry.name == CHANGED:
        raise ArtifactRefused(f"{shown(entry.target)} shrank while it was read; end what writes it first")
    raise ArtifactRefused(f"{shown(name)}: {shown(why)}; remove it, or copy another folder")


def _artifact(document: dict[str, Any]) -> Artifact:
    return Artifact(
        document["name"], document["stage"], document["size"], tuple(ArtifactFile(**file) for file in document["files"])
    )


def _cut_after_last_line(file: BinaryIO) -> None:
    """Remove a last line that was not written whole."""
    file.seek(0)
    content = file.read()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        file.truncate(end)
