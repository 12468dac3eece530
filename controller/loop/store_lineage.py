"""Detection of a restored store, by a file beside the database.

After a restore, containers made since the backup look like orphans. So the newest revision is noted in a file outside
the database; a store with an older revision was restored. Nothing is swept then, now or after a restart, until an
operator confirms by removing the file.

The file may have been restored with the database. So there is a second witness, outside any backup: each container has
its object's revision as a label. A label newer than the store at the daemon's start proves a restore, too.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from controller.kinds.observed.observed import Observation, State

_log = structlog.get_logger("paddock.lineage")
_NOTE_SECONDS = 5.0


def newest(observed: Observation) -> int | None:
    """Return the newest revision in any container's label; None while not all can be read."""
    containers = [container for group in observed.containers.values() for container in group]
    if observed.blind or any(container.state is State.UNKNOWN for container in containers):
        return None
    return max((container.revision for container in containers), default=0)


class StoreLineage:
    """Lineage of the store with that `instance_id`, in the file `path`. Not thread-safe."""

    def __init__(self, path: Path, instance_id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._instance_id, self._clock = path, instance_id, clock
        self._noted_at = float("-inf")
        self._confirmed = 0
        self._revision, self._restored = self._read()
        self._noted = self._revision
        self._trouble = ""
        self._began: int | None = None
        self._compared = False

    def follow(self, revision: int, newest: Callable[[], int | None] = lambda: 0) -> str:
        """Note the store's revision, at most every few seconds. Return why orphans must not be swept ("": they may be).

        `newest` returns the newest revision in a container's label; None while they can't be read.
        """
        self._began = revision if self._began is None else self._began
        # The operator confirms a restored store by removing its note.
        if self._restored and not self._path.exists():
            _log.info("restore confirmed; orphan sweep resumed")
            self._restored = ""
            self._revision = revision
            self._noted = 0
            self._confirmed = max(self._confirmed, newest() or 0)
        # Containers made after the backup bear newer revisions than the store has.
        if not self._compared and not self._restored and (labelled := newest()) is not None:
            self._compared = True
            if labelled > max(self._began, self._confirmed):
                return self._went_back(labelled, self._began)
        if self._restored:
            return self._restored
        if revision < self._revision:
            return self._went_back(self._revision, revision)
        self._revision = revision
        if (revision > self._noted or self._trouble) and self._clock() >= self._noted_at + _NOTE_SECONDS:
            self._note()
        return self._trouble

    def close(self) -> None:
        """Note the newest revision."""
        if self._revision > self._noted:
            self._note()

    def _went_back(self, before: int, revision: int) -> str:
        self._restored = (
            f"the store went back from revision {before} to {revision}: it was restored from a backup; check"
            f" the containers without an object, then confirm by removing {self._path}"
        )
        _log.warning("orphan sweep paused", why=self._restored)
        self._note()
        return self._restored

    def _note(self) -> None:
        """Write the file atomically. `_trouble` is why that failed: a restore could not be detected any more."""
        self._noted_at = self._clock()
        record = {"instanceId": self._instance_id, "revision": self._revision, "restored": self._restored}
        record["confirmed"] = self._confirmed
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(record) + "\n")
            os.replace(fresh, self._path)
        except OSError as error:
            self._trouble = f"{self._path} can't be written ({error.strerror})"
            _log.warning("orphan sweep paused", why=self._trouble)
        else:
            self._noted, self._trouble = self._revision, ""

    def _read(self) -> tuple[int, str]:
        """Read the file. One of another store is ignored; one that can't be read pauses the sweep."""
        try:
            record = json.loads(self._path.read_text())
            if record["instanceId"] != self._instance_id:
                return 0, ""
            revision, restored = int(record["revision"]), str(record["restored"])
            self._confirmed = int(record.get("confirmed", 0))
        except FileNotFoundError:
            return 0, ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            revision, restored = 0, f"{self._path} can't be read ({error}); check the containers, then remove it"
        if restored:
            _log.warning("orphan sweep paused", why=restored)
        return revision, restored
