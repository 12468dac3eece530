"""Snapshots in memory: what a capture got is its request."""

from collections.abc import Callable, Collection, Iterator, Mapping

from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.runtime.snapshot import SnapshotContent, SnapshotPart
from controller.ports.snapshots import SnapshotError


class FakeSnapshots:
    """ports.Snapshots. `failures` are raised by the next captures, in order; `images` are archives by uid."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.stored: dict[str, SnapshotContent] = {}
        self.requests: list[CaptureRequest] = []
        self.failures: list[SnapshotError] = []
        self.before_capture: Callable[[], object] = lambda: None
        self.imports: list[tuple[int, bool]] = []  # bytes, and whether an image may be loaded
        self.swept: list[frozenset[str]] = []
        self.cut_off: frozenset[str] = frozenset()
        self.under_way: set[str] = set()

    def recover(self) -> Collection[str]:
        return self.cut_off

    def importing(self) -> Collection[str]:
        return self.under_way

    def capture(self, request: CaptureRequest) -> SnapshotContent:
        self.before_capture()
        self.requests.append(request)
        if self.failures:
            raise self.failures.pop(0)
        container = request.container
        content = SnapshotContent(
            *(request.uid, request.namespace, request.name, request.source_name, request.source_uid),
            captured_at=self._now(),
            image=container.image,
            image_id=container.image_id,
            level=request.level,
            architecture="fake",
            parts=(SnapshotPart("tmpfs", "/tmp", "0.tar", 1, 5, 1024),),
            parent=request.parent,
        )
        self.stored[request.uid] = content
        return content

    def contents(self) -> Mapping[str, SnapshotContent]:
        return dict(self.stored)

    def remove(self, uid: str) -> None:
        self.stored.pop(uid, None)

    def sweep(self, uids: Collection[str]) -> None:
        self.swept.append(frozenset(uids))

    def export(self, uid: str, image: bool) -> Iterator[bytes]:
        yield f"{uid} {image}".encode()

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
        self.imports.append((bytes_max, may_load_image))
        if b"".join(pieces) != b"good":
            raise SnapshotError("Damaged", "the archive is damaged")
        self.stored[uid] = SnapshotContent(
            *(uid, namespace, name, "a", "u"), 0.0, "i", "sha256:i", "full-isolation", "fake", imported=True
        )
        return self.stored[uid]
