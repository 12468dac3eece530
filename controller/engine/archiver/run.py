"""The daemon's side of worker.py: one process for each capture, and for each large save or restore.

A process of its own has nobody beside it: in the daemon, each of the five calls for a file would wait for its threads.
What is small is copied here, as starting a process takes longer.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from controller.archive.state.bounds import Bounds
from controller.engine.archiver import worker

_GRACE_SECONDS = 30.0  # beyond its own time limit
_SMALL_BYTES, _SMALL_FILES = 256 << 10, 100


class WorkFailed(Exception):
    """A worker that could not do its work.

    `reason` is one word: TooLarge, Damaged, Unsupported, NotFrozen, Thawed, Failed.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SavedCounts(NamedTuple):
    """Counts of one saved folder: its files, the bytes of its archive, and files that could not be saved."""

    entries: int
    archive_bytes: int
    omission_count: int


def run_worker(request: dict[str, Any], files: Sequence[int]) -> dict[str, Any]:
    """Run a worker with these open files, under their own numbers; return its result. Raises WorkFailed.

    It has a session of its own: it thaws what it froze, also without the daemon, and ends then.
    """
    seconds = float(request["bounds"]["seconds"]) + _GRACE_SECONDS
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", worker.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=files,
        start_new_session=True,
        cwd="/",
        env={},
    )
    try:
        output, _ = process.communicate(json.dumps(request).encode(), timeout=seconds)
        result: dict[str, Any] = json.loads(output)
    except (subprocess.TimeoutExpired, ValueError, OSError) as error:
        raise WorkFailed("Failed", "its worker did not end, or was killed; see the host's memory and disk") from error
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return _checked(result)


def save_folder(folder: int, output: int, bounds: Bounds) -> SavedCounts:
    """Save a file system that nobody changes meanwhile into an open file. Raises WorkFailed, OSError."""
    usage = os.fstatvfs(folder)
    request: dict[str, Any] = {
        "operation": "save",
        "freezer": None,
        "bounds": {
            "entries": bounds.entries,
            "bytes": bounds.bytes,
            "archive_bytes": bounds.archive_bytes,
            "seconds": bounds.seconds,
        },
        "parts": [{"folder": folder, "output": output, "deletions": False, "mount_points": []}],
    }
    used_bytes = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    is_small = used_bytes <= _SMALL_BYTES and usage.f_files - usage.f_ffree <= _SMALL_FILES
    (report,) = _work(request, [folder, output], is_small=is_small)["reports"]
    return SavedCounts(report["entries"], report["archive_bytes"], report["omission_count"])


def restore_folder(
    folder: int,
    archive: int,
    bounds: Bounds,
    *,
    owners: Mapping[str, Any] | None = None,
    modes: int = 0o7777,
    deletions: bool = False,
    mount_points: Sequence[str] = (),
) -> None:
    """Restore an archive into a folder; `owners` are the fields of worker.Owners. Raises WorkFailed, OSError."""
    request: dict[str, Any] = {
        "operation": "restore",
        "modes": modes,
        "owners": owners,
        "bounds": {"entries": bounds.entries, "seconds": bounds.seconds, "bytes": bounds.bytes},
        "parts": [{"folder": folder, "input": archive, "deletions": deletions, "mount_points": list(mount_points)}],
    }
    _work(request, [folder, archive], is_small=os.fstat(archive).st_size <= _SMALL_BYTES)


def _work(request: dict[str, Any], files: Sequence[int], *, is_small: bool) -> dict[str, Any]:
    if not is_small:
        return run_worker(request, files)
    return _checked(worker.carry_out(request))


def _checked(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result unless it is a failure. Raises WorkFailed."""
    if "error" in result:
        raise WorkFailed(str(result["error"]), str(result["message"]))
    return result


def close_all(files: Sequence[int]) -> None:
    """Close descriptors."""
    for file in files:
        os.close(file)
