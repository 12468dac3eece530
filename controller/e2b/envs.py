"""Variables of sandboxes, given to each command: in files that only the daemon reads, not in the store or the engine.

Programs put keys of other services there, which must not appear in `docker inspect`, a diff or a backup.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

_MOST_BYTES = 256 << 10
_log = structlog.get_logger("paddock.e2b")


class Variables:
    """Variables by the sandbox's uid. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._cache: dict[str, Mapping[str, str]] = {}

    def save(self, uid: str, variables: Mapping[str, str]) -> None:
        """Keep a sandbox's variables. Raises OSError."""
        if not variables:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path(uid), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(dict(variables), file)
        with self._lock:
            self._cache[uid] = dict(variables)

    def of(self, uid: str) -> Mapping[str, str]:
        """Return a sandbox's variables."""
        with self._lock:
            if uid in self._cache:
                return self._cache[uid]
        try:
            stored = json.loads(self._path(uid).read_text())
        except FileNotFoundError:
            stored = {}
        except (OSError, ValueError) as error:
            _log.warning("variables unreadable", uid=uid, why=str(error))
            stored = {}
        with self._lock:
            if len(self._cache) > 4096:
                self._cache.clear()
            self._cache[uid] = stored
        return self._cache[uid]

    def forget(self, uid: str) -> None:
        """Remove a sandbox's variables."""
        with self._lock:
            self._cache.pop(uid, None)
        self._path(uid).unlink(missing_ok=True)

    def keep_only(self, uids: Callable[[], frozenset[str]]) -> None:
        """Remove the variables of all other sandboxes. `uids` is called after the look at what is there."""
        paths = list(self._folder.iterdir()) if self._folder.is_dir() else []
        stored = uids()
        for path in paths:
            if path.stem not in stored:
                self.forget(path.stem)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}.json"
