"""Watch of the secrets in the files of egress proxies: the operator changes them without the daemon.

Polled, as it costs microseconds; what is outdated is shown with its container, and the plan replaces that.
"""

from controller.engine.docker.errors import Fault
from controller.engine.docker.view import View
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.observe.observer import Foreign, Observer, guarded
from controller.processes.keeper import Keeper

_ASK_SECONDS = 1.0


class SecretWatch(Keeper):
    """Poller that shows containers with outdated files in the view. Thread-safe."""

    name, log_name, first_seconds = "engine-secrets", "paddock.engine", _ASK_SECONDS

    def __init__(self, mounts: HostMounts, observer: Observer, view: View) -> None:
        self._mounts, self._observer, self._view = mounts, observer, view
        super().__init__()

    def follow(self) -> None:
        """Read the containers again of which the view does not say yet that their files are outdated."""
        for uid in self._mounts.outdated():
            for container in self._view.now.containers.get(uid, ()):
                if any(mount.outdated for mount in container.bound):
                    continue
                try:
                    self._observer.read(container.id)
                except (Fault, Foreign):
                    continue  # gone, or tried again at the next poll

    def step(self) -> float | None:
        """Poll once."""
        guarded(self.follow)
        return _ASK_SECONDS
