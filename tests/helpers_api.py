"""A whole API over a real store, for tests of the listeners: SQLite in a folder, no engine, a clock moved by hand."""

import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.api.app import create_app
from controller.api.server.server import ApiServer
from controller.app.secrets import HostSecrets
from controller.engine.exec.agent import AgentConnections
from controller.kinds.base import Model
from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import container_name
from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.doctor import Finding
from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.planning.action import Action
from controller.kinds.planning.outcome import Ok
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.registry import Kind, Registry, discover
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports.fleet import SINGLE, Fleet
from controller.service.admission import Profiles
from controller.service.images.images import ImageWorkRules
from controller.service.objects.apply import Source
from controller.service.sandbox.files import TransferLimits
from controller.service.sandbox.port_forward import PortLimits
from controller.service.services import HostPorts, LoopPorts, ServiceLimits, Services, make_services
from controller.service.sources.volume import NoVolumes
from controller.settings import Settings
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.fakes.engine import FakeEngine
from tests.fakes.files import FakeFiles
from tests.fakes.images import FakeImages
from tests.fakes.ports import FakePorts
from tests.fakes.secrets import FakeSecrets
from tests.migrated import place_migrated

QUICKSTART = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata:
  name: quickstart
  labels: {app: demo}
spec:
  template:
    image: paddock/python:1
    command: ["sleep", "infinity"]
  resources:
    limits: {cpu: 500m, memory: 512Mi}
"""


class Meter:
    """Keeps what was counted."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, Mapping[str, str]]] = []
        self.gauges: dict[tuple[str, ...], float] = {}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        self.counted.append((name, labels))

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self.counted.append((name, labels))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.gauges[name, *labels.values()] = value


class View:
    """Just the part of an engine that the listeners use: what was seen last."""

    def __init__(self) -> None:
        self.seen = Observation(blind="")
        self.acted: list[Action] = []

    def act(self, action: Action) -> Ok:
        self.acted.append(action)
        return Ok()

    def observe(self) -> Observation:
        return self.seen

    def show(self, obj: StoredObject, state: State = State.RUNNING, **fields: Any) -> Container:
        name = container_name(obj.name, obj.uid)
        fields = {"working_dir": "/workspace", "object_name": obj.name, **fields}
        container = Container(id=f"c-{obj.name}", name=name, uid=obj.uid, state=state, **fields)
        self.seen = replace(self.seen, containers={**self.seen.containers, obj.uid: (container,)})
        return container


class Endless(Iterator[Chunk]):
    """One chunk, then silence until it is closed, from whatever thread: as the engine's streams are."""

    def __init__(self, closed: threading.Event) -> None:
        self._closed, self._told = closed, False

    def __next__(self) -> Chunk:
        if not self._told:
            self._told = True
            return Chunk("stdout", b"first\n")
        self._closed.wait()
        raise StopIteration

    def close(self) -> None:
        self._closed.set()


class Scripted(Iterator[Chunk]):
    """A test's chunks; closing is left to those that can be closed from any thread, which a generator can not."""

    ref = ExecRef("exec-1", "c-quickstart", 100, "mark", 1)

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks

    def detach_stream(self) -> None:
        self.close()

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        close = None if inspect.isgenerator(self._chunks) else getattr(self._chunks, "close", None)
        if close is not None:
            close()


class ScriptedStreams:
    """Streams that a test writes: `log` and `run` are called for each request."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.log: Callable[..., Iterator[Chunk]] = lambda **_: iter((Chunk("stdout", b"hello\n"),))
        self.run: Callable[..., Iterator[Chunk]] = lambda **_: iter((Chunk("exit", b"0"),))
        self.again = self.run

    def endless(self, **_: Any) -> Iterator[Chunk]:
        """A stream that ends only by being closed; `closed` is set then."""
        return Endless(self.closed)

    def logs(self, container_id: str, **options: Any) -> Iterator[Chunk]:
        self.asked.append((container_id, options))
        return Scripted(self.log(**options))

    def exec(self, container_id: str, command: Sequence[str], **options: Any) -> Iterator[Chunk]:
        prepared = options.pop("prepared", lambda _ref: None)
        self.asked.append((container_id, {"command": tuple(command), **options}))
        stream = self.run(command=command, **options)
        prepared(Scripted.ref)
        return Scripted(stream)

    def follow(self, ref: ExecRef, **options: Any) -> Iterator[Chunk]:
        """As an engine's left commands are found again; `again` is called for each."""
        self.asked.append((ref.exec_id, options))
        return Scripted(self.again(**options))


@dataclass
class ApiStack:
    """Everything behind the listeners, and the listeners."""

    folder: Path
    store: SqlStore
    services: Services
    view: View
    streams: ScriptedStreams
    clock: HandClock
    meter: Meter
    woken: list[int] = field(default_factory=list)
    checks: list[tuple[str, str]] = field(default_factory=lambda: [("store", ""), ("engine", "")])
    refusals: list[tuple[str, str]] = field(default_factory=list)
    unguarded: list[str] = field(default_factory=list)  # why no level with a network is admitted
    snapshots: list[Snapshot] = field(default_factory=list)  # of the reconcile passes: the last one counts
    doctor: list[Finding] = field(default_factory=list)
    files: FakeFiles = field(default_factory=FakeFiles)
    ports: FakePorts = field(default_factory=FakePorts)
    images: FakeImages = field(default_factory=lambda: FakeImages({}, set))

    @property
    def app(self) -> Any:
        return create_app(self.services, ready=lambda: self.checks, meter=self.meter, examine=lambda: self.doctor)

    @property
    def socket(self) -> Path:
        return self.folder / "p.sock"

    def server(self, stall_seconds: float = 60.0) -> ApiServer:
        """Patient by default: a test's client is kept waiting by whatever else this machine does."""
        return ApiServer(self.app, self.socket, grace_seconds=1, stall_seconds=stall_seconds)

    def sandbox(self, name: str = "quickstart", namespace: str = "default") -> StoredObject:
        stored = self.store.get("Sandbox", namespace, name)
        assert stored is not None
        return stored

    def change(self, name: str = "quickstart", **parts: Any) -> StoredObject:
        """Write parts of a stored object, as others (the loop, `scale`) would."""
        with self.store.transaction() as transaction:
            stored = transaction.get("Sandbox", "default", name)
            assert stored is not None
            changed = transaction.put(replace(stored, **parts))
        self.services.watches.notify()  # as after each commit of a daemon; of other processes' it is seen by polls
        return changed

    def set_ready(
        self,
        status: str = "True",
        reason: str = "Running",
        message: str = "",
        observed: int = 1,
        *,
        name: str = "quickstart",
    ) -> None:
        """Give a sandbox a Ready condition, as the planner would."""
        ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
        ready |= {"observedGeneration": observed, "lastTransitionTime": "2023-11-14T22:13:20Z"}
        self.change(name, status={"observedGeneration": observed, "restartCount": 2, "conditions": [ready]})

    def finish_deletion(self, name: str = "quickstart") -> None:
        """Do as the planner does once all that the object owned is gone."""
        with self.store.transaction() as transaction:
            transaction.remove(self.sandbox(name))

    def add_event(self, obj: StoredObject, reason: str, message: str, type_: Any = "Normal") -> None:
        now = self.clock.now()
        with self.store.transaction() as transaction:
            transaction.add_event(Event(obj.ref, type_, reason, message, at=now, first_at=now))

    def apply(self, text: str = QUICKSTART, **options: Any) -> list[str]:
        """Apply through the service; gives the results in order."""
        return [outcome.result for outcome in self.services.apply.apply([Source("spec.yaml", text)], **options)]


def make_api(
    folder: Path,
    registry: Registry | None = None,
    engine: FakeEngine | None = None,
    transfers: TransferLimits | None = None,
    connections: PortLimits | None = None,
    place: Fleet = SINGLE,
    store: SqlStore | None = None,
    workspace_bytes: int = 0,
    first_uid: int = 1,
) -> ApiStack:
    """An API with an open, empty store, or with that of another. Close it in the end.

    Without an engine, containers are only shown.
    """
    if store is None:
        store = SqlStore(place_migrated(folder / "paddock.db"))
        store.open()
    clock, view, streams, woken, refusals = HandClock(), View(), ScriptedStreams(), [], []
    unguarded: list[str] = []
    snapshots: list[Snapshot] = []
    numbers, files, ports, meter = itertools.count(first_uid), FakeFiles(), FakePorts(), Meter()
    images = engine.image_store if engine else FakeImages({"paddock/base:1": "sha256:" + "b" * 64}, set)

    def admit(kind: Kind, spec: Model, namespace: str, name: str, profiles: Profiles) -> Iterable[tuple[str, str]]:
        level = getattr(getattr(spec, "template", None), "security_level", "full-isolation")
        networks = [("spec.template.securityLevel", mode) for mode in unguarded if level != "full-isolation"]
        return refusals + networks

    host = HostPorts(
        engine=engine or view,
        streams=engine or streams,
        files=engine.files if engine else files,
        ports=engine.ports if engine else ports,
        agents=AgentConnections(engine.ports if engine else ports),
        volumes=engine.kept_volumes if engine else NoVolumes(),
        images=images,
        adopted_execs=engine.adopted_execs if engine else streams,
        secrets=FakeSecrets({("default", "token"): b"s3cret\n"}),
        secret_files=HostSecrets(Settings(secrets_dir=folder / "secrets", state_dir=folder / "state")),
        exec_folder=folder / "execs",
        run_folder=folder / "runs",
    )
    services = make_services(
        registry=registry or discover(),
        store=store,
        clock=clock,
        admit=admit,
        host=host,
        loop=LoopPorts(
            wake=lambda: woken.append(1), place=place, snapshot=lambda: snapshots[-1] if snapshots else None
        ),
        meter=meter,
        limits=ServiceLimits(
            transfers=transfers or TransferLimits(),
            connections=connections or PortLimits(),
            workspace_bytes=workspace_bytes,
            images=ImageWorkRules("run", context_bytes=1 << 20, push_registries=("registry.example",)),
        ),
        new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
    )
    doubles: dict[str, Any] = {
        "refusals": refusals,
        "unguarded": unguarded,
        "snapshots": snapshots,
        "files": files,
        "ports": ports,
        "images": images,
    }
    return ApiStack(folder, store, services, view, streams, clock, meter, woken, **doubles)
