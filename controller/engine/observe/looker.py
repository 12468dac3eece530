"""Looking: one list for all, one inspect for what is new or changed, limits from the cgroups for the rest.

A look that fails says so and means nothing else: it is tried again, whole, until the engine answers. A container that
the engine does not answer for in time is Unknown, and holds up nobody else.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
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

OBSERVE_SECONDS = 3.0  # for one container, and a start of it, on a loaded engine
_SOON_SECONDS = 1.0
_AT_A_TIME = 16
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
        observe_seconds: float = OBSERVE_SECONDS,
    ) -> None:
        """`observe_seconds` is the longest wait for the engine's answer about one container."""
        self._mounts, self._observe_seconds = mounts, observe_seconds
        self._doubted: Callable[[], None] = lambda: None
        self._instance_id, self._meter = instance_id, meter or NullMeter()
        self._client = client
        self._view = view
        self._cgroups, self._freer = cgroups, Freer(cgroups)
        self._networks, self._read_guard = networks, read_guard
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """Stop watching for runtimes that hang."""
        self._freer.close()

    def on_doubt(self, call: Callable[[], None]) -> None:
        """From now on `call` that when a container turned out to be unreadable between two looks."""
        self._doubted = call

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
        self._freer.soon(container_id, self._hangs)

    def beginning(self, container_id: str, begun: Callable[[], bool]) -> None:
        """A command begins in it: see that the engine does not wait for that for ever. `begun` says when it has begun.

        A container that the engine does not answer for meanwhile is Unknown.
        """
        self._freer.soon(container_id, self._hangs, begun)

    def free(self, container_id: str) -> bool:
        """Whether the engine waited for ever for a command in that container; it has been freed."""
        return self._freer.free(container_id) > 0

    def doubt(self, container_id: str) -> None:
        """The engine does not answer for it: it is Unknown from now on, and looked at again soon."""
        self._view.doubt(container_id)
        self._doubted()

    def _hangs(self, container_id: str) -> bool:
        """Tell whether the engine does not answer for that container soon; then it is Unknown."""
        seen = self._view.seen(container_id)
        if seen is not None and seen.container.state is State.UNKNOWN:
            return True
        try:
            self._client.inspect(container_id, timeout_seconds=_SOON_SECONDS)
        except Fault as fault:
            if fault.kind not in ("timeout", "busy"):
                return False
            self.doubt(container_id)
            return True
        return False

    def _inspected(self, reference: str, *, again: bool = True) -> Seen:
        ticket, at_ns, drift_ns = self._view.ticket(), time.time_ns(), clock_drift_ns()
        try:
            data = self._client.inspect(reference, timeout_seconds=self._observe_seconds)
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
            full, began = full or bool(self._view.now.blind), time.perf_counter()
            ticket = self._view.ticket()
            life = life_of(self._client.base_url)
            self._read_guard()
            try:
                self._networks.look()
                rows = self._client.call("containers.list", self._list)
                ours = {str(row["Id"]): row for row in rows if belongs_to(row.get("Labels"), self._instance_id)}
                hanging = {id_: row for id_, row in ours.items() if self._known_to_hang(id_)}
                found = self._look_at_all((ours[id_] for id_ in ours.keys() - hanging.keys()), full=full)
            except Fault as fault:
                self._view.blind(fault.words)
                return False
            self._view.settle(ticket, found, frozenset(ours), life=life)
            self._try_again(hanging.values())
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

    def _known_to_hang(self, container_id: str) -> bool:
        known = self._view.seen(container_id)
        return known is not None and known.container.state is State.UNKNOWN

    def _try_again(self, hanging: Iterable[Mapping[str, Any]]) -> None:
        """Look at those that were Unknown before: the longest ago first, and no more than hold this up for one wait."""

        def looked_at(row: Mapping[str, Any]) -> int:
            known = self._view.seen(str(row["Id"]))
            return known.ticket if known else 0

        try:
            for seen in self._inspect_all(sorted(hanging, key=looked_at)[:_AT_A_TIME]):
                self._view.put(seen)
        except Fault as fault:
            self._view.blind(fault.words)

    def _look_at_all(self, rows: Iterable[Mapping[str, Any]], *, full: bool) -> list[Seen]:
        """Return what is new of these. Raises Fault if the engine went away."""
        asked, found = [], []
        for row in rows:
            known = self._view.seen(str(row["Id"]))
            if full or known is None or not _same(known.container, row):
                asked.append(row)
            elif known.container.state in _LIVE:
                ticket = self._view.ticket()
                measured = self._measured(known.container, known.configured)
                if measured is None:
                    # A host that hides its cgroups always did; where they could be read, the process is another now.
                    asked += [row] if known.measured else []
                elif measured != known.container:
                    found.append(replace(known, container=measured, ticket=ticket))
        return [*found, *self._inspect_all(asked)]

    def _inspect_all(self, rows: list[Mapping[str, Any]]) -> list[Seen]:
        """Inspect these side by side; one that the engine does not answer for is Unknown.

        Raises Fault if it is the engine that does not answer.
        """
        if len(rows) < 2:
            found = [self._inspect(row) for row in rows]
        else:
            with ThreadPoolExecutor(min(_AT_A_TIME, len(rows)), thread_name_prefix="engine-look") as pool:
                found = list(pool.map(self._inspect, rows))
        late = [each for each in found if isinstance(each, Fault) and each.kind == "timeout"]
        if late and not self._client.answers(self._observe_seconds):
            raise late[0]
        seen = (
            self._unread(row, each) if isinstance(each, Fault) else each for row, each in zip(rows, found, strict=True)
        )
        return [each for each in seen if each is not None]

    def _inspect(self, row: Mapping[str, Any]) -> Seen | Fault | None:
        """Return a row's container as it is now; None: nothing to be told. Raises Fault if the engine went away."""
        try:
            return self._inspected(str(row["Id"]))
        except Foreign:
            return None
        except Fault as fault:
            if fault.kind == "connection":
                raise
            # Gone; or just being created, which is listed before it can be inspected.
            return None if fault.gone else fault

    def _unread(self, row: Mapping[str, Any], fault: Fault) -> Seen | None:
        """A container that is listed but can't be read; None where somebody else waits for it, and will tell."""
        known = self._view.seen(str(row["Id"]))
        if fault.kind == "busy" and known is not None:
            return None
        if known is None or known.container.state is not State.UNKNOWN:
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
        looker.on_doubt(self.request)
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
