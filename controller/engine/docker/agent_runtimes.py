"""Runtimes of agents on the engine: volumes filled from the agent's image, and mounted read-only into sandboxes.

The engine fills an empty volume from an image's folder when it creates a container with both. That container, named as
the volume and never started, stays: it exists only once the volume is complete, and protects volume and image from
being pruned. Runtimes are shared by all instances on an engine.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.inspect import labels_of
from controller.engine.docker.view import View
from controller.kinds.common.labels import AGENT
from controller.kinds.planning.outcome import Outcome, Transient, Waiting
from controller.kinds.runtime.agent import FOLDER, IMAGE, VOLUME_PREFIX, AgentRuntime, volume_name

_FILLING_SECONDS = 0.2


def mount_of(volume: str) -> Mapping[str, Any]:
    """Return the mount of a runtime for the engine's create call. A folder of the sandbox's image never fills it."""
    return {
        "Type": "volume",
        "Source": volume,
        "Target": FOLDER,
        "ReadOnly": True,
        "VolumeOptions": {"NoCopy": True},
    }


class AgentRuntimes:
    """Runtimes of one engine. Thread-safe, also against other daemons: the container's name is the lock."""

    def __init__(self, client: Client, view: View) -> None:
        self._client, self._view = client, view

    def image(self) -> str:
        """Return the id of the agent's image; "" if it is not on this host. Raises Fault."""
        try:
            return str(self._client.image(IMAGE)["Id"])
        except Fault as fault:
            if fault.is_gone:
                return ""
            raise

    def observe_now(self) -> None:
        """Record the agent's image in the view. Errors leave it as it is."""
        with suppress(Fault):
            self._view.agent(self.image())

    def ensure(self, reference: str) -> str | Outcome:
        """Return the volume for that agent image (its id, or its name), filled if missing. Raises Fault."""
        image = reference if volume_name(reference) else self.image() or self._newest()
        volume = volume_name(image)
        if not volume:
            return _no_image()
        if self._filled_from(volume) == image:
            return volume
        stored = self._volume(volume)
        if stored is not None and _image_of(stored) != image:
            return _name_conflict(volume, "volume")
        return self._fill(volume, image)

    def all(self) -> Sequence[AgentRuntime]:
        """Return the runtimes on this engine. Raises Fault."""
        return [
            AgentRuntime(image, is_used=self._is_used(str(volume["Name"])))
            for volume in self._volumes()
            if (image := _image_of(volume)) and volume_name(image) == volume["Name"]
        ]

    def remove(self, runtime: AgentRuntime) -> str:
        """Remove a runtime that no container mounts; return why not, "" if it is gone. Raises Fault."""
        volume = volume_name(runtime.image)
        stored = self._volume(volume)
        if stored is None:
            return ""
        if _image_of(stored) != runtime.image or self._is_used(volume):
            return "a container uses it"
        with suppress(Fault):
            self._client.call("containers.remove", lambda api: api.remove_container(volume))
        return "" if self._drop(volume) else "a container uses it"

    def _fill(self, volume: str, image: str) -> str | Outcome:
        # One that no container mounts may be incomplete: the engine may have died while it copied.
        self._drop(volume)
        options = {"Labels": {AGENT: image}}
        mount = {"Type": "volume", "Source": volume, "Target": FOLDER, "VolumeOptions": options}
        body = {
            "Image": image,
            "Entrypoint": ["never-started"],
            "Labels": {AGENT: image},
            "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
        }
        try:
            self._client.call("containers.create", lambda api: api.create_container_from_config(body, volume))
        except Fault as fault:
            if fault.is_gone:
                self.observe_now()
                return volume if self._is_used(volume) else _no_image()
            if fault.status != 409:
                raise
            filled_image = self._filled_from(volume)
            if filled_image is None:
                return Waiting(_FILLING_SECONDS, "AgentNotReady", f"the agent's runtime {volume} is being filled")
            return volume if filled_image == image else _name_conflict(volume, "container")
        return volume

    def _filled_from(self, volume: str) -> str | None:
        """Return the image that the container of that name has filled its volume from; None: there is none."""
        try:
            answer = self._client.call("containers.inspect", lambda api: api.inspect_container(volume))
        except Fault as fault:
            if fault.is_gone:
                return None
            raise
        return labels_of(answer).get(AGENT, "")

    def _is_used(self, volume: str) -> bool:
        """Tell whether a container mounts it, besides the one that filled it."""
        filters = {"volume": [volume]}
        rows = self._client.call("containers.list", lambda api: api.containers(all=True, filters=filters))
        return any(AGENT not in (row.get("Labels") or {}) for row in rows)

    def _drop(self, volume: str) -> bool:
        """Remove a volume; return False if a container mounts it."""
        try:
            self._client.call("volumes.remove", lambda api: api.remove_volume(volume))
        except Fault as fault:
            if fault.status == 409:
                return False
            if not fault.is_gone:
                raise
        return True

    def _volume(self, name: str) -> Mapping[str, Any] | None:
        return next((volume for volume in self._volumes() if volume["Name"] == name), None)

    def _volumes(self) -> Sequence[Mapping[str, Any]]:
        answer = self._client.call("volumes.list", lambda api: api.volumes(filters={"name": VOLUME_PREFIX}))
        return answer.get("Volumes") or ()

    def _newest(self) -> str:
        """Return the image of the newest runtime; "" if there is none."""
        ours = (volume for volume in self._volumes() if _image_of(volume))
        newest = max(ours, key=lambda volume: str(volume.get("CreatedAt", "")), default=None)
        return _image_of(newest) if newest else ""


def _image_of(volume: Mapping[str, Any]) -> str:
    return str((volume.get("Labels") or {}).get(AGENT, ""))


def _no_image() -> Outcome:
    return Transient("AgentImageMissing", f"the agent's image {IMAGE} is not on this host; run `images/build.sh agent`")


def _name_conflict(name: str, what: str) -> Outcome:
    message = f"the {what} {name} is somebody else's; remove or rename it (`docker {what} rm {name}`)"
    return Transient("NameConflict", message)
