"""Worker process of one capture, save or restore: it copies folders that the daemon has opened for it.

It ends just after the daemon: a sandbox that it has frozen is thawed by it in any case, at the latest after its time
limit. A request (JSON) comes on stdin, the result goes to stdout.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from controller.archive.names import Unsafe, shown
from controller.archive.state.bounds import BoundExceeded, Bounds, Report
from controller.archive.state.exchange import from_image
from controller.archive.state.restore import Rules, restore, verify
from controller.archive.state.save import Content, ForeignLayer, save
from controller.archive.tar import TarError

_FREEZE_SECONDS, _POLL_SECONDS = 10.0, 0.001
_IMAGE_IDS = 10_000  # owners below are the image's: they stay
NOBODY = 65534
_PR_SET_PDEATHSIG = 1

Freezer = tuple[str, str, str]


class NotFrozen(Exception):
    """The sandbox can't be frozen."""


class Thawed(Exception):
    """The sandbox did not stand still to the end."""


def freeze(freezer: Freezer) -> None:
    """Freeze a cgroup, and wait until all of it stands still. Raises NotFrozen, OSError."""
    path, word, _ = freezer
    deadline = time.monotonic() + _FREEZE_SECONDS
    _write(path, word)
    while not is_frozen(freezer):
        if time.monotonic() > deadline:
            raise NotFrozen(f"its processes do not stand still within {_FREEZE_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
        _write(path, word)


def thaw(freezer: Freezer) -> None:
    """Thaw a cgroup; nothing if it is gone."""
    with contextlib.suppress(FileNotFoundError, OSError):
        _write(freezer[0], freezer[2])


def is_frozen(freezer: Freezer) -> bool:
    """Tell whether all of a cgroup stands still. Raises OSError."""
    path = freezer[0]
    if path.endswith("cgroup.freeze"):
        with open(f"{os.path.dirname(path)}/cgroup.events") as events:
            return "frozen 1" in events.read()
    with open(path) as state:
        return state.read().strip() == "FROZEN"


def _write(path: str, word: str) -> None:
    with open(path, "w") as file:
        file.write(word)


@contextlib.contextmanager
def _frozen(freezer: Freezer | None, *, since_before: bool) -> Iterator[None]:
    if freezer is None:
        yield
        return
    try:
        if since_before and not is_frozen(freezer):
            raise Thawed("somebody thawed it during the capture; it is retried")
        freeze(freezer)
        yield
        if not is_frozen(freezer):  # by whom it was thawed, and since when, nobody knows: the files may be torn
            raise Thawed("somebody thawed it during the capture; it is retried")
    finally:
        thaw(freezer)


def save_all(request: dict[str, Any]) -> dict[str, Any]:
    """Save each part at one instant; return the reports, and the seconds that the sandbox stood still.

    `is_frozen` in the request: it was frozen before, and is not captured if it was thawed since.
    """
    limits, reports = request["bounds"], []
    remaining = int(limits["bytes"])
    freezer: Freezer | None = tuple(request["freezer"]) if request["freezer"] else None
    started = time.monotonic()
    with _frozen(freezer, since_before=bool(request.get("is_frozen"))):
        for part in request["parts"]:
            seconds = max(0.0, float(limits["seconds"]) - (time.monotonic() - started))
            room = min(remaining, int(limits.get("archive_bytes", remaining)))
            bounds = Bounds(entries=int(limits["entries"]), bytes=remaining, archive_bytes=room, seconds=seconds)
            content = Content(bool(part["deletions"]), frozenset(os.fsencode(path) for path in part["mount_points"]))
            write = partial(_write_all, int(part["output"]))
            report = save(part["folder"], write, bounds, content)
            remaining -= report.archive_bytes
            reports.append(_report(report))
    return {"frozen": time.monotonic() - started if freezer else 0.0, "reports": reports}


def restore_all(request: dict[str, Any]) -> dict[str, Any]:
    """Restore each part into its folder, with the owners of the request."""
    reports = []
    for part in request["parts"]:
        rules = Rules(
            deletions=bool(part["deletions"]),
            modes=int(request["modes"]),
            mount_points=frozenset(os.fsencode(path) for path in part["mount_points"]),
        )
        if request["owners"]:
            rules = rules._replace(owner=Owners(request["owners"]).of)
        limits = request["bounds"]
        bounds = Bounds(entries=int(limits["entries"]), seconds=float(limits["seconds"]), bytes=int(limits["bytes"]))
        with open(part["input"], "rb", buffering=0, closefd=False) as source:
            reports.append(_report(restore(part["folder"], source.read, bounds, rules)))
    return {"reports": reports}


def convert(request: dict[str, Any]) -> dict[str, Any]:
    """Write the top layer of a saved image as an archive, and read that as a restore would."""
    limits, (part,) = request["bounds"], request["parts"]
    most = int(limits["bytes"])
    bounds = Bounds(entries=int(limits["entries"]), bytes=most, archive_bytes=most, seconds=float(limits["seconds"]))
    points = frozenset(os.fsencode(path) for path in part["mount_points"])
    output = int(part["output"])
    with open(part["input"], "rb", closefd=False) as image:
        report = from_image(image, partial(_write_all, output), bounds, points)
    os.lseek(output, 0, os.SEEK_SET)
    verify(partial(os.read, output), bounds, Rules(deletions=True, mount_points=points))
    return {"reports": [_report(report)]}


class Owners:
    """New owners: the source's user becomes the new one, those of the image stay, others must be expected."""

    def __init__(self, owners: dict[str, Any]) -> None:
        self._uids = {int(owners["from_uid"]): int(owners["to_uid"])} if owners["from_uid"] >= 0 else {}
        self._gids = {int(owners["from_gid"]): int(owners["to_gid"])} if owners["from_gid"] >= 0 else {}
        self._base = int(owners["base"])
        self._uids_expected, self._gids_expected = frozenset(owners["uids"]), frozenset(owners["gids"])

    def of(self, uid: int, gid: int) -> tuple[int, int]:
        """Return the new owner. Raises Unsafe for one that is not expected."""
        return (
            self._mapped(uid, self._uids, self._uids_expected),
            self._mapped(gid, self._gids, self._gids_expected),
        )

    def _mapped(self, number: int, mapping: dict[int, int], expected: frozenset[int]) -> int:
        if number in mapping:
            return mapping[number]
        if self._base <= number < self._base + _IMAGE_IDS or number in expected or number == NOBODY:
            return number
        raise Unsafe(f"an owner {number}, which is neither the source's user nor the image's")


def _report(report: Report) -> dict[str, Any]:
    return {
        "entries": report.entries,
        "bytes": report.bytes,
        "archive_bytes": report.archive_bytes,
        "omissions": [list(omission) for omission in report.omissions],
        "omission_count": report.omission_count,
        "uids": sorted(report.uids),
        "gids": sorted(report.gids),
    }


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


_OPERATIONS = {"save": save_all, "restore": restore_all, "convert": convert}


def carry_out(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request; return its result, or what it failed with."""
    try:
        return _OPERATIONS[request["operation"]](request)
    except BoundExceeded as error:
        return {"error": "TooLarge", "message": str(error)}
    except (Unsafe, TarError) as error:
        return {"error": "Damaged", "message": str(error)}
    except ForeignLayer as error:
        return {"error": "Unsupported", "message": str(error)}
    except NotFrozen as error:
        return {"error": "NotFrozen", "message": str(error)}
    except Thawed as error:
        return {"error": "Thawed", "message": str(error)}
    except OSError as error:
        name = shown(os.fsencode(error.filename)) if isinstance(error.filename, str | bytes) else ""
        return {"error": "Failed", "message": f"{name}: {error.strerror}" if name else str(error.strerror or error)}


def main() -> int:
    """Carry out the request on stdin; return 0 unless it failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    _end_with_the_daemon()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")
    result = carry_out(json.load(sys.stdin))
    print(json.dumps(result), flush=True)  # noqa: T201 - the daemon reads it
    return int("error" in result)


def _end_with_the_daemon() -> None:
    """Have the kernel send SIGTERM when the daemon ends: the next one may freeze the same sandbox."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end(_number: int, _frame: object) -> None:
    raise BoundExceeded("seconds", "it was cut off")


if __name__ == "__main__":
    sys.exit(main())
