"""Root layers by `docker commit`: of an engine elsewhere, or one that gives no access to the folders of its layers.

Slower than a copy of the folder, and less: holes become zeros, access lists go. The image of the commit is removed at
once; where the daemon dies before that, at its next start.
"""

import json
import os
import tarfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from controller.archive.names import Unsafe
from controller.archive.state.bounds import BoundExceeded, Bounds, Report
from controller.archive.state.exchange import from_layer
from controller.archive.tar import TarError
from controller.engine.archiver.run import WorkFailed
from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.snapshots.export import check_room
from controller.kinds.runtime.snapshot import LAYER_REPOSITORY

_SAVED = "commit.tar"


@dataclass(frozen=True, slots=True)
class CommittedLayer:
    """A committed root layer: the image of the commit, and whether it has a layer more than the container's image."""

    image_id: str
    is_changed: bool


class Committer:
    """Commits containers of one engine. Any thread may use it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def commit(self, container_id: str, image_id: str, uid: str, *, pause: bool) -> CommittedLayer:
        """Commit a container, for the snapshot of that uid. `pause`: it stands still meanwhile. Raises Fault."""
        committed = self._client.call(
            "containers.commit",
            lambda api: api.commit(container_id, repository=LAYER_REPOSITORY, tag=uid, pause=pause),
            container=container_id,
        )
        counts = [len(self._layers(image)) for image in (image_id, str(committed["Id"]))]
        return CommittedLayer(str(committed["Id"]), counts[1] > counts[0])

    def save(
        self, layer: CommittedLayer, folder: Path, output: int, bounds: Bounds, mount_points: Collection[bytes]
    ) -> Report:
        """Write the top layer of a commit into an open file, by way of a file in `folder`.

        Raises Fault, WorkFailed, SnapshotError, OSError.
        """
        saved = folder / _SAVED
        try:
            self.save_image(layer.image_id, saved)
            with os.fdopen(os.dup(output), "wb") as file, tarfile.open(saved, "r:") as image:
                manifest = image.extractfile("manifest.json")
                if manifest is None:
                    raise WorkFailed("Unsupported", "the engine's archive of an image has no manifest")
                (listed,) = json.loads(manifest.read())
                top = image.extractfile(listed["Layers"][-1])
                if top is None:
                    raise WorkFailed("Unsupported", "the engine's archive of an image lacks its layer")
                return from_layer(top, file.write, bounds, mount_points)
        except BoundExceeded as error:
            raise WorkFailed("TooLarge", str(error)) from error
        except (TarError, Unsafe, tarfile.TarError, KeyError, ValueError) as error:
            raise WorkFailed("Unsupported", f"the engine's archive of an image can't be read: {error}") from error
        finally:
            saved.unlink(missing_ok=True)

    def save_image(self, image_id: str, path: Path) -> None:
        """Save an image into a file, while the disk has room. Raises Fault, SnapshotError, OSError."""
        stream = self._client.call("images.save", lambda api: api.get_image(image_id))
        with path.open("wb") as file:
            for count, piece in enumerate(stream):
                if not count & 15:
                    check_room(path.parent)
                file.write(piece)

    def remove(self, uid: str) -> None:
        """Remove the image of a commit. Never raises."""
        with suppress(Fault):
            self._client.call("images.remove", lambda api: api.remove_image(f"{LAYER_REPOSITORY}:{uid}"))

    def _layers(self, image_id: str) -> list[str]:
        image = self._client.call("images.inspect", lambda api: api.inspect_image(image_id))
        return list((image.get("RootFS") or {}).get("Layers") or ())
