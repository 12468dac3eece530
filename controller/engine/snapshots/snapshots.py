"""ports.Snapshots over one engine and the folder of this host's snapshots."""

import contextlib
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.mounts.saved_files import SavedFolders
from controller.engine.snapshots.capture import Capturer
from controller.engine.snapshots.export import export, take_in
from controller.engine.snapshots.folder import SnapshotFolder
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.runtime.snapshot import IMAGE_REPOSITORY, SnapshotContent
from controller.ports.snapshots import SnapshotError


class DockerSnapshots:
    """Snapshots of the sandboxes on one engine."""

    def __init__(
        self, folder: SnapshotFolder, capturer: Capturer, client: Client, saved: SavedFolders | None = None
    ) -> None:
        self._folder, self._capturer, self._client, self._saved = folder, capturer, client, saved
        self.is_capturing, self._committer = capturer.is_capturing, capturer.committer
        self._lock = threading.Lock()
        self._importing: set[str] = set()

    def recover(self) -> Collection[str]:
        uids = self._folder.recover(self.importing())
        self._committer.sweep()
        with contextlib.suppress(SnapshotError):
            for content in self.contents().values():  # a crash may have come before their images had names
                self._keep_image(content)
        return uids

    def capture(self, request: CaptureRequest) -> SnapshotContent:
        content = self._capturer.capture(request, self._folder)
        self._keep_image(content)
        return content

    def contents(self) -> Mapping[str, SnapshotContent]:
        try:
            return self._folder.contents()
        except OSError as error:
            raise _unreadable(error) from error

    def remove(self, uid: str) -> None:
        try:
            self._client.call("images.remove", lambda api: api.remove_image(f"{IMAGE_REPOSITORY}:{uid}", noprune=True))
        except Fault as fault:
            if fault.unreachable:  # without the files, nothing would tell of the name any more
                problem = "the engine is not reachable to remove the name of its image"
                raise SnapshotError("EngineFailed", problem, retry=True) from fault
        try:
            self._folder.remove(uid)
        except OSError as error:
            raise _unreadable(error) from error

    def sweep(self, uids: Collection[str]) -> None:
        try:
            self._committer.sweep_again()
            self._folder.sweep_marks(uids)
            if self._saved is not None:
                self._saved.sweep(uids)
        except OSError as error:
            raise _unreadable(error) from error

    def export(self, uid: str, image: bool) -> Iterator[bytes]:
        content = self._content(uid)
        with tempfile.TemporaryDirectory(dir=self._folder.path(uid)) as stage:
            saved = None
            if image:
                saved = Path(stage) / "image.tar"
                try:
                    self._committer.save_image(content.image_id, saved)
                except Fault as fault:
                    raise SnapshotError("ImageMissing", f"image {content.image}: {fault.message}") from fault
            yield from export(self._folder, content, saved)

    def importing(self) -> Collection[str]:
        with self._lock:
            return frozenset(self._importing)

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
        with self._lock:
            self._importing.add(uid)
        try:
            return self._take_in(uid, namespace, name, pieces, bytes_max, may_load_image=may_load_image)
        finally:
            with self._lock:
                self._importing.discard(uid)

    def _take_in(
        self,
        uid: str,
        namespace: str,
        name: str,
        pieces: Iterator[bytes],
        bytes_max: int,
        *,
        may_load_image: bool,
    ) -> SnapshotContent:
        """Store the snapshot of an archive. Raises SnapshotError; then nothing is left of it."""
        load = self._load_image if may_load_image else self._check_image
        try:
            content = take_in(self._folder, uid, namespace, name=name, pieces=pieces, bytes_max=bytes_max, load=load)
        except (SnapshotError, Fault) as error:
            self._folder.abandon(uid)
            if isinstance(error, Fault):
                raise SnapshotError("ImageRefused", f"the image of the archive: {error.message}") from error
            raise
        except OSError as error:
            self._folder.abandon(uid)
            raise SnapshotError("Failed", f"the archive can't be stored: {error.strerror or error}") from error
        except BaseException:
            self._folder.abandon(uid)
            raise
        self._keep_image(content)
        return content

    def _content(self, uid: str) -> SnapshotContent:
        content = self._folder.content(uid)
        if content is None:
            raise SnapshotError("SnapshotMissing", "its files are not on this host, or not captured yet", retry=True)
        return content

    def _load_image(self, name: str, image_id: str, path: Path | None) -> None:
        """Give an image to the engine, or check that it has it. Raises SnapshotError, Fault, OSError."""
        if path is None:
            self._check_image(name, image_id, None)
            return
        with path.open("rb") as file:
            self._client.call("images.load", lambda api: list(api.load_image(file)))

    def _check_image(self, name: str, image_id: str, path: Path | None) -> None:
        """Check that the host's own image of that name is the one of the archive, whose word for it does not count.

        Raises SnapshotError, Fault.
        """
        if path is not None:
            problem = "it has an image, which only an admin may bring to a host"
            raise SnapshotError("ImageRefused", f"{problem}; export it without its image, and pull that here")
        try:
            image = self._client.image(name)
        except Fault as fault:
            if not fault.is_gone:
                raise
            image = {}
        if image.get("Id") != image_id:
            problem = f"this host has no image {name} with the id {image_id}"
            raise SnapshotError("ImageMissing", f"{problem}; pull or build it, or import the archive with its image")

    def _keep_image(self, content: SnapshotContent) -> None:
        """Give the source's image a name, so that pruning keeps it."""
        with contextlib.suppress(Fault):
            self._client.call(
                "images.tag", lambda api: api.tag(content.image_id, IMAGE_REPOSITORY, content.uid, force=True)
            )


def _unreadable(error: OSError) -> SnapshotError:
    return SnapshotError("Failed", f"the snapshots can't be read or removed: {error.strerror or error}", retry=True)
