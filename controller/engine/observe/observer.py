"""Observer: one list of all containers, an inspect for new or changed ones, and for the rest what the kernel has.

Those are the limits in the cgroups, and the mounts inside: one that somebody takes away makes no event.

A failed observation makes the view blind and changes nothing else; it is retried, in full, until the engine answers. A
container that the engine does not answer for in time is Unknown, and delays no other.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.inspect import (
    NO_NETWORK,
    belongs_to,
    container_of,
    labels_of,
    name_of,
    networks_of,
    state_of,
    unreadable_container,
)
from controller.engine.docker.lifetime import engine_run_of
from controller.engine.docker.networks import Networks
from controller.engine.docker.view import View, ViewEntry, unknown
from controller.engine.kernel.cgroups import Cgroups, OutsideCgroup, Unreadable, read_at
from controller.engine.kernel.engine_socket import unix_path
from controller.engine.kernel.inside import read_inside
from controller.engine.kernel.page_out import read_frozen_memory
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.observe.stuck_exec import StuckExecWatch
from controller.engine.observe.use_marks import UseMarks
from controller.engine.usage.limits import in_force, read_limits
from controller.kinds.common import labels as own
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.container import Limits
from controller.policy.attest.mounted import has_moved
from controller.ports import Meter, NullMeter
from controller.processes.keeper import Keeper

log = logging.getLogger(__name__)

OBSERVE_SECONDS = 3.0  # for one container, also while it starts, on a loaded engine
_SOON_SECONDS = 1.0
_AT_A_TIME = 16
_LIVE = (State.RUNNING, State.PAUSED)


class Foreign(Exception):
    """The container belongs to another instance or object, and is never touched. `owner` is for messages."""

    def __init__(self, container_id: str, name: str, owner: str) -> None:
        super().__init__(f"the container {name} ({container_id[:12]}) belongs to {owner}")
        self.id = container_id
        self.name = name
        self.owner = owner


# One observation in so many reads the kernel's files of a frozen container: no process of it can change what they say.
_ROUNDS_OF_FROZEN = 4


class Observer:
    """Reader of the engine into the view, in the caller's thread."""

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
        use_marks: UseMarks | None = None,
        observe_seconds: float = OBSERVE_SECONDS,
    ) -> None:
        """`observe_seconds` bounds the wait for the engine's answer about one container."""
        self._mounts, self._use_marks, self._observe_seconds = mounts, use_marks, observe_seconds
        self._doubted: Callable[[], None] = lambda: None
        self._hung: Callable[[str], None] = lambda _: None
        self._instance_id, self._meter = instance_id, meter or NullMeter()
        self._client = client
        self._same_host = bool(unix_path(client.base_url))  # its processes are those of this host
        self._view = view
        self._cgroups, self._stuck_execs = cgroups, StuckExecWatch(cgroups)
        self._networks, self._read_guard = networks, read_guard
        self._one_at_a_time = threading.Lock()
        self._rounds = 0
        self._mount_tables: dict[str, int] = {}  # by container: a hash of what was mounted in it, for the next resync

    def close(self) -> None:
        """Stop watching for runtimes that hang."""
        self._stuck_execs.close()

    def on_doubt(self, call: Callable[[], None]) -> None:
        """Register a callback for containers that become Unknown between two observations."""
        self._doubted = call

    def on_hang(self, call: Callable[[str], None]) -> None:
        """Register a callback for a container with which the engine hangs."""
        self._hung = call

    def read(self, reference: str) -> ViewEntry:
        """Inspect one container, by id or name, into the view. Raises Fault (404: gone, and recorded), Foreign."""
        view_entry = self._inspected(reference)
        self._view.put(view_entry)
        return view_entry

    def container_of(self, container_id: str) -> Container:
        """Return a container as last observed; inspect it if it never was. Raises Fault, Foreign."""
        view_entry = self._view.entry_of(container_id)
        return (view_entry or self.read(container_id)).container

    def inside(self, container_id: str) -> Container:
        """Return a container attested now; the engine is called only if its inside can't be read.

        Raises Fault, Foreign.
        """
        view_entry = self._view.entry_of(container_id)
        attested = (
            self._attested(view_entry.container)
            if view_entry is not None and view_entry.container.state in _LIVE
            else None
        )
        if view_entry is None or attested is None or attested.inside is None or attested.inside.unread:
            return self.read(container_id).container
        self._view.put(replace(view_entry, container=attested))  # its other data may have been updated meanwhile
        return attested

    def paused(self, container_id: str) -> None:
        """Watch a paused container for a stuck exec, before calls time out."""
        self._stuck_execs.soon(container_id, self._hangs)

    def beginning(self, container_id: str, has_begun: Callable[[], bool]) -> None:
        """Watch a starting command until it `has_begun`, so that the engine does not wait for it for ever.

        A container that hangs meanwhile becomes Unknown.
        """
        self._stuck_execs.soon(container_id, self._hangs, has_begun)

    def free(self, container_id: str) -> bool:
        """Kill a stuck exec of that container; return whether there was one."""
        return self._stuck_execs.free(container_id) > 0

    def doubt(self, container_id: str) -> None:
        """Mark a hanging container as Unknown, free what may hang it, and observe it again soon."""
        self._hung(container_id)
        self._view.doubt(container_id)
        self._doubted()

    def _hangs(self, container_id: str) -> bool:
        """Tell whether the container hangs; then it becomes Unknown."""
        view_entry = self._view.entry_of(container_id)
        if view_entry is not None and view_entry.container.state is State.UNKNOWN:
            return True
        try:
            self._client.inspect(container_id, timeout_seconds=_SOON_SECONDS)
        except Fault as fault:
            if fault.kind not in ("timeout", "busy"):
                return False
            self.doubt(container_id)
            return True
        return False

    def _inspected(self, reference: str, *, again: bool = True) -> ViewEntry:
        ticket, at_ns, drift_ns = self._view.ticket(), time.time_ns(), clock_drift_ns()
        try:
            data = self._client.inspect(reference, timeout_seconds=self._observe_seconds)
        except Fault as fault:
            if fault.is_gone:
                self._view.not_found(reference, ticket)
            if again and fault.kind == "timeout" and self.free(reference):
                return self._inspected(reference, again=False)
            raise
        if not belongs_to(labels_of(data), self._instance_id):
            instance = labels_of(data).get(own.INSTANCE)
            owner = f"the Paddock with instance id {instance}" if instance else "another owner"
            raise Foreign(str(data["Id"]), str(data.get("Name", "")).lstrip("/"), owner)
        container, configured = container_of(data, swap_limit=self._view.now.facts.swap_limit)
        measured = self._measured(container, configured)
        if measured is None and container.state in _LIVE and self._same_host:
            container = replace(container, limits=None)  # what was configured may be in force or not
        attested = self._attested(measured or container)
        return ViewEntry(attested, configured, ticket, at_ns, drift_ns, measured=measured is not None)

    def observe_now(self, *, full: bool = False) -> bool:
        """Observe everything once; return False if the engine is unreachable (the view is blind then).

        After a blind period it is always a full resync: events were missed.
        """
        with self._one_at_a_time:
            self._rounds += 1
            full, started = full or bool(self._view.now.blind), time.perf_counter()
            ticket = self._view.ticket()
            engine_run = engine_run_of(self._client.base_url)
            self._read_guard()
            try:
                self._networks.observe_now()
                marked_ids = self._marked_ids()
                rows = self._client.call("containers.list", self._list)
                ours = {str(row["Id"]): row for row in rows if belongs_to(row.get("Labels"), self._instance_id)}
                hanging = {id_: row for id_, row in ours.items() if self._known_to_hang(id_)}
                changes = self._look_at_all((ours[id_] for id_ in ours.keys() - hanging.keys()), full=full)
            except Fault as fault:
                self._view.blind(fault.message)
                return False
            self._view.settle(ticket, changes, frozenset(ours), engine_run=engine_run)
            self._try_again(hanging.values())
            self._remove_marks(marked_ids - ours.keys())
            self._cgroups.keep_only(ours.keys())
            self._mount_tables = {id_: table for id_, table in self._mount_tables.items() if id_ in ours}
            if self._mounts:
                containers_by_uid = self._view.now.containers.items()
                alive = {
                    uid
                    for uid, containers in containers_by_uid
                    if any(container.state in _LIVE for container in containers)
                }
                self._mounts.sweep({uid for uid, _ in containers_by_uid}, alive)
            self._meter.gauge("paddock_reconcile_full_sync_duration_seconds", time.perf_counter() - started)
            return True

    def _marked_ids(self) -> frozenset[str]:
        """Return the containers with a mark of use, before they are listed: one that is marked later is not listed."""
        with suppress(OSError):
            return self._use_marks.ids() if self._use_marks is not None else frozenset()
        return frozenset()

    def _remove_marks(self, gone_ids: frozenset[str]) -> None:
        """Remove the marks of containers that are gone; the next observation tries those again that it can't."""
        with suppress(OSError):
            if self._use_marks is not None:
                self._use_marks.remove(gone_ids)

    def _list(self, api: Any) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = api.containers(
            all=True, filters={"label": [f"{own.INSTANCE}={self._instance_id}"]}
        )
        return listed

    def _known_to_hang(self, container_id: str) -> bool:
        view_entry = self._view.entry_of(container_id)
        return view_entry is not None and view_entry.container.state is State.UNKNOWN

    def _try_again(self, hanging: Iterable[Mapping[str, Any]]) -> None:
        """Retry containers that were Unknown, the longest ago first, and only as many as one wait allows."""

        def looked_at(row: Mapping[str, Any]) -> int:
            view_entry = self._view.entry_of(str(row["Id"]))
            return view_entry.ticket if view_entry else 0

        try:
            for view_entry in self._inspect_all(sorted(hanging, key=looked_at)[:_AT_A_TIME]):
                self._view.put(view_entry)
        except Fault as fault:
            self._view.blind(fault.message)

    def _look_at_all(self, rows: Iterable[Mapping[str, Any]], *, full: bool) -> list[ViewEntry]:
        """Return the changes of these containers. Raises Fault if the engine becomes unreachable."""
        rows_to_inspect, changes = [], []
        for row in rows:
            view_entry = self._view.entry_of(str(row["Id"]))
            if full or view_entry is None or not _is_unchanged(view_entry.container, row):
                rows_to_inspect.append(row)
            elif self._is_read_now(view_entry.container):
                ticket = self._view.ticket()
                measured = self._measured(view_entry.container, view_entry.configured)
                if measured is None or (measured.cgroups_lost and not view_entry.container.cgroups_lost):
                    # If the cgroups were readable before, the process has changed or moved; else the host hides them.
                    rows_to_inspect += [row] if view_entry.measured else []
                    continue
                current = self._attested(measured) if self._mounts_moved(measured) else measured
                if current.inside is not None and current.inside.unread and current is not measured:
                    rows_to_inspect.append(row)  # it may have ended: the engine knows
                elif current != view_entry.container:
                    changes.append(replace(view_entry, container=current, ticket=ticket, measured=True))
        return [*changes, *self._inspect_all(rows_to_inspect)]

    def _is_read_now(self, container: Container) -> bool:
        """Tell whether this observation reads the kernel's files of an unchanged container."""
        if container.state is State.PAUSED:
            return self._rounds % _ROUNDS_OF_FROZEN == 0
        return container.state in _LIVE

    def _mounts_moved(self, container: Container) -> bool:
        """Tell whether anything was mounted or unmounted inside since the last call. Costs a fifth of attesting."""
        try:
            table = hash(read_at(None, f"{self._cgroups.proc}/{container.pid}/mountinfo"))
        except OSError:
            return True
        moved_since = self._mount_tables.get(container.id) != table
        self._mount_tables[container.id] = table
        return moved_since

    def _inspect_all(self, rows: list[Mapping[str, Any]]) -> list[ViewEntry]:
        """Inspect these in parallel; a hanging container becomes Unknown.

        Raises Fault if the whole engine does not answer.
        """
        if len(rows) < 2:
            answers = [self._inspect(row) for row in rows]
        else:
            with ThreadPoolExecutor(min(_AT_A_TIME, len(rows)), thread_name_prefix="engine-look") as pool:
                answers = list(pool.map(self._inspect, rows))
        late = [answer for answer in answers if isinstance(answer, Fault) and answer.kind == "timeout"]
        if late and not self._client.answers(self._observe_seconds):
            raise late[0]
        entries = (
            self._unreadable(row, answer) if isinstance(answer, Fault) else answer
            for row, answer in zip(rows, answers, strict=True)
        )
        return [entry for entry in entries if entry is not None]

    def _inspect(self, row: Mapping[str, Any]) -> ViewEntry | Fault | None:
        """Inspect a row's container; None if it is gone or foreign. Raises Fault if the engine is unreachable."""
        try:
            return self._inspected(str(row["Id"]))
        except Foreign:
            return None
        except Fault as fault:
            if fault.kind == "connection":
                raise
            # Gone; or being created: listed, but not yet inspectable.
            return None if fault.is_gone else fault

    def _unreadable(self, row: Mapping[str, Any], fault: Fault) -> ViewEntry | None:
        """Return a listed container as Unknown; None if another call waits for it already."""
        view_entry = self._view.entry_of(str(row["Id"]))
        if fault.kind == "busy" and view_entry is not None:
            return None
        if view_entry is None or view_entry.container.state is not State.UNKNOWN:
            log.warning("container unreadable: %s: %s", name_of(row), fault.message)
        ticket = self._view.ticket()
        return unknown(view_entry, ticket) if view_entry else ViewEntry(unreadable_container(row), _NO_LIMITS, ticket)

    def _attested(self, container: Container) -> Container:
        """Return a container with its mounts, and a live one with its attested inside."""
        live = container.state in _LIVE
        inside = read_inside(container.pid, container.id, self._cgroups.proc) if live else None
        if self._mounts is None:
            return replace(container, inside=inside)
        # In this order: a mount is recorded before it exists, so none found inside is unknown.
        bound = self._mounts.bound(container.uid)
        if inside is not None and has_moved(inside, bound):
            bound = self._mounts.renamed(container.uid)
            inside = read_inside(container.pid, container.id, self._cgroups.proc)
        unrecorded = bool(container.slots) and not self._mounts.is_recorded(container.uid)
        return replace(container, inside=inside, bound=bound, unrecorded=unrecorded)

    def _measured(self, container: Container, configured: Limits) -> Container | None:
        """Return a live container with the limits in force, or with the loss of them; None: they can't be read."""
        if container.state not in _LIVE:
            return None
        try:
            reading = read_limits(self._cgroups, container.id, container.pid)
        except OutsideCgroup:
            # On another host the pid is another process's. An engine without cgroups (rootless) has none to lose.
            can_be_lost = self._same_host and self._view.now.facts.cgroup_driver != "none"
            return replace(container, limits=None, cgroups_lost=True) if can_be_lost else None
        except Unreadable:
            return None
        frozen = None
        if container.state is State.PAUSED:
            frozen = read_frozen_memory(self._cgroups, container.id, container.pid)
        # The engine's swap setting applies from the next start on, even if the kernel's differs now.
        limits, swap_bytes = in_force(configured, reading), reading.swap_bytes or container.out_of_band.swap_bytes
        former = (container.limits, container.out_of_band.swap_bytes, container.frozen_memory)
        if (limits, swap_bytes, frozen) == former:
            return container
        out_of_band = replace(container.out_of_band, swap_bytes=swap_bytes)
        return replace(container, limits=limits, cgroups_lost=False, out_of_band=out_of_band, frozen_memory=frozen)


_NO_LIMITS = Limits(0, 0, 0)


def _is_unchanged(container: Container, row: Mapping[str, Any]) -> bool:
    """Tell whether a list's row matches the container as last observed."""
    if (container.state, container.name) != (state_of(str(row.get("State", ""))), name_of(row)):
        return False
    # Connecting a network emits no event with our label; this detects it.
    networks = networks_of(row.get("NetworkSettings"))
    return container.state not in _LIVE or (networks or (NO_NETWORK,)) == (container.networks or (NO_NETWORK,))


def clock_drift_ns() -> int:
    """Return wall clock minus monotonic clock: it changes when the wall clock is set."""
    return time.time_ns() - time.monotonic_ns()


class BackgroundObserver(Keeper):
    """Thread that observes on request, and retries with back-off until it succeeds."""

    name, log_name = "engine-look", "paddock.engine"

    def __init__(self, observer: Observer, view: View, *, pauses_seconds: tuple[float, float]) -> None:
        self._observer = observer
        observer.on_doubt(self.request)
        self._view = view
        self._first_pause, self._longest_pause = pauses_seconds
        self._pause = self._first_pause
        self._resync_due = threading.Event()
        super().__init__()

    def request(self, *, full: bool = False) -> None:
        """Request an observation; pending requests are merged."""
        if full:
            self._resync_due.set()
        self.wake()

    def step(self) -> float | None:
        """Observe once; again after a pause if the engine or a container could not be read."""
        # Cleared before it observes, and only if seen: a request meanwhile is for the next step.
        if is_full := self._resync_due.is_set():
            self._resync_due.clear()
        guarded(self._observer.observe_now, full=is_full)
        if not self._view.now.blind and not self._any_unknown():
            self._pause = self._first_pause
            return None
        self._pause = min(self._pause * 2, self._longest_pause)
        return self._pause

    def _any_unknown(self) -> bool:
        groups = self._view.now.containers.values()
        return any(container.state is State.UNKNOWN for group in groups for container in group)


def guarded(do: Callable[..., object], /, **options: Any) -> None:
    """Run one step of an endless thread; log an exception instead of ending the thread."""
    try:
        do(**options)
    except Exception:
        log.exception("engine watch step failed")
