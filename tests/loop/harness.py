"""Loop harness: real store, services, workers and planner over a fake engine, with passes run by hand.

`crash_after(n)` ends the daemon's life at its n-th step (an engine call or a store commit), before or after it took
effect; `LoopHarness.daemon()` then makes the next daemon over the same store and engine.
"""

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.kinds.base import Model
from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed.swap import UNKNOWN_ABILITY
from controller.kinds.observed.usage import LayerUsage
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.outcome import Outcome
from controller.kinds.planning.plan import Plan, Writes
from controller.kinds.registry import Kind, discover
from controller.loop.activity import ActivityLog
from controller.loop.clock_jump import ClockJump
from controller.loop.reconcile_pass import ReconcilePass
from controller.loop.tasks.hibernation import HibernationWatch
from controller.loop.tasks.prober import Prober
from controller.loop.worker_pool import Job, WorkerPool
from controller.loop.workers import Workers
from controller.policy.admission import admit
from controller.policy.host.host import fitted
from controller.policy.levels.levels import Policy
from controller.policy.profiles import with_profiles
from controller.ports import Meter, Models, NullMeter, Transaction
from controller.ports.fleet import SINGLE, Fleet
from controller.service.admission import Profiles
from controller.service.objects.apply import Source
from controller.service.services import HostPorts, LoopPorts, ServiceLimits, Services, make_services
from controller.service.trace import Traces
from controller.service.workflow.agent import NoModels
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.fakes.engine import FakeEngine
from tests.fakes.snapshots import FakeSnapshots

TINY = "paddock/test-tiny:1"


class Crash(BaseException):
    """The daemon is killed at this step, as by kill -9. No handler of the product may catch it."""


class Fuse:
    """Counts steps and blows at the chosen one. `watch` is called before each step, and after it (`after`)."""

    def __init__(self, watch: Callable[[bool], None]) -> None:
        self._watch = watch
        self.steps = 0
        self.blow_at: int | None = None
        self.after = False
        self.blown = False

    def step(self, *, after: bool) -> None:
        if not after:
            self.steps += 1
        if self.blown or (self.steps == self.blow_at and after == self.after):
            self.blown = True
            raise Crash
        self._watch(after)


class FusedEngine:
    """Engine of one daemon: it fails once the daemon was killed."""

    def __init__(self, engine: FakeEngine, fuse: Fuse) -> None:
        self._engine, self._fuse = engine, fuse

    def act(self, action: Action) -> Outcome:
        self._fuse.step(after=False)
        outcome = self._engine.act(action)
        self._fuse.step(after=True)
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class FusedStore:
    """Store of one daemon: it fails once the daemon was killed."""

    def __init__(self, store: SqlStore, fuse: Fuse) -> None:
        self._store, self._fuse = store, fuse

    def record(self, writes: Writes) -> Mapping[str, Instance]:
        self._fuse.step(after=False)
        recorded = self._store.record(writes)
        self._fuse.step(after=True)
        return recorded

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self._fuse.step(after=False)
        with self._store.transaction() as transaction:
            yield transaction
        self._fuse.step(after=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class PassPool(WorkerPool):
    """A pool without threads: its jobs run where `drain` is called, as a pass's workers do before the next pass."""

    def __init__(self) -> None:
        self._jobs = deque[Job]()

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def releasing_after(self, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()

    def stop(self) -> None:
        self._jobs.clear()

    def drain(self) -> None:
        """Run the jobs. A killed daemon gets no answers, and none of its jobs goes on."""
        while self._jobs:
            with suppress(Crash):
                self._jobs.popleft()()


class PassWorkers(Workers):
    """Workers that carry out a pass's groups when they are told to, the urgent ones first."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, threads=1, **settings)
        self._groups, self._urgent = PassPool(), PassPool()
        self._pool, self._express = self._groups, self._urgent

    def drain(self) -> None:
        self._urgent.drain()
        self._groups.drain()


class Moment:
    """Everything that outlives a daemon, as it was at one moment of a life: store (on SQLite), engine and clock.

    A killed daemon leaves just that. So the lives with a crash at each step need not begin from the beginning each.
    """

    def __init__(self, harness: "LoopHarness", path: Path) -> None:
        self._path = path
        self._store = sqlite3.connect(":memory:", check_same_thread=False)
        with closing(sqlite3.connect(path)) as present:
            present.backup(self._store)
        self._engine = harness.engine.saved()
        self._kept = harness.clock.now(), harness.uids

    def take_up(self, harness: "LoopHarness") -> None:
        """Make it so again, and start the next daemon."""
        with closing(sqlite3.connect(self._path)) as present:
            self._store.backup(present)
        harness.engine.restore(self._engine)
        now, harness.uids = self._kept
        harness.clock.advance(now - harness.clock.now())
        harness.daemon()

    def close(self) -> None:
        self._store.close()


def killed_at_each_step(harness: "LoopHarness", path: Path, *deeds: Callable[[], object]) -> Iterator[int]:
    """Do the deeds once; then begin with what a killed daemon leaves: after each deed, and each step of a daemon in it.

    Killed before a step, a daemon leaves just what there was after the step or the deed before it. Yield the number of
    the deed in which it was killed, once the next daemon has begun; the store is the file at `path`.
    """
    moments = list[tuple[int, Moment]]()

    def keep(number: int) -> None:
        moments.append((number, Moment(harness, path)))

    for number, deed in enumerate(deeds):
        harness.watch = lambda after, number=number: keep(number) if after else None
        deed()
        harness.watch = lambda _after: None
        keep(number)
    for number, moment in moments:
        moment.take_up(harness)
        yield number
        moment.close()


class LoopHarness:
    """A store and an engine that outlive daemons, and the current daemon."""

    def __init__(
        self,
        store: SqlStore,
        *,
        threads: int = 0,
        meter: Meter | None = None,
        policy: Policy | None = None,
        place: Fleet = SINGLE,
    ) -> None:
        """`store` is open, and the caller's to close. `meter` is told what the loop counts.

        With `threads` the groups of a pass are carried out by so many; without, by this one once the pass has ended.
        `place` is this host among those of the store.
        """
        self.place = place
        self._meter = meter or NullMeter()
        self.policy = policy or Policy()
        self.clock = HandClock()
        self.store = store
        self.engine = FakeEngine(self.store.instance_id, clock=self.clock, images=(TINY, "other:1"))
        self.engine.open(lambda: None)
        self.ticks = self.clock.now  # time that nobody can set; with another clock here, ours is set when it advances
        self._threads = threads
        self.uids = 0
        self.snapshots = FakeSnapshots(self.clock.now)
        self.run_folder: Path | None = None  # of workflow runs; takes effect with the next `daemon()`, as `models`
        self.models: Models = NoModels()
        self.artifact_bytes = 1 << 20
        self.most_annotation_bytes = 0  # as the next
        self.most_objects = 0  # of a namespace without a bound of its own; takes effect with the next `daemon()`
        self.layers: dict[str, LayerUsage] = {}  # measured sizes of writable layers, by container id
        self.hibernates = False  # the host can, as `engine.hibernation` has it
        self.wake: Callable[[], None] = lambda: None
        self.before: Callable[[Action], None] = lambda _action: None  # called before each action, as the egress audit
        self.watch: Callable[[bool], None] = lambda _after: None  # of the daemons' steps, see Fuse
        self._workers: Workers | None = None
        self._idle = threading.Event()
        self.daemon()

    def services_over(self, store: Any) -> Services:
        """Return the services over this store, or one that fails."""
        return make_services(
            registry=discover(),
            store=store,
            clock=self.clock,
            admit=self._admit,
            host=HostPorts(
                engine=self.engine,
                streams=self.engine,
                files=self.engine.files,
                volumes=self.engine.kept_volumes,
                images=self.engine.image_store,
                snapshots=self.snapshots,
                adopted_execs=self.engine.adopted_execs,
                run_folder=self.run_folder,
                models=self.models,
            ),
            loop=LoopPorts(
                wake=lambda: self.wake(),
                snapshot=lambda: self.reconcile_pass.last,
                in_use=self.activity,
                traces=self.traces,
                place=self.place,
            ),
            limits=ServiceLimits(
                most_objects=self.most_objects,
                most_annotation_bytes=self.most_annotation_bytes,
                artifact_bytes=self.artifact_bytes,
            ),
            policy=self.policy,
            new_uid=self._new_uid,
        )

    def _admit(self, kind: Kind, spec: Model, _namespace: str, name: str, profiles: Profiles) -> list[tuple[str, str]]:
        policy = replace(fitted(self.policy, self.engine.observe().facts), host_cpus=0)
        return [
            (refusal.field, refusal.message) for refusal in admit(kind, spec, with_profiles(policy, profiles), name)
        ]

    def _new_uid(self) -> str:
        self.uids += 1
        return f"{self.uids:08x}-0000-4000-8000-000000000000"

    def daemon(self) -> None:
        """Start a new daemon; the memory of the one before is lost."""
        if self._workers is not None:
            self._workers.stop()
        self.fuse = Fuse(lambda after: self.watch(after))
        engine, store = FusedEngine(self.engine, self.fuse), FusedStore(self.store, self.fuse)
        self.traces = Traces()
        settings: dict[str, Any] = {
            "wake": self._idle.set,
            "trace": self.traces.of,
            "before": lambda action: self.before(action),
        }
        if self._threads:
            self._workers = Workers(engine, self._meter, threads=self._threads, **settings)
        else:
            self._workers = PassWorkers(engine, self._meter, **settings)
        self.prober = Prober(self.engine, clock=self.clock, wake=lambda: None, ticks=self.clock.now, threads=False)
        self.activity = ActivityLog(self.clock, lambda: self.ticks())
        self.services = self.services_over(self.store)
        self.reconcile_pass = ReconcilePass(
            store=store,
            engine=engine,
            workers=self._workers,
            prober=self.prober,
            clock=self.clock,
            meter=self._meter,
            policy=self.policy,
            activity=self.activity,
            cpu=self.engine,
            clock_jumped=ClockJump(self.clock, ticks=self.ticks).jumped,
            layers=lambda: self.layers,
            place=self.place,
            hibernation=HibernationWatch(
                lambda _: self.engine.hibernation if self.hibernates else UNKNOWN_ABILITY, self.clock
            ),
        )

    def pass_with(self, workers: Workers, **settings: Any) -> ReconcilePass:
        """Return a pass over this store and engine with the caller's workers, which run beside it."""
        return ReconcilePass(
            store=self.store,
            engine=self.engine,
            workers=workers,
            prober=self.prober,
            clock=self.clock,
            meter=NullMeter(),
            policy=Policy(),
            **settings,
        )

    def close(self) -> None:
        if self._workers is not None:
            self._workers.stop()

    def apply(self, name: str, **spec: Any) -> None:
        """Apply a Sandbox; `spec` is laid over one that sleeps."""
        template = {"image": TINY, "command": ["sleep", "1000000"], **spec.pop("template", {})}
        document = {
            "apiVersion": "paddock/v1alpha1",
            "kind": "Sandbox",
            "metadata": {"name": name},
            "spec": {"template": template, **spec},
        }
        self.services.apply.apply([Source("test", json.dumps(document))])

    def apply_template(self, name: str, **spec: Any) -> None:
        """Apply a SandboxTemplate."""
        document = {
            "apiVersion": "paddock/v1alpha1",
            "kind": "SandboxTemplate",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.services.apply.apply([Source("test", json.dumps(document))])

    def refer(self, name: str, template: str, **spec: Any) -> None:
        """Apply a Sandbox that names a template."""
        document = {
            "apiVersion": "paddock/v1alpha1",
            "kind": "Sandbox",
            "metadata": {"name": name},
            "spec": {"templateRef": {"name": template}, **spec},
        }
        self.services.apply.apply([Source("test", json.dumps(document))])

    def delete(self, name: str, kind: str = "sandbox") -> None:
        word = discover().by_word(kind)
        assert word is not None
        self.services.objects.delete(word, "default", name)

    def get(self, name: str) -> StoredObject | None:
        return self.store.get("Sandbox", "default", name)

    def names(self) -> list[str]:
        return [obj.name for obj in self.store.list("Sandbox")[0]]

    def container_name(self, name: str) -> str:
        stored = self.get(name)
        assert stored is not None
        return container_name(name, stored.uid)

    def condition(self, name: str, type_: str) -> str:
        stored = self.get(name)
        conditions = stored.status.get("conditions", []) if stored else []
        return next(
            (f"{condition['status']} {condition['reason']}" for condition in conditions if condition["type"] == type_),
            "",
        )

    def run_pass(self) -> Plan:
        """A pass, and what it started carried out; a millisecond goes by, so that no two runs begin at one time."""
        self.clock.advance(0.001)
        output = self.reconcile_pass.run()
        self._wait_for_workers()
        return output

    def _wait_for_workers(self) -> None:
        """Wait until every group came back; a blown fuse means that none will."""
        assert self._workers is not None
        if isinstance(self._workers, PassWorkers):
            self._workers.drain()
        while self._workers.view()[0] and not self.fuse.blown:
            self._idle.wait(0.01)
            self._idle.clear()
        if self.fuse.blown:
            raise Crash

    def settle(self, *, seconds: float = 400.0) -> None:
        """Run passes, with the clock moved to each next wake, until nothing is left to do (within so many seconds)."""
        end = self.clock.now() + seconds
        for _ in range(200):
            plan = self.run_pass()
            if plan.groups or plan.writes or plan.samples or self.has_results() or self.probed():
                continue
            wakes = [number for number in (plan.next_wake, self.prober.next_due()) if number is not None]
            if not wakes or min(wakes) > end:
                return
            self.clock.advance(max(0.0, min(wakes) - self.clock.now()))
        raise AssertionError(f"does not settle: {plan}")

    def probed(self) -> bool:
        """Ask the probes that are due; whether that changed anything."""
        before = self.prober.view()
        self.prober.run_due()
        return self.prober.view() != before

    def has_results(self) -> bool:
        assert self._workers is not None
        return bool(self._workers.view()[1])

    def ours(self) -> dict[str, list[str]]:
        """Container names by uid, as the engine has them."""
        self.engine.observe_now(full=True)
        return {
            uid: [container.name for container in containers]
            for uid, containers in self.engine.observe().containers.items()
            if containers
        }
