"""Root layers by `docker commit`: of an engine elsewhere, or one that gives no access to the folders of its layers.

Slower than a copy of the folder, and less: holes become zeros, access lists go. As holes become zeros on the engine's
disk, too, a layer is measured first. The image of a commit is removed at once; one that was cut off, or that came after
its time-out, before the next commit, at the next sweep, or at the daemon's next start.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from controller.archive.tar import END
from controller.engine.archiver.run import WorkFailed, run_worker
from controller.engine.docker.client import Client
from controller.engine.docker.errors import FOREIGN, Fault, fault_of
from controller.engine.snapshots.export import check_room
from controller.engine.snapshots.folder import RESERVE_BYTES
from controller.engine.snapshots.layers import is_store
from controller.kinds.common.labels import INSTANCE
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.runtime.snapshot import LAYER_REPOSITORY

_SAVED = "commit.tar"
_EXPORT_SECONDS = 600.0
_PIECES = 512  # between two looks at the room of the disk
# A commit that timed out goes on in the engine: so long its image may come.
_LATE_SECONDS = 24 * 3600.0
_log = logging.getLogger(__name__)

FreeBytes = Callable[[Mapping[str, Any]], int | None]  # RootLayers.free_bytes


@dataclass(frozen=True, slots=True)
class CommittedLayer:
    """A committed root layer: the image of the commit, and whether it has a layer more than the container's image."""

    image_id: str
    is_changed: bool


class Committer:
    """Commits containers of one engine for the Paddock of that instance id. Any thread may use it.

    The images of commits have the labels of their containers: others of the same engine are not touched.
    """

    def __init__(self, client: Client, free_bytes: FreeBytes, instance_id: str) -> None:
        self._client, self._free_bytes, self._instance_id = client, free_bytes, instance_id
        self._lock = threading.Lock()
        self._uids: set[str] = set()  # of captures under way
        self._is_due = True  # an earlier daemon may have left some
        self._late_until = 0.0  # until when an image may come of a commit that timed out

    def commit(self, request: CaptureRequest, ends_at: float) -> CommittedLayer:
        """Commit the container of a request, which stands still. `release` removes the image, also after an error.

        `ends_at` is of the monotonic clock. Raises Fault, WorkFailed, OSError.
        """
        with self._lock:
            self._uids.add(request.uid)
        container = request.container
        image_bytes, layer_count = self._image(container.image_id)
        info = self._client.call("info", lambda api: api.info())
        tag = f"{request.uid}.{secrets.token_hex(4)}"  # no try takes the name of another, which would hide its image
        reference = urlencode({"container": container.id, "repo": LAYER_REPOSITORY, "tag": tag, "pause": 0})
        with _in_time(request.seconds_max):
            self._check_size(request, info, image_bytes, ends_at)
            try:
                # Not as a call for this container: the engine holds no lock meanwhile, and others may go on.
                committed = self._client.post(
                    "containers.commit", f"/commit?{reference}", {}, timeout_seconds=_remaining(ends_at)
                )
            except Fault as fault:
                if fault.unreachable:
                    self._late_until = time.monotonic() + _LATE_SECONDS
                raise
        image_id = str(committed["Id"])
        return CommittedLayer(image_id, self._image(image_id)[1] > layer_count)

    @contextmanager
    def paused(self, container_id: str) -> Iterator[None]:
        """Have the engine pause a container meanwhile. Raises Fault. Where it can't be resumed, the next pass does."""
        self._client.call("containers.pause", lambda api: api.pause(container_id), container=container_id)
        try:
            yield
        finally:
            try:
                self._client.call("containers.unpause", lambda api: api.unpause(container_id), container=container_id)
            except Fault as fault:
                _log.warning("container %s stays paused, and is resumed later: %s", container_id[:12], fault.message)

    def save(
        self,
        request: CaptureRequest,
        layer: CommittedLayer,
        folder: Path,
        *,
        output: int,
        mount_points: Sequence[str],
    ) -> dict[str, Any]:
        """Write the top layer of a commit into an open file, by way of a file in `folder`; return the report.

        Raises Fault, WorkFailed, SnapshotError, OSError.
        """
        saved = folder / _SAVED
        ends_at = time.monotonic() + request.seconds_max
        try:
            with _in_time(request.seconds_max):
                self.save_image(layer.image_id, saved, ends_at)
            with saved.open("rb") as file:
                part = {"input": file.fileno(), "output": output, "mount_points": list(mount_points)}
                ask = {
                    "operation": "convert",
                    "bounds": {
                        "entries": request.entries_max,
                        "bytes": request.bytes_max,
                        "seconds": request.seconds_max,
                    },
                    "parts": [part],
                }
                (report,) = run_worker(ask, [file.fileno(), output])["reports"]
                return dict(report)
        except WorkFailed as error:
            if error.reason != "Damaged":
                raise
            raise WorkFailed("Unsupported", f"its root layer can't be restored from a commit: {error}") from error
        finally:
            saved.unlink(missing_ok=True)

    def save_image(self, image_id: str, path: Path, ends_at: float | None = None) -> None:
        """Save an image into a file, while the disk has room. Raises Fault, SnapshotError, OSError."""
        ends_at = time.monotonic() + _EXPORT_SECONDS if ends_at is None else ends_at
        with path.open("wb") as file:
            for count, piece in enumerate(self._pieces("images.save", f"/images/{quote(image_id)}/get", ends_at)):
                if not count % _PIECES:
                    check_room(path.parent)
                file.write(piece)

    def release(self, uid: str) -> None:
        """Remove the image of a commit. Never raises: it is tried again with each `sweep`."""
        with self._lock:
            self._uids.discard(uid)
        self.sweep()

    def sweep(self) -> None:
        """Remove the images that no capture under way owns. Never raises."""
        self._is_due = False
        try:
            names = self._image_names()
        except Fault as fault:
            self._is_due = True
            _log.warning("images of commits are not listed, and are removed later: %s", fault.message)
            return
        for name in names:
            with self._lock:
                if name.partition(":")[2].rpartition(".")[0] in self._uids:
                    continue
            try:
                self._client.call("images.remove", partial(_remove, name))
            except Fault as fault:
                self._is_due = self._is_due or not fault.is_gone
                _log.warning("image %s of a commit stays, and is removed later: %s", name, fault.message)

    def sweep_again(self) -> None:
        """Remove what an earlier sweep could not, and what came after its time-out. Never raises."""
        if self._is_due or time.monotonic() < self._late_until:
            self.sweep()

    def _image_names(self) -> list[str]:
        """Return the names of the images of commits. Raises Fault."""
        filters = {"reference": f"{LAYER_REPOSITORY}:*", "label": f"{INSTANCE}={self._instance_id}"}
        images = self._client.call("images.list", lambda api: api.images(filters=filters))
        names = [name for image in images for name in image.get("RepoTags") or ()]
        return [name for name in names if name.startswith(f"{LAYER_REPOSITORY}:")]

    def _image(self, image_id: str) -> tuple[int, int]:
        """Return the bytes and the number of layers of an image. Raises Fault."""
        image = self._client.image(image_id)
        return int(image.get("Size") or 0), len((image.get("RootFS") or {}).get("Layers") or ())

    def _check_size(self, request: CaptureRequest, info: Mapping[str, Any], image_bytes: int, ends_at: float) -> None:
        """Refuse a layer that is too large for a snapshot or for the engine's disk. Raises Fault, WorkFailed, OSError.

        A commit writes it twice, and an engine saves an image by way of a file of its own.
        """
        most, free = request.bytes_max, self._free_bytes(info)
        if free is not None:
            most = min(most, max(0, free - RESERVE_BYTES - image_bytes) // 2)
        if is_store(info):
            layer_bytes = self._exported_bytes(request, most + image_bytes, ends_at) - image_bytes
        else:
            layer_bytes = self._client.layer_bytes(request.container.id, timeout_seconds=_remaining(ends_at))
        if layer_bytes > most:
            raise WorkFailed("TooLarge", f"its root layer has more than {most} bytes, with holes as zeros")

    def _exported_bytes(self, request: CaptureRequest, most: int, ends_at: float) -> int:
        """Return the bytes of a container's root file system with holes as zeros, of more than `most` just so many.

        The containerd image store counts blocks, which holes have none of. Raises Fault.
        """
        count, tail = 0, b""
        for piece in self._pieces("containers.export", f"/containers/{quote(request.container.id)}/export", ends_at):
            count, tail = count + len(piece), (tail + piece)[-len(END) :]
            if count > most:
                return count
        if tail != END:  # the engine reports an error only in the stream, if at all
            raise Fault("5xx", "the engine does not tell its size", status=500)
        return count

    def _pieces(self, operation: str, path: str, ends_at: float) -> Iterator[bytes]:
        """Yield what the engine streams, until `ends_at`. Raises Fault."""
        stream = self._client.stream(operation, "GET", path, timeout_seconds=_remaining(ends_at))
        try:
            while piece := stream.read():
                if time.monotonic() > ends_at:
                    raise Fault("timeout", "the engine did not end its answer in time")
                yield piece
        except FOREIGN as error:
            raise fault_of(error, self._client.base_url) from error
        finally:
            stream.release()


def _remove(name: str, api: Any) -> None:
    api.remove_image(name)


def _remaining(ends_at: float) -> float:
    return max(1.0, ends_at - time.monotonic())


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    """Make a time-out final: a second try would begin beside the first, which goes on in the engine."""
    try:
        yield
    except Fault as fault:
        if fault.kind != "timeout":
            raise
        problem = f"the engine did not copy its root layer within {seconds:g} s"
        raise WorkFailed("Failed", f"{problem}; delete files in it, or use a read-only root file system") from fault
