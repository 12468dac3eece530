"""Watch of the guard: read at each observation, and at once when the kernel's rules have changed.

The kernel counts the changes of its rules. Polling that number takes microseconds, so it is polled often. The table
itself is read only after a change, by anyone: Docker changes its own rules, too.
"""

import threading
from collections.abc import Callable

from controller.engine.docker.view import View
from controller.engine.observe.observer import guarded
from controller.kinds.runtime.network import FirewallState
from controller.ports import Firewall

_ASK_SECONDS = 0.5
_NO_FIREWALL = FirewallState("this daemon has no firewall to read")


class GuardWatch:
    """Poller that reads the guard into the view. Thread-safe."""

    def __init__(self, firewall: Firewall | None, view: View, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called after each change of the rules, once the guard was read."""
        self._firewall, self._view, self._changed = firewall, view, changed
        self._one_at_a_time = threading.Lock()
        self._generation: int | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine-guard", daemon=True)

    def read(self) -> None:
        """Read it now. A change meanwhile is read at the next poll."""
        if self._firewall is None:
            self._view.guard(_NO_FIREWALL)
            return
        with self._one_at_a_time:
            self._generation = self._firewall.generation()
            self._view.guard(self._firewall.guard())

    def follow(self) -> None:
        """Read it if the rules have changed. If that is unknown, a guard in force is read each time."""
        if self._firewall is None:
            return
        generation = self._firewall.generation()
        if generation != self._generation or (generation is None and not self._view.now.unguarded):
            self.read()
            self._changed()

    def start(self) -> None:
        if self._firewall is not None:
            self._thread.start()

    def stop(self) -> None:
        """End the thread after its present read."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_ASK_SECONDS):
            guarded(self.follow)
