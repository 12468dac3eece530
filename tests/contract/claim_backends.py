"""A pool of ready members in a store, and what a process sees of it that claims them: no loop and no engine."""

from collections.abc import Sequence
from dataclasses import replace

from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, HostFacts, Observation, State
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.kinds.quota import Amount, Ceiling, replicas_scope
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import render
from controller.ports import Conflict, NullMeter
from controller.ports.fleet import SINGLE, Fleet
from controller.service.objects.claims import Claims
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.contract.store_backends import insert
from tests.instance_states import instance_state
from tests.snapshots import snapshot_with

SPEC = {"templateRef": {"name": "t"}}
WHOLE = "whole-uid"
HELD = Limits(100, 64 << 20, 16)
_REFRESH_AFTER = 20


def move_in(store: SqlStore, hard: dict[str, int], of_whole: dict[str, int] | None = None) -> None:
    """A template, its pool, and a quota. `of_whole` is the quota of the pool that it is then a part of: WHOLE."""
    stored = StoredObject("SandboxPool", "default", "p", "p-uid", spec={**SPEC, "warmReplicas": 1000})
    if of_whole is not None:
        owner = {"kind": "SandboxPool", "name": "whole", "uid": WHOLE}
        stored = replace(stored, owner_references=(owner,), spec={**stored.spec, "quota": of_whole})
    insert(
        store,
        StoredObject("SandboxTemplate", "default", "t", "t-uid", spec={"image": "tiny"}),
        stored,
        StoredObject("Quota", "default", "q", "q-uid", spec={"hard": hard}),
    )


def fill(store: SqlStore, round_: int, count: int, pool: str = "p-uid") -> None:
    """So many new members, ready to be claimed. `pool` is the uid of the whole pool."""
    with store.transaction() as transaction:
        for index in range(count):
            uid = f"{round_:04}{index:04}-member"
            memory = instance_state(pool=pool, hostname=f"p-{uid[:8]}", container=f"c-{uid}")
            name = container_name(memory.container.hostname, uid)
            transaction.put_instance(
                Instance(
                    name, "p-uid", "SandboxPool", "default", "p", "warm", HELD, float(index), memory, member_uid=uid
                )
            )


def add_member(store: SqlStore, uid: str, host: str, most: int) -> bool:
    """Add a member on a host as a pass does that found a place free; return False if there are `most` already."""
    memory = instance_state(pool=WHOLE, hostname=uid)
    row = ("p-uid", "SandboxPool", "default", "p", "warm", HELD, 0.0, memory)
    ceiling = Ceiling(replicas_scope(WHOLE), Amount(sandboxes=most))
    try:
        store.record(Writes(instances=(Instance(f"pdk-{uid}", *row, member_uid=uid, host=host),), ceilings=(ceiling,)))
    except Conflict:
        return False
    return True


def fill_hosts(store: SqlStore, hosts: Sequence[str], key: str = "k") -> list[str]:
    """A new member on each of these hosts, in order of age, of which all daemons know that it is ready; their uids."""
    uids = [f"{number:04}-{host}-{key}" for number, host in enumerate(hosts)]
    with store.transaction() as transaction:
        for number, (uid, host) in enumerate(zip(uids, hosts, strict=True)):
            memory = instance_state(pool="p-uid", hostname=uid, container=f"c-{uid}", ready_key=key)
            row = ("p-uid", "SandboxPool", "default", "p", "warm", HELD, float(number), memory)
            transaction.put_instance(Instance(f"pdk-{uid}", *row, member_uid=uid, host=host))
    return uids


def snapshot_of(store: SqlStore) -> Snapshot:
    """Return the snapshot that a loop would have planned on: every member runs."""
    instances = {instance.uid: instance for instance in store.instances()}
    template = SandboxTemplateSpec.model_validate({"image": "tiny"})
    obj = store.get("SandboxPool", "default", "p")
    assert obj is not None
    containers = {
        uid: (_container(instance, template),) for uid, instance in instances.items() if instance.role == "warm"
    }
    return snapshot_with(
        now=0.0,
        instance_id="claims",
        sandboxes={},
        observed=Observation(revision=1, blind="", containers=containers),
        instances=instances,
        pools={"p-uid": Pool(obj, SandboxPoolSpec.model_validate(obj.spec), template, 1)},
    )


def _container(member: Instance, template: SandboxTemplateSpec) -> Container:
    spec = SandboxSpec.model_validate(SPEC)
    rendered = render(spec, template, name=member.state.container.hostname, uid=member.uid, policy=Policy())
    return Container(
        id=member.state.container.id,
        name=member.name,
        uid=member.uid,
        state=State.RUNNING,
        config_hash=rendered.config_hash,
        template_hash=rendered.template_hash,
        limits=HELD,
    )


class _Missed(Exception):
    """There was none to take: nothing is kept of it."""


class _Undone(Exception):
    """The transaction is rolled back after its claim."""


class Claimant:
    """Claims as the API does, by one sandbox a transaction, until there is nothing more to have."""

    def __init__(self, store: SqlStore, name: str, place: Fleet = SINGLE) -> None:
        self._store, self._name, self._number = store, name, 0
        self._seen: Snapshot | None = None
        self._claims = Claims(lambda: self._seen, NullMeter(), HostFacts, HandClock(), place=place)

    def see(self, snapshot: Snapshot) -> None:
        """Claim by this snapshot from now on."""
        self._seen = snapshot

    def claim_all(self, memory: str) -> list[str]:
        """The uids of the members it got. A miss counts only if the picture was fresh."""
        won: list[str] = []
        while True:
            self.see(snapshot_of(self._store))
            for index in range(_REFRESH_AFTER):
                uid = self.claim(memory)
                if not uid and not index:
                    return won
                if not uid:
                    break
                won.append(uid)

    def claim(self, memory: str, *, undo: bool = False) -> str:
        """Claim a member for a new sandbox; return its uid ("": there was none). `undo`: then roll it all back."""
        self._number += 1
        name = f"{self._name}-{self._number}"
        obj = StoredObject(
            "Sandbox", "default", name, f"new-{name}", spec={**SPEC, "resources": {"limits": {"memory": memory}}}
        )
        try:
            with self._store.transaction() as transaction:
                claim = self._claims.claim(transaction, obj)
                if claim.uid == obj.uid:
                    raise _Missed
                transaction.put(claim)
                if undo:
                    raise _Undone
        except _Missed:
            return ""
        except _Undone:
            pass
        return claim.uid


def move_out(store: SqlStore) -> None:
    """No sandbox and no member is left."""
    with store.transaction() as transaction:
        for stored in transaction.list("Sandbox"):
            transaction.remove(stored)
    with store.transaction() as transaction:
        transaction.retire([instance for instance in store.instances() if instance.role == "warm"])
