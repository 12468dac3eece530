"""Ports to the engine and the host: observing, acting, probing, measuring."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from controller.kinds.observed.canary import Sighting
from controller.kinds.observed.observed import Container, Observation
from controller.kinds.observed.pressure import HostUse
from controller.kinds.observed.usage import Usage
from controller.kinds.planning.action import Action
from controller.kinds.planning.outcome import Outcome
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.images import HostImage
from controller.kinds.runtime.network import Guard
from controller.kinds.runtime.probe import ProbeResult, Watch
from controller.kinds.volume import KeptVolume
from controller.ports.common import Wake


class Engine(Protocol):
    """Sees and changes the containers of one instance id. No method raises for what the engine answered."""

    def open(self, wake: Wake) -> None:
        """Start watching in the background; `wake` is called (from any thread) after each change of the view."""
        ...

    def close(self) -> None:
        """Stop watching and free every connection. Containers are left as they are."""
        ...

    def observe(self) -> Observation:
        """The newest view. No I/O, never blocks."""
        ...

    def request_look(self, *, full: bool = False) -> None:
        """Ask for a look in the background: one list, and limits from the cgroups; `full` inspects all."""
        ...

    def look(self, *, full: bool = False) -> Observation:
        """The same, at once and in this thread. An engine that can't be reached gives a blind view."""
        ...

    def look_at(self, container_id: str) -> str:
        """Look at one container, inside too, at once and in this thread. Empty when it was seen, else why not."""
        ...

    def act(self, action: Action) -> Outcome:
        """Carry out one action, within a time limit. After Ok, `observe()` shows the effect or something later."""
        ...

    def ping(self) -> str:
        """Empty when the engine answers, else why not, in words."""
        ...


class Firewall(Protocol):
    """The host's packet filter, as far as Paddock reads it."""

    def guard(self) -> Guard:
        """Return the guard of sandboxes' networks as it is now. Never raises."""
        ...

    def generation(self) -> int | None:
        """Return a number that moves with every change of the rules; None if it can't be read. Cheap; never raises."""
        ...


class Probes(Protocol):
    """Asks boxes how they are."""

    def probe(self, watch: Watch) -> ProbeResult:
        """Run one probe, within about its timeout. Never raises: what can't be run is `unknown`."""
        ...


class HostGauge(Protocol):
    def read(self, root_dir: str) -> HostUse:
        """What the engine's machine has left, read now; what can't be read is left out. Never raises."""
        ...


class UsageReader(Protocol):
    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        """Usage by container id, read now. A container that can't be read whole is left out."""
        ...


class Canary(Protocol):
    """A port: tries from inside networks, as boxes have them, what must not be reached from there."""

    def look(self, config: ContainerConfig, range_: str) -> Sighting:
        """Try, with containers like `config` on networks of that range (CIDR). Takes some seconds. Never raises."""
        ...

    def clean(self) -> None:
        """Remove all that tries have left. Never raises."""
        ...


class Images(Protocol):
    """The engine's images, as far as they are ours."""

    def ours(self) -> Sequence[HostImage] | None:
        """Those that bear our label; None: they can't be looked at now. Never raises."""
        ...

    def remove(self, image: HostImage) -> str:
        """Remove one, if it still bears our label and no container is made of it.

        Empty when it is gone, else why not. Never raises.
        """
        ...


class Secrets(Protocol):
    """The operator's secrets."""

    def read(self, namespace: str, name: str) -> bytes:
        """The value of that name in that namespace, read now. Raises NoSecret."""
        ...


class VolumesUnreachable(Exception):
    """The volumes can't be read or removed now; says why."""


class VolumeInUse(Exception):
    """The volume is mounted in a container."""


class Volumes(Protocol):
    """The volumes on this host. Each call may block for some seconds and raise VolumesUnreachable."""

    def list(self, namespace: str | None = None) -> Sequence[KeptVolume]:
        """Return those of a namespace (None: of all), by namespace and name."""
        ...

    def is_mounted(self, namespace: str, name: str) -> bool:
        """Return True if a container has it mounted. Waits a moment for the kernel to release one just gone."""
        ...

    def remove(self, namespace: str, name: str) -> None:
        """Remove one for good. Gone already is success. Raises VolumeInUse."""
        ...
