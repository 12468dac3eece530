"""Port to the snapshots of this host."""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.runtime.snapshot import SnapshotContent


class SnapshotError(Exception):
    """Work on a snapshot that failed; the message says what to do. `reason` is one word for programs.

    `retry`: the same may succeed later.
    """

    def __init__(self, reason: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.reason, self.retry = reason, retry


class Snapshots(Protocol):
    """Files of the snapshots on this host. Any thread may use it."""

    def recover(self) -> Collection[str]:
        """Thaw and remove what captures and imports left behind that a crash has cut off; return their uids.

        Never raises.
        """
        ...

    def capture(self, request: CaptureRequest) -> SnapshotContent:
        """Capture a sandbox at one instant. Raises SnapshotError: then nothing of it stays."""
        ...

    def contents(self) -> Mapping[str, SnapshotContent]:
        """Return the complete snapshots by uid. Raises SnapshotError."""
        ...

    def remove(self, uid: str) -> None:
        """Remove a snapshot's files. Raises SnapshotError."""
        ...

    def sweep(self, uids: Collection[str]) -> None:
        """Forget which files other sandboxes than these got; a day later remove what is saved of them.

        Raises SnapshotError.
        """
        ...

    def export(self, uid: str, image: bool) -> Iterator[bytes]:
        """Return a snapshot as one archive, with its image on request. Raises SnapshotError."""
        ...

    def importing(self) -> Collection[str]:
        """Return the uids of the imports that are under way."""
        ...

    def take_in(
        self,
        uid: str,
        namespace: str,
        name: str,
        pieces: Iterator[bytes],
        bytes_max: int,
        *,
        may_load_image: bool,
    ) -> SnapshotContent:
        """Store an exported snapshot as that object's. Raises SnapshotError: then nothing of it stays.

        `may_load_image`: an image in the archive is given to the engine; else such an archive is refused.
        """
        ...
