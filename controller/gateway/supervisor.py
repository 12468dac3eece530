"""Supervisor of the gateway in the daemon: its process, its listeners in sandboxes, its keys, and what it reports.

The daemon keeps a copy of every listening socket: while the process starts anew, connections wait for it.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

import structlog

from controller.gateway.config import HOST, REPORTED, Config, Target, User, to_json
from controller.gateway.desired import DesiredState, KeyOf, desired_state, states_of
from controller.gateway.ledger import Ledger
from controller.kinds.observed.models import LISTENING, GatewayView, ModelsState
from controller.kinds.observed.observed import Container
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.models import PORT
from controller.kinds.runtime.run import NO_RUN, Run
from controller.kinds.runtime.secret import ProviderKey
from controller.policy.levels.levels import Policy
from controller.ports import Meter, ModelError, PortListener, PortTaken, StreamError, Wake
from controller.processes.channel import ChannelClosed, Message
from controller.processes.child import Child
from controller.processes.keeper import Keeper
from controller.service import errors
from controller.service.models.callers import ModelCallers
from controller.service.models.servers import ModelServers
from controller.service.sandbox.port_forward import Forwarded

_TICK_SECONDS = 0.2
_IDLE_TICK_SECONDS = 2.0
_KEYS_SECONDS = 2.0
_RETRY_SECONDS = 5.0
_QUICK_END_SECONDS = 5.0
_MOST_BACKOFF_SECONDS = 10.0
_OPENS = 32
_CONNECT_SECONDS = 10.0  # for a process that starts, and for a source that was applied just now
_MOST_LETTERS = 500
_DOWN = ModelsState("GatewayDown", "the gateway's process is being started; requests wait for it")
_UP = ModelsState(LISTENING)
_log = structlog.get_logger("paddock.models")


@dataclass(slots=True)
class _Held:
    """A listener of ours: in which run of a container, its socket (None: it failed), and when to try again."""

    run: Run
    sock: socket.socket | None
    state: ModelsState = _UP
    retry_at: float = 0.0
    given_to: Child | None = None

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """Connections of the supervisor to the rest of the daemon."""

    snapshot: Callable[[], Snapshot | None]
    """Returns the snapshot of the last pass."""
    publish: Callable[[GatewayView], None]
    """Takes the state of the gateway for the next pass."""
    wake: Wake
    """Wakes the reconcile loop."""
    policy: Callable[[Snapshot], Policy]
    """Returns the policy for a snapshot."""
    port: int
    """Port of the listener on the host; 0: none."""
    key_of: KeyOf
    """Reads the key of a provider."""
    listeners: PortListener
    """Opens listeners in the networks of sandboxes."""
    servers: ModelServers
    """Connects to model servers."""
    callers: ModelCallers
    """Identifies callers on the host."""
    ledger: Ledger
    """Stores the use of models."""
    meter: Meter
    """Counts for the metrics."""
    ticks: Callable[[], float] = field(default=time.monotonic)
    """Returns monotonic seconds."""


class Supervisor(Keeper):
    """Follows the reconcile passes; `close` ends the process and all listeners."""

    name, log_name, first_seconds, failed_seconds = "gateway keeper", "paddock.gateway", 0.0, _TICK_SECONDS

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._lock = threading.RLock()
        self._serves = False
        self._changed = threading.Condition(self._lock)
        self._child: Child | None = None
        self._ready = False
        self._began = 0.0
        self._ends = 0
        self._not_before = 0.0
        self._sent: tuple[Config, frozenset[str]] | None = None
        self._endpoints: dict[str, _Held] = {}
        self._reported_states: dict[str, ModelsState] = {}
        self._targets: Config = Config()
        self._keys: dict[tuple[str, str], tuple[float, ProviderKey | Exception]] = {}
        self._view = GatewayView()
        self._opens: ThreadPoolExecutor | None = None
        self._forwarded: dict[int, Forwarded | None] = {}
        super().__init__()

    def close(self) -> None:
        """End the process and every listener. Sandboxes run on."""
        self.stop()
        self._end_child()
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._endpoints.clear()
        if self._opens is not None:
            self._opens.shutdown(wait=False, cancel_futures=True)
        self._parts.ledger.save()

    def observe_pass(self, snapshot: Snapshot) -> None:
        """Take up what a reconcile pass saw; where there is nothing to serve, no pass wakes the thread."""
        if self._serves or snapshot.models.providers or snapshot.models.servers:
            self.wake()

    @property
    def pid(self) -> int:
        """Process id of the gateway; 0: it does not run."""
        child = self._child
        return child.pid if child is not None else 0

    def connect(self, namespace: str, source: str, user: User, seconds: float) -> tuple[socket.socket, Target]:
        """Open a connection to the process for one source of a namespace; `user` is who it is counted for.

        Waits a moment for the process, and for a source that is new. Raises ModelError.
        """
        until = self._parts.ticks() + min(seconds, _CONNECT_SECONDS)
        with self._lock:
            while (connection := self._try_connect(namespace, source, user)) is None:
                seconds_left = until - self._parts.ticks()
                if seconds_left <= 0 or self.stopping:
                    raise self._connection_error(namespace, source)
                self._changed.wait(min(seconds_left, _TICK_SECONDS))
        return connection

    def _try_connect(self, namespace: str, source: str, user: User) -> tuple[socket.socket, Target] | None:
        target, child = self._source(namespace, source), self._child
        if target is None or child is None or self._sent is None or self._sent[0].targets.get(target.id) != target:
            return None
        daemon_end, process_end = socket.socketpair()
        with process_end:
            try:
                child.send({"type": "connect", "user": asdict(user), "target": target.id}, [process_end.fileno()])
            except ChannelClosed:  # its end is noticed elsewhere
                daemon_end.close()
                return None
        return daemon_end, target

    def _connection_error(self, namespace: str, source: str) -> ModelError:
        if self._parts.snapshot() is None or self._source(namespace, source) is not None:
            return ModelError("the model gateway is being started", again=True)
        message = f"there is no provider and no model server `{source}` in namespace `{namespace}`; apply it first"
        return ModelError(message)

    def _source(self, namespace: str, name: str) -> Target | None:
        """Return the source of that name; of a Provider and a ModelServer of one name the Provider."""
        targets = (self._targets.targets[target_id] for target_id in self._targets.of_namespace(namespace))
        return next((target for target in targets if target.name == name), None)

    def step(self) -> float | None:
        """Bring the process and its listeners to what the last snapshot asks."""
        try:
            self._serves = self._keep()
        except Exception:
            self._serves = True  # the next pass tries again
            raise
        return _TICK_SECONDS if self._serves else _IDLE_TICK_SECONDS

    def _keep(self) -> bool:
        """Do so. Return True if there is anything to serve."""
        snapshot = self._parts.snapshot()
        if snapshot is None:
            return False
        serves_models = bool(snapshot.models.providers or snapshot.models.servers)
        if not serves_models and not self._endpoints and self._child is None:
            self._publish(self._unserved_view(snapshot))
            return False
        servers = self._parts.servers.keep(snapshot)
        desired = desired_state(snapshot, self._parts.policy(snapshot), self._key)
        with self._lock:
            self._targets = desired.config
            if not desired.active:
                self._end_child()
                self._listen({}, desired)
                self._publish(self._unserved_view(snapshot))
                return False
            self._start_child()
            if not snapshot.observed.blind:  # unknown is not gone
                self._listen(desired.containers, desired)
            self._configure(desired)  # before its listeners: nobody is refused who may use them
            self._hand_over()
            self._publish(self._view_of(desired, servers))
            self._changed.notify_all()
        self._parts.ledger.write_due(snapshot)
        return True

    def _unserved_view(self, snapshot: Snapshot) -> GatewayView:
        """Return the view while there is no source at all: each sandbox that names one misses it."""
        states = {
            uid: ModelsState("ProviderMissing", "there is no provider and no model server; apply one")
            for uid, sandbox in snapshot.desired.sandboxes.items()
            if sandbox.spec is not None and sandbox.spec.models
        }
        return GatewayView(sandboxes=states)

    # Listeners

    def _listen(self, containers: Mapping[str, Container], desired: DesiredState) -> None:
        """Listen in these containers and on the host, and nowhere else."""
        now = self._parts.ticks()
        runs: dict[str, Run] = {uid: container.run for uid, container in containers.items()}
        if desired.active and self._parts.port:
            runs[HOST] = NO_RUN
        for uid, endpoint in list(self._endpoints.items()):
            if runs.get(uid) != endpoint.run or (endpoint.sock is None and now >= endpoint.retry_at):
                self._endpoints.pop(uid).close()
        for uid, run in runs.items():
            if uid in self._endpoints:
                continue
            container = containers.get(uid)
            self._endpoints[uid] = self._listener(run, container, now)

    def _listener(self, run: Run, container: Container | None, now: float) -> _Held:
        try:
            if container is not None:
                return _Held(run, self._parts.listeners.listen(container, PORT))
            return _Held(run, _bound(self._parts.port))
        except PortTaken as error:
            return _Held(run, None, ModelsState("PortTaken", str(error)), now + _RETRY_SECONDS)
        except (StreamError, OSError) as error:
            if container is None:
                _log.warning("models not served on this host", port=self._parts.port, error=str(error))
            return _Held(run, None, ModelsState("NotListening", str(error)), now + _RETRY_SECONDS)

    def _hand_over(self) -> None:
        """Give the process the listeners that it has not got yet."""
        child = self._child
        if child is None or not self._ready:
            return
        for listener, endpoint in self._endpoints.items():
            if endpoint.sock is not None and endpoint.given_to is not child:
                message = {"type": "listen", "listener": listener, "host": listener == HOST}
                with suppress(ChannelClosed):  # its end is noticed elsewhere
                    child.send(message, [endpoint.sock.fileno()])
                endpoint.given_to = child

    # The process

    def _start_child(self) -> None:
        now = self._parts.ticks()
        if self._child is not None or now < self._not_before or self.stopping:
            return
        self._ready = False
        self._sent = None
        self._began = now
        try:
            self._child = Child("controller.gateway.process", "model gateway", self._take, self._on_end)
        except OSError as error:
            self._not_before = now + _RETRY_SECONDS
            _log.warning("model gateway not started; retrying", error=str(error))
            return
        self._parts.meter.count("paddock_model_gateway_starts_total")

    def _on_end(self, child: Child) -> None:
        """Start it anew: at once, but with a back-off if it keeps ending at its start."""
        with self._lock:
            if self._child is not child:
                return
            self._child, self._ready = None, False
            self._parts.meter.gauge("paddock_model_gateway_up", 0)
            self._release_all()
            now = self._parts.ticks()
            self._ends = self._ends + 1 if now - self._began < _QUICK_END_SECONDS else 0
            self._not_before = now + min(2.0 ** (self._ends - 2), _MOST_BACKOFF_SECONDS) if self._ends > 1 else 0.0
            if self.stopping:
                return
            _log.warning("model gateway ended; starting it again", ends=self._ends)
            self._start_child()

    def _end_child(self) -> None:
        with self._lock:
            child = self._child
            self._child = None
            self._ready = False
        if child is not None:
            child.stop()
            self._parts.meter.gauge("paddock_model_gateway_up", 0)
            self._release_all()
            self._reported_states.clear()

    def _configure(self, desired: DesiredState) -> None:
        """Send the configuration, if it changed."""
        child, listening = (
            self._child,
            frozenset(uid for uid, endpoint in self._endpoints.items() if endpoint.sock is not None),
        )
        if child is None or not self._ready or self._sent == (desired.config, listening):
            return
        message: Message = {"type": "config", "config": to_json(desired.config), "listening": sorted(listening)}
        if self._sent is None:
            message["used"] = self._parts.ledger.usage()
        try:
            child.send(message)
        except ChannelClosed:
            return
        self._sent = (desired.config, listening)

    def _take(self, child: Child, message: Message) -> None:
        """Take a message of the process."""
        match message["type"]:
            case "ready":
                self._greet(child)
            case "open":
                self._pool().submit(self._open, child, int(message["number"]), str(message["target"]))
            case "closed":
                self._release(int(message["number"]))
            case "authorize":
                self._pool().submit(self._authorize, child, message)
            case "state":
                self._state(str(message["target"]), str(message["reason"]), str(message["message"]))
            case "uses":
                self._parts.ledger.take(message, self._targets)

    def _state(self, uid: str, reason: str, message: str) -> None:
        if uid not in self._targets.targets or reason not in REPORTED:
            raise ValueError(f"a state `{reason[:50]}` that is none")
        self._reported_states[uid] = ModelsState(reason, message[:_MOST_LETTERS])

    def _greet(self, child: Child) -> None:
        with self._lock:
            if self._child is not child:
                return
            self._ready = True
            self._parts.meter.gauge("paddock_model_gateway_up", 1)
            desired = DesiredState(self._targets, {}, {}, {}, {})
            self._configure(desired)
            self._hand_over()
            self._changed.notify_all()

    # Requests of the process

    def _open(self, child: Child, number: int, uid: str) -> None:
        """Connect to a model server, and hand the connection over."""
        answer: Message = {"type": "answer", "number": number}
        with self._lock:
            self._forwarded[number] = None
        try:
            target, snapshot = self._targets.targets.get(uid), self._parts.snapshot()
            server = snapshot.models.servers.get(uid) if snapshot is not None else None
            if target is None or server is None or server.spec is None:
                raise errors.NotFound("the model server was deleted")
            connection = self._parts.servers.open(server.obj.namespace, server.obj.name, server.spec)
        except errors.ServiceError as error:
            with self._lock:
                self._forwarded.pop(number, None)
            with suppress(ChannelClosed):
                child.send({**answer, "message": str(error)})
            return
        with self._lock:
            wanted_still = number in self._forwarded and self._child is child
            if wanted_still:
                self._forwarded[number] = connection
        if not wanted_still:
            connection.close()
            return
        with suppress(ChannelClosed):
            child.send(answer, [connection.sock.fileno()])

    def _authorize(self, child: Child, message: Message) -> None:
        answer: Message = {"type": "answer", "number": message["number"]}
        try:
            name = self._parts.callers.authorize(str(message["token"]), str(message["namespace"]))
            answer |= {"status": 200, "message": name}
        except errors.ServiceError as error:
            answer |= {"status": error.code, "message": str(error)}
        with suppress(ChannelClosed):
            child.send(answer)

    def _release(self, number: int) -> None:
        with self._lock:
            connection = self._forwarded.pop(number, None)
        if connection is not None:
            connection.close()

    def _release_all(self) -> None:
        for number in list(self._forwarded):
            self._release(number)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._opens is None:
                self._opens = ThreadPoolExecutor(_OPENS, thread_name_prefix="gateway")
            return self._opens

    # State

    def _key(self, namespace: str, name: str) -> ProviderKey:
        """Read a provider's key; a moment later it is known."""
        now = self._parts.ticks()
        at, key = self._keys.get((namespace, name), (-_KEYS_SECONDS, None))
        if key is None or now - at >= _KEYS_SECONDS:
            try:
                key = self._parts.key_of(namespace, name)
            except Exception as error:
                key = error
            self._keys[namespace, name] = (now, key)
        if isinstance(key, Exception):
            raise key
        return key

    def _view_of(self, desired: DesiredState, servers: Mapping[str, ModelsState]) -> GatewayView:
        sandboxes: dict[str, ModelsState] = {}
        for uid, endpoint in self._endpoints.items():
            if uid in desired.deaf:
                sandboxes[uid] = ModelsState("RuntimeHidesNetwork", desired.deaf[uid])
            elif endpoint.sock is None:
                sandboxes[uid] = endpoint.state
            elif uid in desired.missing:
                sandboxes[uid] = ModelsState("ProviderMissing", desired.missing[uid])
            elif not self._ready and self._ends:
                sandboxes[uid] = _DOWN
            elif self._ready:
                sandboxes[uid] = _UP
        sandboxes.pop(HOST, None)
        states = states_of(desired, self._reported_states)
        if not self._ready and self._ends:
            states = {uid: state if uid in desired.problems else _DOWN for uid, state in states.items()}
        return GatewayView(sandboxes, MappingProxyType(states), servers)

    def _publish(self, view: GatewayView) -> None:
        """Publish the view, if it changed. An unchanged state stays the same Python object."""
        before = self._view.sandboxes
        sandboxes = {uid: before[uid] if before.get(uid) == state else state for uid, state in view.sandboxes.items()}
        view = replace(view, sandboxes=MappingProxyType(sandboxes))
        if view != self._view:
            self._view = view
            self._parts.publish(view)
            self._parts.wake()


def _bound(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock
