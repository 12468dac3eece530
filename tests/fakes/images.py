"""Images of the fake engine: ports.Images."""

from collections.abc import Callable, Sequence

from controller.kinds.runtime.agent import AgentRuntime
from controller.kinds.runtime.images import HostImage


class FakeImages:
    """Fake images. `names` maps names to ids, `used` returns ids in use by containers, `mounted` those of their agents.

    `away`: the engine is down.
    """

    def __init__(
        self, names: dict[str, str], used: Callable[[], set[str]], mounted: Callable[[], set[str]] = set
    ) -> None:
        self._names, self._used, self._mounted = names, used, mounted
        self.runtimes: dict[str, None] = {}  # filled from the agent's image, by its id
        self.built: dict[str, bool] = {}  # whether it bears our label, by id
        self.away = False

    def ours(self) -> Sequence[HostImage] | None:
        return None if self.away else [self._image(id_) for id_, ours in self.built.items() if ours]

    def remove(self, image: HostImage) -> str:
        if self.away:
            return "no Docker Engine answers: connection refused"
        if image.id not in self.built:
            return ""
        if not self.built[image.id]:
            return "it does not have our label"
        if set(self._image(image.id).names) - set(image.names):
            return "it was tagged meanwhile"
        if image.id in self._used():
            return "conflict: a container uses it"
        del self.built[image.id]
        for name in self._image(image.id).names:
            del self._names[name]
        return ""

    def agent_runtimes(self) -> Sequence[AgentRuntime] | None:
        return None if self.away else [AgentRuntime(each, used=each in self._mounted()) for each in self.runtimes]

    def remove_agent_runtime(self, runtime: AgentRuntime) -> str:
        if self.away:
            return "no Docker Engine answers: connection refused"
        if runtime.image in self._mounted():
            return "a container uses it"
        self.runtimes.pop(runtime.image, None)
        return ""

    def _image(self, id_: str) -> HostImage:
        return HostImage(id_, tuple(sorted(name for name, known in self._names.items() if known == id_)))
