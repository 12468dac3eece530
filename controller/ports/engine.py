"""Ports to the engine and the host: observing, acting, probing, measuring."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from controller.kinds.observed.canary import CanaryTry
from controller.kinds.observed.observed import Container, Observation
from controller.kinds.observed.pressure import HostUse
from controller.kinds.observed.swap import HostSwap
from controller.kinds.observed.usage import Usage
from controller.kinds.planning.action import Action
from controller.kinds.planning.outcome import Outcome
from controller.kinds.runtime.agent import AgentRuntime
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.images import HostImage, ImageBuild, ImageProgress, ImagePull
from controller.kinds.runtime.network import EngineRules, FirewallState
from controller.kinds.runtime.probe import ProbeResult, Watch
from controller.kinds.runtime.secret import ListedSecret
from controller.kinds.volume import HostVolume
from controller.ports.common import Wake


class Engine(Protocol):
    """Observes and changes the containers of one instance id. No method raises for an error of the engine."""

    def open(self, wake: Wake) -> None:
        """Start watching in the background; `wake` is called (from any thread) after each change of the view."""
        ...

    def close(self) -> None:
        """Stop watching and free every connection. Containers are left as they are."""
        ...

    def observe(self) -> Observation:
        """Return the newest observation. No I/O, never blocks."""
        ...

    def request_observation(self, *, full: bool = False) -> None:
        """Request an observation in the background: one list, and limits from the cgroups; `full` inspects all."""
        ...

    def observe_now(self, *, full: bool = False) -> Observation:
        """Observe at once, in this thread. An unreachable engine gives a blind observation."""
        ...

    def observe_container(self, container_id: str) -> str:
        """Inspect one container, inside too, at once in this thread. Return "" on success, else the reason."""
        ...

    def mark_used(self, container_id: str) -> None:
        """Record, outside of any store, that a container is used: observed by this daemon or the next one.

        Raises StreamError.
        """
        ...

    def act(self, action: Action) -> Outcome:
        """Carry out one action, within a time limit. After Ok, `observe()` shows the effect or a later state."""
        ...

    def ping(self) -> str:
        """Return "" if the engine answers, else the reason."""
        ...


class Firewall(Protocol):
    """The host's packet filter, read-only."""

    def guard(self) -> FirewallState:
        """Return the current state of the rules for sandboxes' networks. Never raises."""
        ...

    def engine_rules(self, subnets: Collection[str]) -> EngineRules:
        """Return the engine's own rules, as far as these subnets need them. Never raises."""
        ...

    def generation(self) -> int | None:
        """Return a number that moves with every change of the rules; None if it can't be read. Cheap; never raises."""
        ...


class Probes(Protocol):
    """Runs probes in sandboxes."""

    def probe(self, watch: Watch) -> ProbeResult:
        """Run one probe, within about its timeout. Never raises: a probe that can't run is `unknown`."""
        ...


class HostGauge(Protocol):
    def read(self, root_dir: str) -> HostUse:
        """Return the machine's free resources now; unreadable ones are left out. Never raises."""
        ...


class SwapGauge(Protocol):
    def read(self) -> HostSwap:
        """Return the machine's active swap now. Never raises."""
        ...


class UsageReader(Protocol):
    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        """Return the usage by container id, read now. Containers that can't be read completely are left out."""
        ...


class CpuReader(Protocol):
    def cpu_seconds(self, containers: Iterable[Container]) -> Mapping[str, float]:
        """Return the CPU time since its start by container id, read now. Containers that can't be read are left out."""
        ...


class Canary(Protocol):
    """Network canary: tries to reach forbidden addresses from inside sandbox networks."""

    def observe_now(self, config: ContainerConfig, range_: str) -> CanaryTry:
        """Try, with containers like `config` on networks of that range (CIDR). Takes some seconds. Never raises."""
        ...

    def clean(self) -> None:
        """Remove everything that tries left behind. Never raises."""
        ...


class ImageError(Exception):
    """Work on an image that failed; the message is for the user. `found` is False if there is no such image.

    `detail` is for operators alone ("": the message says all).
    """

    def __init__(self, message: str, *, found: bool = True, detail: str = "") -> None:
        super().__init__(message)
        self.found, self.detail = found, detail


class ImageWork(Iterator[ImageProgress], Protocol):
    """A running pull, build or push. Iterate it to its end; it raises ImageError. `close`, from any thread, ends it."""

    def close(self) -> None: ...


class Images(Protocol):
    """The engine's images."""

    def all(self) -> Sequence[HostImage]:
        """Return every image that has a name. Raises ImageError."""
        ...

    def find(self, name: str) -> HostImage | None:
        """Return the image of that name; None if it is not on this host. Raises ImageError."""
        ...

    def pull(self, name: str, *, seconds: float) -> ImageWork:
        """Pull an image, even if one of that name is here: a tag may have moved. Raises ImageError."""
        ...

    def pulling(self) -> Sequence[ImagePull]:
        """Return the pulls in progress that sandboxes wait for. No I/O."""
        ...

    def build(self, ask: ImageBuild) -> ImageWork:
        """Build an image. Every image it makes has the label OURS. Bases must be here: it pulls none."""
        ...

    def push(self, name: str, *, seconds: float) -> ImageWork:
        """Push an image to the registry in its name, with this host's login. Raises ImageError."""
        ...

    def ours(self) -> Sequence[HostImage] | None:
        """Return the images with our label; None if they can't be listed now. Never raises."""
        ...

    def remove(self, image: HostImage) -> str:
        """Remove one, if it still has our label and no container uses it.

        Empty when it is gone, else why not. Never raises.
        """
        ...

    def delete(self, name: str) -> str:
        """Delete an image that people name, whoever made it, unless a container or a snapshot uses it.

        Empty when it is gone, else why not. Never raises.
        """
        ...

    def agent_runtimes(self) -> Sequence[AgentRuntime] | None:
        """Return the runtimes of agents; None if they can't be listed now. Never raises."""
        ...

    def remove_agent_runtime(self, runtime: AgentRuntime) -> str:
        """Remove one that no container mounts. Empty when it is gone, else why not. Never raises."""
        ...


class Secrets(Protocol):
    """The operator's secrets."""

    def read(self, namespace: str, name: str) -> bytes:
        """Return the secret's value in that namespace, read now. Raises NoSecret."""
        ...


class SecretFiles(Protocol):
    """The operator's secrets, as their files. Values are written, and never returned."""

    def all(self) -> Sequence[ListedSecret]:
        """Return the secrets of all namespaces. Raises NoSecret."""
        ...

    def write(self, namespace: str, name: str, value: bytes, use: str, hosts: Sequence[str]) -> bool:
        """Write a secret; return True if it is new. Raises NoSecret."""
        ...


class VolumesUnreachable(Exception):
    """The volumes can't be read or removed now; the message says why."""


class VolumeInUse(Exception):
    """The volume is mounted in a container."""


class Volumes(Protocol):
    """The volumes on this host. Each call may block for some seconds and raise VolumesUnreachable."""

    def list(self, namespace: str | None = None) -> Sequence[HostVolume]:
        """Return the volumes of a namespace (None: of all), by namespace and name."""
        ...

    def is_mounted(self, namespace: str, name: str) -> bool:
        """Return True if a container has it mounted. Waits a moment for the kernel to release one just gone."""
        ...

    def remove(self, namespace: str, name: str) -> None:
        """Remove one for good. Gone already is success. Raises VolumeInUse."""
        ...
