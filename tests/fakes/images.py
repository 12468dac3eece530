"""Images of the fake engine: ports.Images. It builds without running anything, and its registries are one dict."""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from controller.kinds.runtime.agent import AgentRuntime
from controller.kinds.runtime.images import OURS, HostImage, ImageBuild, ImageProgress, ImagePull
from controller.ports import ImageError


class FakeWork:
    """ports.ImageWork over a generator. `close` before the end cancels it; if `stuck`, only that ends it."""

    def __init__(self, what: str, steps: Iterator[ImageProgress], *, stuck: bool = False) -> None:
        self._what, self._steps = what, steps
        self._stuck, self._ended = stuck, threading.Event()

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    def __iter__(self) -> Iterator[ImageProgress]:
        return self

    def __next__(self) -> ImageProgress:
        if self._stuck:
            self._ended.wait(60)
        if self.closed:
            raise ImageError(f"{self._what} was cancelled")
        return next(self._steps)

    def close(self) -> None:
        self._ended.set()


class FakeImages:
    """Fake images. `names` maps names to ids, `used` returns ids in use by containers, `mounted` those of their agents.

    `remote` is what registries have, by name; `locked` are names whose registry wants a login. `sizes`, `triggers`,
    `programs` (entrypoint, command, folder) and `volumes` are of images by name. `opened` are the pieces of work so
    far. `away`: the engine is down.
    """

    def __init__(
        self, names: dict[str, str], used: Callable[[], set[str]], mounted: Callable[[], set[str]] = set
    ) -> None:
        self._names, self._used, self._mounted = names, used, mounted
        self.runtimes: dict[str, None] = {}  # filled from the agent's image, by its id
        self.built: dict[str, bool] = {}  # whether it bears our label, by id
        self.away = False
        self.remote: dict[str, str] = {}
        self.locked: set[str] = set()
        self._moved: set[str] = set()  # names that were pulled or pushed
        self.sizes: dict[str, int] = {}
        self.triggers: set[str] = set()
        self.programs: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {}
        self.volumes: dict[str, tuple[str, ...]] = {}
        self.asked: list[ImageBuild] = []
        self.opened: list[FakeWork] = []
        self.pulls: list[ImagePull] = []
        self.stuck = False  # work that is started from now on ends only when it is closed

    def all(self) -> Sequence[HostImage]:
        self._reach()
        return [self._image(each) for each in dict.fromkeys(self._names.values())]

    def find(self, name: str) -> HostImage | None:
        self._reach()
        found = self._names.get(name, name if name in self._names.values() else None)
        if found is None:
            return None
        image = self._image(found)
        size, digests = self.sizes.get(name, 0), (f"{name.rpartition(':')[0]}@{found}",) if name in self._moved else ()
        entrypoint, command, folder = self.programs.get(name, ((), (), ""))
        made = HostImage(image.id, image.names, digests, size, triggers=name in self.triggers)
        return replace(
            made, entrypoint=entrypoint, command=command, working_dir=folder, volumes=self.volumes.get(name, ())
        )

    def pull(self, name: str, *, seconds: float) -> FakeWork:
        def steps() -> Iterator[ImageProgress]:
            yield ImageProgress("Pulling", "1")
            if name not in self.remote:
                raise ImageError(f"{name}: the registry does not have it, or requires a login")
            self._names[name] = self.remote[name]
            self._moved.add(name)

        return self._work(f"the pull of {name}", steps())

    def push(self, name: str, *, seconds: float) -> FakeWork:
        def steps() -> Iterator[ImageProgress]:
            yield ImageProgress("Pushing", "1")
            if name not in self._names:
                raise ImageError(f"{name} is not on this host; build it, or pull it", found=False)
            if name in self.locked:
                raise ImageError(f"{name}: the registry requires a login")
            self.remote[name] = self._names[name]
            self._moved.add(name)

        return self._work(f"the push of {name}", steps())

    def pulling(self) -> Sequence[ImagePull]:
        return tuple(self.pulls)

    def build(self, ask: ImageBuild) -> FakeWork:
        self.asked.append(ask)
        return self._work(f"the build of {ask.tag}", self._steps(ask))

    def _steps(self, ask: ImageBuild) -> Iterator[ImageProgress]:
        files = _files(ask.context if isinstance(ask.context, bytes) else b"".join(ask.context))
        lines = files[ask.dockerfile].decode().splitlines()
        for line in lines:
            name, _, rest = line.partition(" ")
            yield ImageProgress(f"Step : {line}")
            if name == "FROM" and rest.split()[0] not in (*self._names, "scratch"):
                raise ImageError(f"the build of {ask.tag} failed: {rest} is not here")
            if name == "COPY" and not any(each.startswith(rest.split()[0]) for each in files):
                raise ImageError(f"the build of {ask.tag} failed: COPY failed: file not found")
        made = "sha256:" + hashlib.sha256(repr((sorted(files.items()), ask.tag)).encode()).hexdigest()
        self._names[ask.tag] = made
        said = {name: rest for name, _, rest in (line.partition(" ") for line in lines)}
        words = (tuple(json.loads(said.get(name, "[]"))) for name in ("ENTRYPOINT", "CMD"))
        self.programs[ask.tag] = (*words, said.get("WORKDIR", ""))
        self.volumes[ask.tag] = tuple(sorted(said.get("VOLUME", "").split()))
        self.built[made] = any(line.startswith("LABEL") and OURS in line for line in lines)

    def _work(self, what: str, steps: Iterator[ImageProgress]) -> FakeWork:
        self._reach()
        self.opened.append(FakeWork(what, steps, stuck=self.stuck))
        return self.opened[-1]

    def _reach(self) -> None:
        if self.away:
            raise ImageError("no Docker Engine answers: connection refused")

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

    def delete(self, name: str) -> str:
        if self.away:
            return "no Docker Engine answers: connection refused"
        id_ = self._names.get(name)
        if id_ in self._used() and len(self._image(str(id_)).names) == 1:
            return "conflict: a container uses it"
        self._names.pop(name, None)
        return ""

    def agent_runtimes(self) -> Sequence[AgentRuntime] | None:
        return None if self.away else [AgentRuntime(each, is_used=each in self._mounted()) for each in self.runtimes]

    def remove_agent_runtime(self, runtime: AgentRuntime) -> str:
        if self.away:
            return "no Docker Engine answers: connection refused"
        if runtime.image in self._mounted():
            return "a container uses it"
        self.runtimes.pop(runtime.image, None)
        return ""

    def _image(self, id_: str) -> HostImage:
        return HostImage(id_, tuple(sorted(name for name, known in self._names.items() if known == id_)))


def _files(archive: bytes) -> Mapping[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
        for each in tree:
            data = tree.extractfile(each)
            found[each.name] = data.read() if data else b""
    return found
