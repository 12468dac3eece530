"""Images on the engine. Without a person's request only images with our label are removed; none is by force."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from controller.engine.docker.agent_runtimes import AgentRuntimes
from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.images.build_cgroup import BuildCgroup
from controller.engine.images.image_work import DockerImageWork, start_build, start_pull, start_push
from controller.engine.images.pull import Pulls
from controller.engine.images.registries import Registries
from controller.kinds.runtime.agent import AgentRuntime
from controller.kinds.runtime.images import OURS, HostImage, ImageBuild, ImagePull
from controller.kinds.runtime.snapshot import IMAGE_REPOSITORY
from controller.ports import ImageError

_NO_NAME = "<none>"


class DockerImages:
    """ports.Images over one engine."""

    def __init__(self, client: Client, agents: AgentRuntimes, pulls: Pulls, registries: Registries) -> None:
        self._client, self._agents, self._pulls, self._registries = client, agents, pulls, registries
        self._build_cgroup = BuildCgroup(client)

    def all(self) -> Sequence[HostImage]:
        try:
            rows = self._client.call("images.list", lambda api: api.images())
        except Fault as fault:
            raise ImageError(fault.message) from fault
        return [image for image in (_image(str(row["Id"]), row) for row in rows) if image.names]

    def find(self, name: str) -> HostImage | None:
        try:
            answer = self._client.image(name)
        except Fault as fault:
            if fault.is_gone:
                return None
            raise ImageError(fault.message) from fault
        return _image(str(answer["Id"]), answer)

    def pull(self, name: str, *, seconds: float) -> DockerImageWork:
        return start_pull(self._client, name, seconds, self._registries)

    def pulling(self) -> Sequence[ImagePull]:
        return self._pulls.all()

    def build(self, ask: ImageBuild) -> DockerImageWork:
        return start_build(self._client, ask, self._build_cgroup)

    def push(self, name: str, *, seconds: float) -> DockerImageWork:
        return start_push(self._client, name, seconds)

    def ours(self) -> Sequence[HostImage] | None:
        try:
            rows = self._client.call("images.list", lambda api: api.images(filters={"label": OURS}))
        except Fault:
            return None
        return [_image(str(row["Id"]), row) for row in rows]

    def remove(self, image: HostImage) -> str:
        try:
            answer = self._client.image(image.id)
            if OURS not in ((answer.get("Config") or {}).get("Labels") or {}):
                return f"it does not have the label {OURS}"
            names = _image(image.id, answer).names
            if any(name.startswith(f"{IMAGE_REPOSITORY}:") for name in names):
                return "a snapshot begins from it"
            # An image that was tagged meanwhile stays. The engine itself refuses an image in use.
            if set(names) - set(image.names):
                return "it was tagged meanwhile"
            for name in image.names or (image.id,):
                self._client.call("images.remove", _removal(name))
        except Fault as fault:
            return "" if fault.is_gone else fault.message
        return ""

    def delete(self, name: str) -> str:
        try:
            image = self.find(name)
            if image is None:
                return ""
            if any(label.startswith(f"{IMAGE_REPOSITORY}:") for label in image.names):
                return "a snapshot begins from it"
            self._client.call("images.remove", _removal(name))  # the engine refuses one that a container uses
        except ImageError as error:
            return str(error)
        except Fault as fault:
            return "" if fault.is_gone else fault.message
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
    names = (name for name in data.get("RepoTags") or () if not name.startswith(_NO_NAME))
    config = data.get("Config") or {}
    digests = (digest for digest in data.get("RepoDigests") or () if not digest.startswith(_NO_NAME))
    return HostImage(
        image_id,
        tuple(sorted(names, key=lambda name: (name.startswith(f"{IMAGE_REPOSITORY}:"), name))),
        tuple(sorted(digests)),
        size_bytes=int(data.get("Size") or 0),
        created_at=_seconds(data.get("Created")),
        triggers=bool(config.get("OnBuild")),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        working_dir=str(config.get("WorkingDir") or ""),
        volumes=tuple(sorted(config.get("Volumes") or {})),
    )


def _seconds(created: Any) -> float:
    """Return Unix seconds of a list's number, or of an inspection's RFC 3339 text; 0 for neither."""
    if isinstance(created, int):
        return float(created)
    try:
        return datetime.fromisoformat(str(created)[:19] + "+00:00").timestamp()
    except ValueError:
        return 0.0
