"""Paddock's own images on the engine. Only images with our label are removed, and never by force."""

from collections.abc import Callable, Sequence
from typing import Any

from controller.engine.docker.agent_runtimes import AgentRuntimes
from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.kinds.runtime.agent import AgentRuntime
from controller.kinds.runtime.images import OURS, HostImage

_NO_NAME = "<none>"


class DockerImages:
    """kinds.images.Images over one engine."""

    def __init__(self, client: Client, agents: AgentRuntimes) -> None:
        self._client, self._agents = client, agents

    def ours(self) -> Sequence[HostImage] | None:
        try:
            rows = self._client.call("images.list", lambda api: api.images(filters={"label": OURS}))
        except Fault:
            return None
        return [_image(str(row["Id"]), row) for row in rows]

    def remove(self, image: HostImage) -> str:
        try:
            found = self._client.call("images.inspect", lambda api: api.inspect_image(image.id))
            if OURS not in ((found.get("Config") or {}).get("Labels") or {}):
                return f"it does not have the label {OURS}"
            # An image that was tagged meanwhile stays. The engine itself refuses an image in use.
            if set(_image(image.id, found).names) - set(image.names):
                return "it was tagged meanwhile"
            for name in image.names or (image.id,):
                self._client.call("images.remove", _removal(name))
        except Fault as fault:
            return "" if fault.gone else fault.message
        return ""

    def agent_runtimes(self) -> Sequence[AgentRuntime] | None:
        try:
            return self._agents.all()
        except Fault:
            return None

    def remove_agent_runtime(self, runtime: AgentRuntime) -> str:
        try:
            return self._agents.remove(runtime)
        except Fault as fault:
            return fault.message


def _removal(name: str) -> Callable[[Any], None]:
    return lambda api: api.remove_image(name)


def _image(image_id: str, data: dict[str, Any]) -> HostImage:
    names = (each for each in data.get("RepoTags") or () if not each.startswith(_NO_NAME))
    digests = (each for each in data.get("RepoDigests") or () if not each.startswith(_NO_NAME))
    return HostImage(image_id, tuple(sorted(names)), tuple(sorted(digests)))
