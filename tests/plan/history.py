"""Histories on the pure planner: what is decided as time goes by, without a store, threads or services.

Each pass plans on a snapshot; what it writes is kept in mappings, and what it does is done by the fake engine at once.

    history.apply("web", lifecycle={"activeDeadlineSeconds": 100})
    history.go_on(101)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"

What depends on the store, on services or on how the loop works is tests/loop's.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.kinds.common.labels import container_name, egress_uid
from controller.kinds.hostquota import KIND as HOST_QUOTA
from controller.kinds.hostquota import stored_quota
from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.pressure import NONE
from controller.kinds.observed.swap import UNKNOWN_ABILITY
from controller.kinds.observed.usage import LayerUsage
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import WARM, Instance
from controller.kinds.planning.outcome import Ok, Outcome
from controller.kinds.planning.plan import Group, Plan, Writes
from controller.kinds.planning.snapshot import Pool, Result, Sandbox, Snapshot
from controller.kinds.quota import KIND as QUOTA
from controller.kinds.sandbox import FINALIZER, SandboxSpec, Template
from controller.kinds.sandboxpool import KIND as SANDBOX_POOL
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.kinds.sandboxtemplate import KIND as SANDBOX_TEMPLATE
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.loop.activity import ActivityLog
from controller.loop.tasks.cpu_sampling import sample
from controller.plan.base.memo import Memo
from controller.plan.host import plan
from controller.policy.levels.levels import Policy
from controller.policy.profiles import as_seen
from tests.conftest import HandClock
from tests.fakes.engine import FakeEngine
from tests.snapshots import snapshot_with

TINY = "paddock/test-tiny:1"
_INSTANCE_ID = "store-1"
_NAMESPACE = "default"


class History:
    """Stored objects, a fake engine and a clock; `run_pass` plans once and does what was planned."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.clock = HandClock()
        self.engine = FakeEngine(_INSTANCE_ID, clock=self.clock, images=(TINY, "other:1"))
        self.engine.open(lambda: None)
        self.layers: dict[str, LayerUsage] = {}  # measured sizes of writable layers, by container id
        self.hibernates = False  # the host can, as `engine.hibernation` has it
        self.pressure = NONE  # of the host
        self.before: Callable[[Action], None] = lambda _action: None  # called before each action
        self.events: list[Event] = []
        self._objects: dict[str, StoredObject] = {}  # by uid
        self._sandboxes: dict[str, Sandbox] = {}
        self._templates: dict[
            tuple[str, int], Template
        ] = {}  # by uid and generation: what is parsed once stays the same
        self._instances: dict[str, Instance] = {}
        self._uids = self._writes = 0
        self.daemon()

    def daemon(self) -> None:
        """Forget what a daemon that ends forgets: all but what is stored."""
        self._memo, self._results = Memo(), dict[str, Result]()
        self._hanging: set[str] = set()
        self._in_flight: set[str] = set()
        self.activity = ActivityLog(self.clock, self.clock.now)

    def hang(self, name: str) -> None:
        """From now on no action on this sandbox ends."""
        self._hanging.add(self.object("Sandbox", name).uid)

    def hang_members(self) -> None:
        """From now on no action on a warm member ends."""
        self._hanging.update(instance.uid for instance in self.instances() if instance.role == WARM)

    # What people do.

    def apply(self, name: str, **spec: Any) -> None:
        """Apply a Sandbox; `spec` is laid over one that sleeps."""
        template = {"image": TINY, "command": ["sleep", "1000000"], **spec.pop("template", {})}
        obj = self._store("Sandbox", name, {"template": template, **spec}, (FINALIZER,))
        self._show(obj)

    def put(self, kind: str, name: str, **spec: Any) -> None:
        """Apply an object of another kind: a quota, a template or a pool."""
        self._store(kind, name, spec, (FINALIZER,) if kind == SANDBOX_POOL.name else ())

    def refer(self, name: str, template: str, **spec: Any) -> None:
        """Apply a Sandbox that names a template."""
        self._show(self._store("Sandbox", name, {"templateRef": {"name": template}, **spec}, (FINALIZER,)))

    def begin_use(self, name: str, *, wakes: bool = True) -> None:
        """Begin a use of a sandbox, as an exec does; one that `wakes` starts it where it sleeps."""
        self.activity.begin(self.object("Sandbox", name).uid, wakes=wakes)

    def end_use(self, name: str, *, wakes: bool = True) -> None:
        self.activity.end(self.object("Sandbox", name).uid, wakes=wakes)

    def delete(self, name: str, kind: str = "Sandbox") -> None:
        """Request the deletion of an object; one that nothing holds up is gone at once."""
        obj = self.object(kind, name)
        if not obj.finalizers:
            del self._objects[obj.uid]
        elif obj.deleted_at is None:
            self._replace(replace(obj, deleted_at=self.clock.now()))

    # What is so.

    def object(self, kind: str, name: str) -> StoredObject:
        return next(obj for obj in self._objects.values() if (obj.kind, obj.name) == (kind, name))

    def status(self, name: str) -> Mapping[str, Any]:
        return self.object("Sandbox", name).status

    def names(self, kind: str = "Sandbox") -> list[str]:
        """Return the names of the objects of a kind that there are."""
        return sorted(obj.name for obj in self._of_kind(kind))

    def has_results(self) -> bool:
        """Tell whether the next pass hears of actions that were done."""
        return bool(self._results)

    def instances(self) -> Sequence[Instance]:
        return tuple(self._instances.values())

    def container_name(self, name: str) -> str:
        return container_name(name, self.object("Sandbox", name).uid)

    def condition(self, name: str, type_: str) -> str:
        """Return the status and the reason of a sandbox's condition; "" if it has none of that type."""
        conditions = self.status(name).get("conditions", ()) if name in self.names() else ()
        return next(
            (f"{condition['status']} {condition['reason']}" for condition in conditions if condition["type"] == type_),
            "",
        )

    def message(self, name: str, type_: str) -> str:
        conditions = self.status(name)["conditions"]
        return next(str(condition["message"]) for condition in conditions if condition["type"] == type_)

    def reasons(self, name: str) -> list[str]:
        """Return the reasons of an object's events, equal ones once."""
        return list(dict.fromkeys(event.reason for event in self.events if event.ref.name == name))

    def events_of(self, name: str) -> list[Event]:
        return [event for event in self.events if event.ref.name == name]

    @property
    def revision(self) -> int:
        """Return a number that moves with whatever is written."""
        return self._writes

    def containers(self) -> dict[str, list[str]]:
        """Return container names by uid, as the engine has them."""
        self.engine.observe_now(full=True)
        return {
            uid: [container.name for container in containers]
            for uid, containers in self.engine.observe().containers.items()
            if containers
        }

    # Time.

    def run_pass(self) -> Plan:
        """Plan, keep what is written, and do what is planned; a millisecond goes by: no two runs begin at one time."""
        self.clock.advance(0.001)
        snapshot = self.snapshot()
        policy = as_seen(self.policy, snapshot)
        decision = plan(snapshot, policy, policy.version(), self._memo)
        assert self.activity.hold(decision.holds, snapshot.measured.activity), "nothing is used during a pass"
        self._record(decision.writes)
        self.activity.release(decision.releases)
        for uid in snapshot.progress.results:
            self._results.pop(uid, None)
        for group in decision.groups:
            if group.ref.uid in self._hanging:
                self._in_flight.add(group.ref.uid)
                continue
            self._results[group.ref.uid] = self._carry_out(group)
        sample(decision.samples, self.engine, self.clock, self.activity)
        return decision

    def settle(self, seconds: float = 400.0) -> None:
        """Plan, with the clock moved to each next wake, until nothing is left to do (within so many seconds)."""
        end = self.clock.now() + seconds
        for _ in range(200):
            decision = self.run_pass()
            if decision.groups or decision.writes or decision.samples or self._results:
                continue
            if decision.next_wake is None or decision.next_wake > end:
                return
            self.clock.advance(max(0.0, decision.next_wake - self.clock.now()))
        raise AssertionError(f"does not settle: {decision}")

    def go_on(self, seconds: float) -> None:
        """So much time goes by, with a pass whenever one is due."""
        end = self.clock.now() + seconds
        self.settle(seconds=seconds)
        self.clock.advance(max(0.0, end - self.clock.now()))
        self.settle(seconds=0)

    def _store(self, kind: str, name: str, spec: dict[str, Any], finalizers: tuple[str, ...] = ()) -> StoredObject:
        former = next((obj for obj in self._objects.values() if (obj.kind, obj.name) == (kind, name)), None)
        if former is not None:
            obj = former if former.spec == spec else replace(former, spec=spec, generation=former.generation + 1)
        else:
            self._uids += 1
            uid, created_at = f"{self._uids:08x}-0000-4000-8000-000000000000", self.clock.now()
            namespace = "" if kind == HOST_QUOTA.name else _NAMESPACE
            obj = StoredObject(kind, namespace, name, uid, spec, created_at=created_at, finalizers=finalizers)
        self._objects[obj.uid] = obj
        return obj

    def _show(self, obj: StoredObject) -> None:
        """Have the next snapshot contain this sandbox."""
        self._objects[obj.uid] = obj
        spec = SandboxSpec.model_validate(obj.spec)
        self._sandboxes[obj.uid] = Sandbox(obj, spec, spec.template)

    def _template(self, name: str) -> tuple[Template | None, int]:
        """Return the template of that name, and its generation."""
        obj = next((obj for obj in self._of_kind(SANDBOX_TEMPLATE.name) if obj.name == name), None)
        if obj is None:
            return None, 0
        key = obj.uid, obj.generation
        if key not in self._templates:
            self._templates[key] = SandboxTemplateSpec.model_validate(obj.spec)
        return self._templates[key], obj.generation

    def _of_kind(self, *kinds: str) -> list[StoredObject]:
        return [obj for obj in self._objects.values() if obj.kind in kinds]

    def _pools(self) -> dict[str, Pool]:
        pools = {}
        for obj in self._of_kind(SANDBOX_POOL.name):
            spec = SandboxPoolSpec.model_validate(obj.spec)
            pools[obj.uid] = Pool(obj, spec, *self._template(spec.template_ref.name))
        return pools

    def _with_templates(self) -> dict[str, Sandbox]:
        """Return the sandboxes with what their templates are now; one whose template is the same stays the same."""
        for uid, sandbox in self._sandboxes.items():
            if sandbox.spec is not None and sandbox.spec.template_ref is not None:
                template, _ = self._template(sandbox.spec.template_ref.name)
                if template != sandbox.template:
                    self._sandboxes[uid] = replace(sandbox, template=template)
        return dict(self._sandboxes)

    def snapshot(self) -> Snapshot:
        """Return the input of the next pass."""
        observed = self.engine.observe()
        quotas = self._of_kind(QUOTA.name, HOST_QUOTA.name)
        return snapshot_with(
            now=self.clock.now(),
            instance_id=_INSTANCE_ID,
            sandboxes=self._with_templates(),
            pools=self._pools(),
            observed=observed if observed.facts.cpus or observed.blind else replace(observed, revision=0),
            instances=dict(self._instances),
            in_flight=frozenset(self._in_flight),
            results=dict(self._results),
            quotas={obj.uid: stored_quota(obj) for obj in quotas},
            object_counts=Counter(obj.namespace for obj in self._objects.values() if obj.namespace),
            layers=self.layers,
            pressure=self.pressure,
            activity=self.activity.view(self._sandboxes),
            hibernation=self.engine.hibernation if self.hibernates else UNKNOWN_ABILITY,
        )

    def _record(self, writes: Writes) -> None:
        """Keep what a pass writes, as the store does."""
        self._writes += bool(writes)
        self.events += writes.events
        for write in writes.statuses:
            if (obj := self._objects.get(write.ref.uid)) is not None:
                self._replace(replace(obj, status=write.status))
        for ref, finalizer in writes.finalized:
            self._finalize(ref.uid, finalizer)
        for deletion in writes.deletions:
            obj = self._objects.get(deletion.ref.uid)
            if obj is not None and obj.generation == deletion.generation:
                self._replace(replace(obj, deleted_at=deletion.at))
        for instance in writes.instances:
            if instance.parent_uid in self._objects:
                self._instances[instance.uid] = replace(instance, version=instance.version + 1)
        for instance in writes.retired:
            self._instances.pop(instance.uid, None)

    def _replace(self, obj: StoredObject) -> None:
        self._objects[obj.uid] = obj
        if (sandbox := self._sandboxes.get(obj.uid)) is not None:
            self._sandboxes[obj.uid] = replace(sandbox, obj=obj)

    def _finalize(self, uid: str, finalizer: str) -> None:
        obj = self._objects.get(uid)
        if obj is not None and obj.finalizers == (finalizer,):
            del self._objects[uid]
            self._sandboxes.pop(uid, None)
            for own_uid in (uid, egress_uid(uid)):
                self._instances.pop(own_uid, None)

    def _carry_out(self, group: Group) -> Result:
        """Do the actions of a group; the first that fails ends it."""
        done: list[tuple[Action, Outcome]] = []
        for action in group.actions:
            self.before(action)
            done.append((action, self.engine.act(action)))
            if not isinstance(done[-1][1], Ok):
                break
        return Result(group.ref.uid, group.generation, group.deleting, tuple(done))
