"""Files that a stage changed in its sandbox's working folder: those modified while it ran.

A sandbox has the clock of its host, so its files' times compare with the daemon's. Files that were removed, or written
with an older time (from an archive), are not among them.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing

from controller.kinds.runtime.files import FileRequest
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service import errors
from controller.service.sandbox.files import SandboxFiles
from controller.service.workflow.files import ArtifactFile

_MOST_ENTRIES, _MOST_DEPTH, _MOST_FILES = 10_000, 12, 200
_MOST_BYTES = 64 << 20
_CLOCK_SECONDS = 0.05  # a kernel's file times lag behind its clock by a tick


def changed_files(
    files: SandboxFiles, namespace: str, sandbox: str, since: float, until: float
) -> Sequence[ArtifactFile]:
    """Return the files below the working folder that were modified then, by path; the first 200.

    Of what is beyond 64 MiB in all, sha256 is "". Without access to the sandbox there are none.
    """
    request = FileRequest("list", ".", limit=_MOST_ENTRIES, depth=_MOST_DEPTH)
    try:
        with closing(files.begin(SANDBOX, namespace, sandbox, request)) as work:
            entries = work.result()["items"]
    except errors.ServiceError:
        return ()
    changed = [
        (str(entry["name"]), int(entry["size"]))
        for entry in entries
        if entry["type"] == "file" and since - _CLOCK_SECONDS <= float(entry["modified"]) <= until + _CLOCK_SECONDS
    ]
    return tuple(_hash(files, namespace, sandbox, changed[:_MOST_FILES]))


def _hash(
    files: SandboxFiles, namespace: str, sandbox: str, changed: Sequence[tuple[str, int]]
) -> Iterator[ArtifactFile]:
    available = _MOST_BYTES
    for path, size in changed:
        if size > available:
            yield ArtifactFile(path, size, "")
            continue
        available -= size
        try:
            yield ArtifactFile(path, size, _digest(files, namespace, sandbox, path))
        except errors.ServiceError:  # it was removed meanwhile, or may not be read
            yield ArtifactFile(path, size, "")


def _digest(files: SandboxFiles, namespace: str, sandbox: str, path: str) -> str:
    digest = hashlib.sha256()
    with closing(files.begin(SANDBOX, namespace, sandbox, FileRequest("read", path))) as work:
        work.result()
        while piece := work.receive():
            digest.update(piece)
    return digest.hexdigest()
