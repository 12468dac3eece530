"""Looking: one list for all, one inspect for what is new or changed, limits from the cgroups for the rest.

A look that fails says so and means nothing else: it is tried again, whole, until the engine answers.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.inspect import belongs_to, container_of, labels_of, name_of, state_of, unread
from controller.engine.docker.lifetime import life_of
from controller.engine.docker.networks import Networks
from controller.engine.exec.stuck_exec import Freer
from controller.engine.kernel.cgroups import Cgroups, Unreadable
from controller.engine.kernel.inside import read_inside
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.observe.view import Seen, View, unknown
from controller.engine.usage.limits import in_force, read_limits
from controller.kinds.common import labels as own
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.container import Limits
from controller.policy.attest.mounted import moved
from controller.ports import Meter, NullMeter

log = logging.getLogger(__name__)

# One container may hang the engine's inspect; when more do, it is the engine that hangs.
_TIMEOUTS_A_LOOK = 2
_SOON_SECONDS = 1.0
_LIVE = (State.RUNNING, State.PAUSED)


class Foreign(Exception):
    """A container that is not ours, or not of the object that asks: it is never touched. `owner` is in words."""

    def __init__(self, container_id: str, name: str, owner: str) -> None:
        super().__init__(f"the container {name} ({container_id[:12]}) belongs to {owner}")
        self.id = container_id
        self.name = name
        self.owner = owner


class Looker:
    """Reads the engine into the view, in whatever thread calls. Only `read` and `look` talk to the engine."""

    def __init__(
        self,
        instance_id: str,
        client: Client,
        view: View,
        cgroups: Cgroups,
        networks: Networks,
        read_guard: Callable[[], None],
        meter: Meter | None = None,
        mounts: HostMounts | None = None,
    ) -> None:
        self._mounts = mounts
        self._instance_id, self._meter = instance_id, meter or NullMeter()
        self._client = client
        self._view = view
        self._cgroups, self._freer = cgroups, Freer(cgroups)
        self._networks, self._read_guard = networks, read_guard
        self._one_at_a_time = threading.Lock()
        self._patience = 0

    def read(self, reference: str) -> Seen:
        """Inspect one container, by id or name, into the view. Raises Fault (404: gone, and noted), Foreign."""
        seen = self._inspected(reference)
        self._view.put(seen)
        return seen

    def known(self, container_id: str) -> Container:
        """A container as it was seen last; read, if it never was. Raises Fault, Foreign."""
        seen = self._view.seen(container_id)
        return (seen or self.read(container_id)).container

    def inside(self, container_id: str) -> Container:
        """A container with what is true inside it now; the engine is asked only about one that can't be seen into.

        Raises Fault, Foreign.
        """
        seen = self._view.seen(container_id)
        shown = self._attested(seen.container) if seen is not None and seen.container.state in _LIVE else None
        if seen is None or shown is None or shown.inside is None or shown.inside.unread:
            return self.read(container_id).container
        self._view.put(replace(seen, container=shown))  # what was learned of it meanwhile is newer than the rest of it
        return shown

    def paused(self, container_id: str) -> None:
        """Somebody has paused it: see that the engine does not wait for a command in it, before its calls time out."""
        self._freer.soon(container_id, self._stands)

    def free(self, container_id: str) -> bool:
        """Whether the engine waited for ever for a command in that container; it has been freed."""
        return self._freer.free(container_id) > 0

    def _stands(self, container_id: str) -> bool:
        """Whether the engine does not answer for that container soon."""
        path = f"/containers/{container_id}/json"
        try:
            self._client.stream("containers.inspect", "GET", path, timeout_seconds=_SOON_SECONDS).release()
        except Fault as fault:
            return fault.kind == "timeout"
        return False

    def _inspected(self, reference: str, *, again: bool = True) -> Seen:
        ticket, at_ns, drift_ns = self._view.ticket(), time.time_ns(), clock_drift_ns()
        try:
            data = self._client.call("containers.inspect", lambda api: api.inspect_container(reference))
        except Fault as fault:
            if fault.gone:
                self._view.not_found(reference, ticket)
            if again and fault.kind == "timeout" and self.free(reference):
                return self._inspected(reference, again=False)
            raise
        if not belongs_to(labels_of(data), self._instance_id):
            instance = labels_of(data).get(own.INSTANCE)
            owner = f"the Paddock with instance id {instance}" if instance else "somebody else"
            raise Foreign(str(data["Id"]), str(data.get("Name", "")).lstrip("/"), owner)
        container, configured = container_of(data, swap_limit=self._view.now.facts.swap_limit)
        measured = self._measured(container, configured)
        shown = self._attested(measured or container)
        return Seen(shown, configured, ticket, at_ns, drift_ns, measured=measured is not None)

    def look(self, *, full: bool = False) -> bool:
        """One look at everything; False when the engine could not be looked at (the view is blind then).

        After a blind time it is full in any case: nobody told what happened meanwhile.
        """
        with self._one_at_a_time:
            full = full or bool(self._view.now.blind)
            self._patience, began = _TIMEOUTS_A_LOOK, time.perf_counter()
            ticket = self._view.ticket()
            life = life_of(self._client.base_url)
            self._read_guard()
            try:
                self._networks.look()
                rows = self._client.call("containers.list", self._list)
                ours = {str(row["Id"]): row for row in rows if belongs_to(row.get("Labels"), self._instance_id)}
                found = [seen for row in ours.values() if (seen := self._look_at(row, full=full)) is not None]
            except Fault as fault:
                self._view.blind(fault.words)
                return False
            self._view.settle(ticket, found, frozenset(ours), life=life)
            self._cgroups.keep_only(ours.keys())
            if self._mounts:
                held = self._view.now.containers.items()
                alive = {uid for uid, own in held if any(each.state in _LIVE for each in own)}
                self._mounts.sweep({uid for uid, _ in held}, alive)
            self._meter.gauge("paddock_reconcile_full_sync_duration_seconds", time.perf_counter() - began)
            return True

    def _list(self, api: Any) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = api.containers(
            all=True, filters={"label": [f"{own.INSTANCE}={self._instance_id}"]}
        )
        return listed

    def _look_at(self, row: Mapping[str, Any], *, full: bool) -> Seen | None:
        """What this row's container is now; None: nothing new. Raises Fault only if the engine went away."""
        id_ = str(row["Id"])
        known = self._view.seen(id_)
        if full or known is None or not _same(known.container, row):
            return self._inspect(row, known)
        if known.container.state not in _LIVE:
            return None
        ticket = self._view.ticket()
        measured = self._measured(known.container, known.configured)
        if measured is None:
            # A host that hides its cgroups always did; where they could be read, the process is another one now.
            return self._inspect(row, known) if known.measured else None
        if measured == known.container:
            return None
        return replace(known, container=measured, ticket=ticket)

    def _inspect(self, row: Mapping[str, Any], known: Seen | None) -> Seen | None:
        try:
            return self._inspected(str(row["Id"]))
        except Foreign:
            return None
        except Fault as fault:
            if fault.gone:
                return None  # gone; or just being created, which is listed before it can be inspected
            self._patience -= fault.kind == "timeout"
            if fault.kind == "connection" or self._patience < 0:
                raise
            log.warning("container %s is listed but can't be read: %s", name_of(row), fault.words)
            ticket = self._view.ticket()
            return unknown(known, ticket) if known else Seen(unread(row), _NO_LIMITS, ticket)

    def _attested(self, container: Container) -> Container:
        """A container with what was bound for it; a live one with what is true inside it."""
        if container.state not in _LIVE:
            return replace(container, bound=self._mounts.bound(container.uid) if self._mounts else ())
        inside = read_inside(container.pid, container.id, self._cgroups.proc)
        # In this order: what is bound while the inside is read is noted before it is there.
        bound = self._mounts.bound(container.uid) if self._mounts else ()
        if self._mounts and moved(inside, bound):
            bound = self._mounts.renamed(container.uid)
            inside = read_inside(container.pid, container.id, self._cgroups.proc)
        return replace(container, inside=inside, bound=bound)

    def _measured(self, container: Container, configured: Limits) -> Container | None:
        """A live container with the limits that are in force, None where the cgroups don't tell."""
        if container.state not in _LIVE:
            return None
        try:
            reading = read_limits(self._cgroups, container.id, container.pid)
        except Unreadable:
            return None
        # What the engine remembers holds from the next start on, even where the kernel does not hold it now.
        limits, swap_bytes = in_force(configured, reading), reading.swap_bytes or container.by_hand.swap_bytes
        if (limits, swap_bytes) == (container.limits, container.by_hand.swap_bytes):
            return container
        return replace(container, limits=limits, by_hand=replace(container.by_hand, swap_bytes=swap_bytes))


_NO_LIMITS = Limits(0, 0, 0)


def _same(container: Container, row: Mapping[str, Any]) -> bool:
    """Whether a list's row still shows the container as it is known."""
    if (container.state, container.name) != (state_of(str(row.get("State", ""))), name_of(row)):
        return False
    # Connecting a network makes no event that bears our label: this is how it is noticed.
    networks = (row.get("NetworkSettings") or {}).get("Networks") or {}
    return container.state not in _LIVE or tuple(sorted(networks)) == container.networks


def clock_drift_ns() -> int:
    """Wall clock minus monotonic clock: it moves when somebody sets the wall clock."""
    return time.time_ns() - time.monotonic_ns()


class BackgroundLook:
    """One thread that looks when asked, and again with growing pauses until a look succeeds."""

    def __init__(self, looker: Looker, view: View, *, pauses_seconds: tuple[float, float]) -> None:
        self._looker = looker
        self._view = view
        self._first_pause, self._longest_pause = pauses_seconds
        self._changed = threading.Condition()
        self._wanted = False
        self._full = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine-look", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request(self, *, full: bool = False) -> None:
        """Ask for a look soon; requests that wait together are one look."""
        with self._changed:
            self._wanted = True
            self._full = self._full or full
            self._changed.notify()

    def stop(self) -> None:
        """Ends the thread after the call it is in."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = self._first_pause
        retry = False
        while (asked := self._next(pause if retry else None)) is not None:
            guarded(self._looker.look, full=asked)
            retry = bool(self._view.now.blind) or self._doubtful()
            pause = min(pause * 2, self._longest_pause) if retry else self._first_pause

    def _next(self, patience_seconds: float | None) -> bool | None:
        """Wait for a request or the end of patience: whether a full look is wanted; None: stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._stopping, patience_seconds)
            full, self._wanted, self._full = self._full, False, False
            return None if self._stopping else full

    def _doubtful(self) -> bool:
        seen = self._view.now.containers.values()
        return any(each.state is State.UNKNOWN for group in seen for each in group)


def guarded(do: Callable[..., object], /, **options: Any) -> None:
    """Run one step of an endless thread: a bug in it is told, and must not end the watch for good."""
    try:
        do(**options)
    except Exception:
        log.exception("watching the engine: a step failed; going on")
