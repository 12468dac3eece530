"""Events only say "look again at this one"; what they carry never decides what a container is.

One thread reads the stream, others inspect what was named, once for any number of events that came meanwhile, and side
by side: a container that the engine does not answer for holds up no other.
After every (re)connect everything is looked at in full: what happened in the gap was told to nobody.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import FOREIGN, Fault, fault_of
from controller.engine.docker.lifetime import listens
from controller.engine.docker.raw_http import Wire
from controller.engine.observe.looker import BackgroundLook, Foreign, Looker, clock_drift_ns, guarded
from controller.engine.observe.view import View
from controller.kinds.common import labels as own
from controller.kinds.observed.observed import HostFacts, State
from controller.ports import Meter

log = logging.getLogger(__name__)

# After these the container is not what it was. `kill` and `stop` say nothing that `die` does not; exec_* are noise.
_TELLING = frozenset({"create", "start", "die", "oom", "pause", "unpause", "rename", "update"})
# How far the wall clock may be set between an inspect and an event for their times to be still comparable.
_DRIFT_NS = 5_000_000
_LISTENING_SECONDS = 0.1
_AT_A_TIME = 16


class Inspector:
    """The threads that inspect the containers named by events, one for a container."""

    def __init__(self, looker: Looker, view: View, background: BackgroundLook, *, same_clock: bool) -> None:
        self._looker = looker
        self._view = view
        self._background = background
        self._same_clock = same_clock
        self._changed = threading.Condition()
        self._dirty: dict[str, int] = {}
        self._busy: set[str] = set()  # containers that are being inspected
        self._held: dict[str, int] = {}  # names of containers that are being acted on, and by how many
        self._parked: dict[str, dict[str, int]] = {}  # by name: what events said of them meanwhile
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine-inspect", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def mark(self, container_id: str, name: str, at_ns: int) -> None:
        """This container changed at `at_ns` (the engine's clock)."""
        with self._changed:
            if name in self._held:
                self._parked.setdefault(name, {})[container_id] = at_ns
                return
            self._dirty[container_id] = at_ns
            self._changed.notify()

    @contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """While this lasts the caller acts on the container of that name, and inspects it itself at the end.

        What events say of it meanwhile is looked into afterwards, if that inspect did not come later anyway.
        """
        with self._changed:
            self._held[name] = self._held.get(name, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._held[name] -= 1
                if not self._held[name]:
                    del self._held[name]
                    self._dirty.update(self._parked.pop(name, {}))
                    self._changed.notify()

    def stop(self) -> None:
        """Ends the threads after the calls they are in."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="engine-inspect") as pool:
            while (dirty := self._next()) is not None:
                for container_id, at_ns in dirty.items():
                    pool.submit(self._inspect, container_id, at_ns)

    def _next(self) -> Mapping[str, int] | None:
        """Return what is to be inspected now; None: stop. What is being inspected already waits for its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._dirty.keys() - self._busy or self._stopping)
            due = {id_: at_ns for id_, at_ns in self._dirty.items() if id_ not in self._busy}
            for each in due:
                del self._dirty[each]
            self._busy.update(due)
            return None if self._stopping else due

    def _inspect(self, container_id: str, at_ns: int) -> None:
        try:
            guarded(self._refresh, container_id=container_id, at_ns=at_ns)
        finally:
            with self._changed:
                self._busy.discard(container_id)
                self._changed.notify()

    def paused(self, container_id: str) -> None:
        """See Looker.paused."""
        self._looker.paused(container_id)

    def _refresh(self, *, container_id: str, at_ns: int) -> None:
        if self._view.is_gone(container_id) or self._known_since(container_id, at_ns):
            return
        if self._hangs(container_id):
            self._background.request()
            return
        try:
            self._looker.read(container_id)
        except Foreign:
            return
        except Fault as fault:
            if fault.kind == "connection":
                # The engine went away, which says nothing of this container; if it is back already, look at all.
                self._background.request(full=True)
            elif not fault.gone:
                self._looker.doubt(container_id)

    def _hangs(self, container_id: str) -> bool:
        """Tell whether the engine did not answer for it before: then the background look alone asks again."""
        seen = self._view.seen(container_id)
        return seen is not None and seen.container.state is State.UNKNOWN

    def _known_since(self, container_id: str, at_ns: int) -> bool:
        """Whether the container was inspected after the event, by the one clock of this host."""
        seen = self._view.seen(container_id)
        if seen is None or seen.drift_ns is None or not self._same_clock:
            return False
        return seen.at_ns > at_ns and abs(clock_drift_ns() - seen.drift_ns) < _DRIFT_NS


class EventStream:
    """The thread that reads one stream of the engine's events, and connects again for ever.

    Events of containers are picked by our label; those of networks bear no label of a container, so they make a
    stream of their own, in which only containers that are known count. `facts` asks the engine what it is.
    """

    def __init__(
        self,
        filters: Mapping[str, list[str]],
        client: Client,
        view: View,
        *,
        background: BackgroundLook,
        inspector: Inspector,
        meter: Meter,
        pauses_seconds: tuple[float, float],
        facts: Callable[[], HostFacts] | None = None,
    ) -> None:
        self._ask = facts or client.probe
        self._filters = filters
        self._client = client
        self._view = view
        self._background = background
        self._inspector = inspector
        self._meter = meter
        self._first_pause, self._longest_pause = pauses_seconds
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._wire: Wire | None = None
        self._connects = 0
        self._thread = threading.Thread(target=self._run, name="engine-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Cuts the stream and ends the thread."""
        self._stopping.set()
        with self._lock:
            if self._wire is not None:
                self._wire.cut()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            guarded(self._watch)
            self._meter.gauge("paddock_docker_event_stream_connected", 0)
            if self._stopping.is_set():
                return
            # Either the engine is not there, and this look says so, or events were missed: the next connect looks.
            self._background.request()
            pause = self._first_pause if time.monotonic() - began > self._longest_pause else pause
            self._rest(pause)
            pause = min(pause * 2, self._longest_pause)

    def _rest(self, seconds: float) -> None:
        """Wait before the next attempt, but no longer than until an engine that was away listens again."""
        until, away = time.monotonic() + seconds, not listens(self._client.base_url)
        while (left := until - time.monotonic()) > 0:
            if self._stopping.wait(min(left, _LISTENING_SECONDS) if away else left):
                return
            if away and listens(self._client.base_url):
                return

    def _watch(self) -> None:
        """Connect, ask for a full look, and read until the stream ends."""
        try:
            facts = self._ask()
            wire = self._connect()
        except Fault as fault:
            log.info("events of the engine can't be read: %s", fault.words)
            return
        try:
            self._view.facts(facts)
            self._connected()
            _read_lines(wire, self._take)
        except FOREIGN as error:
            if not self._stopping.is_set():
                log.info("the stream of events broke: %s", fault_of(error, self._client.base_url).words)
        finally:
            with self._lock:
                self._wire = None
            wire.release()

    def _connect(self) -> Wire:
        wire = self._client.stream("events", "GET", "/events", params={"filters": json.dumps(self._filters)})
        # Silence is normal here; a dead engine closes its socket.
        wire.wait_at_most(None)
        with self._lock:
            self._wire = wire
            if self._stopping.is_set():
                wire.cut()
        return wire

    def _connected(self) -> None:
        self._meter.gauge("paddock_docker_event_stream_connected", 1)
        if self._connects:
            self._meter.count("paddock_docker_event_stream_reconnects_total")
        self._connects += 1
        self._background.request(full=True)

    def _take(self, line: bytes) -> None:
        event: dict[str, Any] = json.loads(line)
        if event.get("Type") == "network":
            self._take_network(event)
            return
        action = str(event.get("Action", "")).partition(":")[0]
        container_id = str(event.get("Actor", {}).get("ID", ""))
        at_ns = int(event.get("timeNano") or 0)
        self._meter.count("paddock_docker_events_total", action=action)
        self._meter.gauge("paddock_docker_last_event_timestamp_seconds", at_ns / 1e9)
        if action == "die":
            exit_code = str(event.get("Actor", {}).get("Attributes", {}).get("exitCode", ""))
            if exit_code.isdigit():
                self._view.died(container_id, int(exit_code), at_ns / 1e9)
        if action == "pause":
            self._inspector.paused(container_id)
        if action == "destroy":
            self._view.gone(container_id)
        elif action in _TELLING:
            name = str(event.get("Actor", {}).get("Attributes", {}).get("name", ""))
            self._inspector.mark(container_id, name, at_ns)

    def _take_network(self, event: Mapping[str, Any]) -> None:
        """Somebody attached or detached a container: look at it, if it is ours. If a bridge of ours went, at all."""
        attributes = event.get("Actor", {}).get("Attributes", {})
        if event.get("Action") == "destroy":
            if attributes.get("name") in self._view.now.networks:
                self._background.request()
            return
        seen = self._view.seen(str(attributes.get("container", "")))
        if seen is not None:
            self._inspector.mark(seen.container.id, seen.container.name, int(event.get("timeNano") or 0))


def container_events(instance_id: str) -> Mapping[str, list[str]]:
    """The filters for events of the containers of one instance id."""
    return {"type": ["container"], "label": [f"{own.INSTANCE}={instance_id}"]}


NETWORK_EVENTS: Mapping[str, list[str]] = {"type": ["network"], "event": ["connect", "disconnect", "destroy"]}


def _read_lines(wire: Wire, take: Callable[[bytes], None]) -> None:
    rest = b""
    while piece := wire.read():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                take(line)
