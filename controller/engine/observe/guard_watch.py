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
from controller.processes.keeper import Keeper

_ASK_SECONDS = 0.5
_NO_FIREWALL = FirewallState("this daemon has no firewall to read")


class GuardWatch(Keeper):
    """Poller that reads the guard into the view. Thread-safe."""

    name, log_name, first_seconds = "engine-guard", "paddock.engine", _ASK_SECONDS

    def __init__(self, firewall: Firewall | None, view: View, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called after each change of the rules, once the guard was read."""
        self._firewall, self._view, self._changed = firewall, view, changed
        self._one_at_a_time = threading.Lock()
        self._generation: int | None = None
        super().__init__()

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
        """Start the thread, if there is a firewall to read."""
        if self._firewall is not None:
            super().start()

    def step(self) -> float | None:
        """Poll once."""
        guarded(self.follow)
        return _ASK_SECONDS
