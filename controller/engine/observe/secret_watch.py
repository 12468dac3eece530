"""Watch of the secrets in the files of egress proxies: the operator changes them without the daemon.

Polled, as it costs microseconds; what is outdated is shown with its container, and the plan replaces that.
"""

import threading

from controller.engine.docker.errors import Fault
from controller.engine.docker.view import View
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.observe.observer import Foreign, Observer, guarded

_ASK_SECONDS = 1.0


class SecretWatch:
    """Poller that shows containers with outdated files in the view. Thread-safe."""

    def __init__(self, mounts: HostMounts, observer: Observer, view: View) -> None:
        self._mounts, self._observer, self._view = mounts, observer, view
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine-secrets", daemon=True)

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

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present poll."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_ASK_SECONDS):
            guarded(self.follow)
