"""Engine events: triggers to inspect a container. Their content never decides a container's state.

One thread reads the stream; others inspect the named containers in parallel, once for any number of pending events, so
that a hanging container delays no other. Every (re)connect is followed by a full resync: events in the gap were missed.
The reader is no Keeper: it has no steps, but waits in a read until its stream is cut.
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
from controller.engine.docker.raw_http import HttpStream
from controller.engine.docker.view import View
from controller.engine.observe.observer import BackgroundObserver, Foreign, Observer, clock_drift_ns, guarded
from controller.kinds.common import labels as own
from controller.kinds.observed.observed import HostFacts, State
from controller.ports import Meter
from controller.processes.keeper import Keeper

log = logging.getLogger(__name__)

# Events that change a container's state. `kill` and `stop` add nothing to `die`; exec_* are noise.
_STATE_EVENTS = frozenset({"create", "start", "die", "oom", "pause", "unpause", "rename", "update"})
# Largest wall clock jump between an inspect and an event with which their times are comparable.
_DRIFT_NS = 5_000_000
_LISTENING_SECONDS = 0.1
_AT_A_TIME = 16


class Inspector(Keeper):
    """Threads that inspect the containers named by events, one at a time for each container."""

    name, log_name = "engine-inspect", "paddock.engine"

    def __init__(self, observer: Observer, view: View, background: BackgroundObserver, *, same_clock: bool) -> None:
        self._observer = observer
        self._view = view
        self._background = background
        self._same_clock = same_clock
        self._lock = threading.Lock()
        self._dirty: dict[str, int] = {}
        self._busy: set[str] = set()  # containers being inspected
        self._held: dict[str, int] = {}  # names of containers with running actions, and their number
        self._parked: dict[str, dict[str, int]] = {}  # by name: their events meanwhile
        self._pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="engine-inspect")
        super().__init__()

    def mark(self, container_id: str, name: str, at_ns: int) -> None:
        """Mark a container as changed at `at_ns` (the engine's clock)."""
        with self._lock:
            if name in self._held:
                self._parked.setdefault(name, {})[container_id] = at_ns
                return
            self._dirty[container_id] = at_ns
        self.wake()

    @contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Held by a caller that acts on the container of that name, and inspects it itself at the end.

        Events meanwhile are handled afterwards, unless that inspect was later anyway.
        """
        with self._lock:
            self._held[name] = self._held.get(name, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._held[name] -= 1
                if not self._held[name]:
                    del self._held[name]
                    self._dirty.update(self._parked.pop(name, {}))
            self.wake()

    def stop(self) -> None:
        """End the threads after their present calls."""
        super().stop()
        self._pool.shutdown()

    def step(self) -> float | None:
        """Have all containers inspected that are named since, except those being inspected."""
        with self._lock:
            for container_id in [id_ for id_ in self._dirty if id_ not in self._busy]:
                # It raises if no thread can be started: then those that are left are due at the next step.
                self._pool.submit(self._inspect, container_id, self._dirty[container_id])
                del self._dirty[container_id]
                self._busy.add(container_id)
        return None

    def _inspect(self, container_id: str, at_ns: int) -> None:
        try:
            guarded(self._refresh, container_id=container_id, at_ns=at_ns)
        finally:
            with self._lock:
                self._busy.discard(container_id)
            self.wake()

    def paused(self, container_id: str) -> None:
        """Watch a paused container for a stuck exec, before calls time out."""
        self._observer.paused(container_id)

    def _refresh(self, *, container_id: str, at_ns: int) -> None:
        if self._view.is_gone(container_id) or self._known_since(container_id, at_ns):
            return
        if self._hangs(container_id):
            self._background.request()
            return
        try:
            self._observer.read(container_id)
        except Foreign:
            return
        except Fault as fault:
            if fault.kind == "connection":
                # The engine became unreachable, which says nothing about this container: resync.
                self._background.request(full=True)
            elif not fault.is_gone:
                self._observer.doubt(container_id)

    def _hangs(self, container_id: str) -> bool:
        """Tell whether the engine did not answer for it before; only the background observer retries then."""
        view_entry = self._view.entry_of(container_id)
        return view_entry is not None and view_entry.container.state is State.UNKNOWN

    def _known_since(self, container_id: str, at_ns: int) -> bool:
        """Tell whether the container was inspected after the event, by the host's clock."""
        view_entry = self._view.entry_of(container_id)
        if view_entry is None or view_entry.drift_ns is None or not self._same_clock:
            return False
        return view_entry.at_ns > at_ns and abs(clock_drift_ns() - view_entry.drift_ns) < _DRIFT_NS


class EventStream:
    """Thread that reads one stream of the engine's events, and reconnects for ever.

    Container events are filtered by our label. Network events have no container labels, so they are a separate stream,
    filtered by known containers; those of images and of the engine's own settings are in it, too. `facts` returns the
    engine's facts.
    """

    def __init__(
        self,
        filters: Mapping[str, list[str]],
        client: Client,
        view: View,
        *,
        background: BackgroundObserver,
        inspector: Inspector,
        meter: Meter,
        pauses_seconds: tuple[float, float],
        facts: Callable[[], HostFacts] | None = None,
        images_changed: Callable[[], None] = lambda: None,
        engine_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._ask = facts or client.probe
        self._filters = filters
        self._others: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "network": self._take_network,
            "image": lambda _event: images_changed(),
            "daemon": lambda _event: engine_changed(),
        }
        self._client = client
        self._view = view
        self._background = background
        self._inspector = inspector
        self._meter = meter
        self._first_pause, self._longest_pause = pauses_seconds
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._wire: HttpStream | None = None
        self._connects = 0
        self._thread = threading.Thread(target=self._run, name="engine-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Cut the stream and end the thread."""
        self._stopping.set()
        with self._lock:
            if self._wire is not None:
                self._wire.cut()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stopping.is_set():
            started = time.monotonic()
            guarded(self._watch)
            self._meter.gauge("paddock_docker_event_stream_connected", 0)
            if self._stopping.is_set():
                return
            # Either the engine is unreachable, which this records, or events were missed: the next connect resyncs.
            self._background.request()
            pause = self._first_pause if time.monotonic() - started > self._longest_pause else pause
            self._pause(pause)
            pause = min(pause * 2, self._longest_pause)

    def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, or until an engine that was down listens again."""
        until, away = time.monotonic() + seconds, not listens(self._client.base_url)
        while (seconds_left := until - time.monotonic()) > 0:
            if self._stopping.wait(min(seconds_left, _LISTENING_SECONDS) if away else seconds_left):
                return
            if away and listens(self._client.base_url):
                return

    def _watch(self) -> None:
        """Connect, request a full resync, and read until the stream ends."""
        try:
            facts = self._ask()
            wire = self._connect()
        except Fault as fault:
            log.info("engine events unreadable: %s", fault.message)
            return
        try:
            self._view.facts(facts)
            self._connected()
            _read_lines(wire, self._take)
        except FOREIGN as error:
            if not self._stopping.is_set():
                log.info("engine event stream broken: %s", fault_of(error, self._client.base_url).message)
        finally:
            with self._lock:
                self._wire = None
            wire.release()

    def _connect(self) -> HttpStream:
        wire = self._client.stream("events", "GET", "/events", params={"filters": json.dumps(self._filters)})
        # Silence is normal; a dead engine closes its socket.
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
        if event.get("Type") in self._others:
            self._others[event["Type"]](event)
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
            self._view.forget(container_id)
        elif action in _STATE_EVENTS:
            name = str(event.get("Actor", {}).get("Attributes", {}).get("name", ""))
            self._inspector.mark(container_id, name, at_ns)

    def _take_network(self, event: Mapping[str, Any]) -> None:
        """Inspect our container that was connected or disconnected; observe all if one of our bridges was removed."""
        attributes = event.get("Actor", {}).get("Attributes", {})
        if event.get("Action") == "destroy":
            if attributes.get("name") in self._view.now.networks:
                self._background.request()
            return
        view_entry = self._view.entry_of(str(attributes.get("container", "")))
        if view_entry is not None:
            self._inspector.mark(view_entry.container.id, view_entry.container.name, int(event.get("timeNano") or 0))


def container_events(instance_id: str) -> Mapping[str, list[str]]:
    """Return the filters for container events of one instance id."""
    return {"type": ["container"], "label": [f"{own.INSTANCE}={instance_id}"]}


# An image's name may stand for another image afterwards.
_IMAGE_EVENTS = ("delete", "import", "load", "pull", "tag", "untag")
NETWORK_EVENTS: Mapping[str, list[str]] = {
    "type": ["network", "image", "daemon"],
    "event": ["connect", "disconnect", "destroy", *_IMAGE_EVENTS, "reload"],
}


def _read_lines(wire: HttpStream, take: Callable[[bytes], None]) -> None:
    remainder = b""
    while piece := wire.read():
        *lines, remainder = (remainder + piece).split(b"\n")
        for line in lines:
            if line.strip():
                take(line)
