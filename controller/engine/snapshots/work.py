"""The daemon's side of worker.py: one process for each capture or restore."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from controller.engine.snapshots import worker

_GRACE_SECONDS = 30.0  # beyond its own time limit


class WorkFailed(Exception):
    """A worker that could not do its work.

    `reason` is one word: TooLarge, Damaged, Unsupported, NotFrozen, Thawed, Failed.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


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
    if "error" in result:
        raise WorkFailed(str(result["error"]), str(result["message"]))
    return result


def close_all(files: Sequence[int]) -> None:
    """Close descriptors."""
    for file in files:
        os.close(file)
