"""Whether the store is the one that was left, or an older one put in its place: kept in a file beside it.

After a restore, what was made since the backup looks like orphans. So the newest revision is noted in a file that is no
part of the database; a store that has gone back behind it was restored. Nothing is swept then, now or after a restart,
until an operator has looked and confirms it by removing the file.

That file may have been put back along with the database. So there is a second witness, which no backup holds: every
container bears the revision of its object when it was made. One that is newer than the store was when the daemon
began was made by a store that went further.
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
    """The newest revision that any container bears; None while they can't all be seen."""
    seen = [each for group in observed.containers.values() for each in group]
    if observed.blind or any(each.state is State.UNKNOWN for each in seen):
        return None
    return max((each.revision for each in seen), default=0)


class Lineage:
    """`path` is the file; `instance_id` the store's. Not for several threads."""

    def __init__(self, path: Path, instance_id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._instance_id, self._clock = path, instance_id, clock
        self._noted_at = float("-inf")
        self._confirmed = 0
        self._revision, self._restored = self._read()
        self._noted = self._revision
        self._trouble = ""
        self._began: int | None = None
        self._asked = False

    def follow(self, revision: int, newest: Callable[[], int | None] = lambda: 0) -> str:
        """Note the store's revision, at most every few seconds. Why nothing may be swept: "" when it may be.

        `newest` is the newest revision that a container of ours bears; None while they can't be seen.
        """
        self._began = revision if self._began is None else self._began
        if self._restored and not self._path.exists():
            _log.info("the restore is confirmed: containers without an object are swept again")
            self._restored, self._revision, self._noted = "", revision, 0
            self._confirmed = max(self._confirmed, newest() or 0)
        if not self._asked and not self._restored and (borne := newest()) is not None:
            self._asked = True
            if borne > max(self._began, self._confirmed):
                return self._went_back(borne, self._began)
        if self._restored:
            return self._restored
        if revision < self._revision:
            return self._went_back(self._revision, revision)
        self._revision = revision
        if (revision > self._noted or self._trouble) and self._clock() >= self._noted_at + _NOTE_SECONDS:
            self._note()
        return self._trouble

    def close(self) -> None:
        """Note what came since."""
        if self._revision > self._noted:
            self._note()

    def _went_back(self, before: int, revision: int) -> str:
        self._restored = (
            f"the store went back from revision {before} to {revision}: it was restored from a backup; look at"
            f" the containers without an object, then confirm by removing {self._path}"
        )
        _log.warning("no container is swept", why=self._restored)
        self._note()
        return self._restored

    def _note(self) -> None:
        """Write the file, whole or not at all. `_trouble` says why not: a restore could not be told from now on."""
        self._noted_at = self._clock()
        known = {"instanceId": self._instance_id, "revision": self._revision, "restored": self._restored}
        known["confirmed"] = self._confirmed
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(known) + "\n")
            os.replace(fresh, self._path)
        except OSError as error:
            self._trouble = f"{self._path} can't be written ({error.strerror})"
            _log.warning("no container is swept", why=self._trouble)
        else:
            self._noted, self._trouble = self._revision, ""

    def _read(self) -> tuple[int, str]:
        """What is known of this store. A file of another store says nothing; one that can't be read withholds."""
        try:
            known = json.loads(self._path.read_text())
            if known["instanceId"] != self._instance_id:
                return 0, ""
            revision, restored = int(known["revision"]), str(known["restored"])
            self._confirmed = int(known.get("confirmed", 0))
        except FileNotFoundError:
            return 0, ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            revision, restored = 0, f"{self._path} can't be read ({error}); look at the containers, then remove it"
        if restored:
            _log.warning("no container is swept", why=restored)
        return revision, restored
