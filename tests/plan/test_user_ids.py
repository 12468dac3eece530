"""User ids: one of its own for each sandbox, recorded before its container, and used again last of all."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controller.kinds.observed.observed import Container, HostFacts, State
from controller.kinds.planning.action import CreateContainer, SignalContainer
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.runtime.mount import BindMounts
from controller.kinds.runtime.user_ids import IdRange, own_id
from controller.plan.base.memo import Memo
from controller.plan.host import plan
from controller.policy.host.host import fitted
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import admit, render
from tests.examples import examples
from tests.plan.case_file import POLICY, container, sandbox, snapshot

OWN = IdRange(2_000_000, 2_000_127)
OWNING = replace(POLICY, user_ids=OWN)
SPEC = {"template": {"image": "a:1"}}
CREATIONS, MOST_LIVE = examples(3_000), 32


def decided(found: Snapshot, memo: Memo | None = None, policy: Policy = OWNING) -> Plan:
    return plan(found, policy, policy.version(), memo)


def one(name: str = "a", *, generation: int = 1, **template: Any) -> Sandbox:
    return sandbox(name, {"template": {"image": "a:1", **template}}, generation=generation)


def records(made: Plan) -> dict[str, Instance]:
    return {instance.uid: instance for instance in made.writes.instances}


def creations(made: Plan) -> dict[str, CreateContainer]:
    actions = (action for group in made.groups for action in group.actions)
    return {action.uid: action for action in actions if isinstance(action, CreateContainer)}


def creation(made: Plan) -> CreateContainer:
    [create_container] = creations(made).values()
    return create_container


def running(box: Sandbox, record: Instance, policy: Policy = OWNING, **said: Any) -> Container:
    """Its container, as it was created by that record."""
    assert box.spec is not None
    assert box.template is not None
    names = {"name": box.obj.name, "uid": box.obj.uid}
    rendered = render(box.spec, box.template, policy=policy, user_id=record.state.security.user_id, **names)  # type: ignore[arg-type]
    observed = container(box, **said)
    return replace(observed, config_hash=rendered.config_hash, user=rendered.config.user)


def test_a_new_container_runs_as_the_recorded_id() -> None:
    created = decided(snapshot([one("a", workspace={}), one("b", user="34567:34567")], []))
    reserved = records(created)
    assert (reserved["a-uid"].state.security.user_id, reserved["b-uid"].state.security.user_id) == (OWN.first, 0)
    actions = creations(created)
    assert actions["a-uid"].config.user == f"{OWN.first}:{OWN.first}"
    assert actions["b-uid"].config.user == "34567:34567"
    bound = [action.user for group in created.groups for action in group.actions if isinstance(action, BindMounts)]
    assert set(bound) <= {f"{OWN.first}:{OWN.first}"}


def test_an_images_user_is_left_to_the_engine() -> None:
    """Only the engine knows it: it gets the id for the case that the image fits any user."""
    level = {"securityLevel": "production", "volumes": [{"name": "v", "mountPath": "/v", "size": "32Mi"}]}
    created = decided(snapshot([one("a", **level), one("b", user="34567:34567", **level)], []))
    configs = {
        uid: (create_container.config.user, create_container.config.own_id)
        for uid, create_container in creations(created).items()
    }
    assert configs == {"a-uid": ("", OWN.first), "b-uid": ("34567:34567", 0)}
    assert {create_container.config.owned_ids for create_container in creations(created).values()} == {OWN}
    bound = [action for group in created.groups for action in group.actions if isinstance(action, BindMounts)]
    assert {(bind_mounts.uid, bind_mounts.user, bind_mounts.own_id) for bind_mounts in bound} == {
        ("a-uid", "", OWN.first),
        ("b-uid", "34567:34567", 0),
    }


@pytest.mark.parametrize("level", ["development", "build", "production"])
def test_a_container_of_an_image_user_stays_as_it_is(level: str) -> None:
    """Containers that an older daemon created have no id, and the hash of their config is what it was."""
    template = {"securityLevel": level, "security": {"network": {"mode": "none"}}}
    box = one(**template)
    record = records(decided(snapshot([box], []), policy=POLICY))["a-uid"]
    before = replace(running(box, record, POLICY, template="as now"), user="20000:20000")
    stored = {"a-uid": replace(record, version=1)}
    kept_plan = decided(snapshot([box], [before], instances=stored))
    assert not creations(kept_plan)
    assert not any(instance.state.security.user_id for instance in kept_plan.writes.instances)
    assert not any(isinstance(action, SignalContainer) for group in kept_plan.groups for action in group.actions)
    rendered = render(box.spec, box.template, name="a", uid="a-uid", policy=OWNING)  # type: ignore[arg-type]
    assert rendered.config_hash == before.config_hash
    renewed = decided(snapshot([one(generation=2, image="a:2", **template)], [], instances=stored))
    assert creation(renewed).config.own_id == OWN.first


def test_a_running_container_keeps_its_user_until_its_next_generation() -> None:
    box, shared = one(), decided(snapshot([one()], []), policy=POLICY)
    record = records(shared)["a-uid"]
    before = running(box, record, POLICY, template="as now")
    assert (record.state.security.user_id, before.user) == (0, "20000:20000")
    stored = {"a-uid": replace(record, version=1)}
    kept_plan = decided(snapshot([box], [before], instances=stored))
    assert not kept_plan.groups
    assert not any(instance.state.security.user_id for instance in kept_plan.writes.instances)
    stopped = replace(before, state=State.EXITED, exit_code=0)
    again = decided(snapshot([box], [stopped], instances=stored))
    assert not creations(again)
    later = one(generation=2, image="a:2")
    renewed = decided(snapshot([later], [stopped], instances=stored))
    assert creation(renewed).config.user == f"{OWN.first}:{OWN.first}"
    assert records(renewed)["a-uid"].state.security.user_id == OWN.first
    mine = {"a-uid": records(renewed)["a-uid"]}
    without = decided(snapshot([later], [], instances=mine), policy=POLICY)
    assert creation(without).config.user == f"{OWN.first}:{OWN.first}", "it keeps what it has"


def test_an_id_in_use_by_any_container_is_left_alone() -> None:
    stray = replace(container(one("gone")), user=f"{OWN.first}:5")
    assert creation(decided(snapshot([one()], [stray]))).config.user == f"{OWN.first + 1}:{OWN.first + 1}"


def test_without_a_free_id_a_sandbox_waits_and_others_run() -> None:
    only = replace(OWNING, user_ids=IdRange(OWN.first, OWN.first))
    created = decided(snapshot([one("a"), one("b"), one("c", user="34567:34567")], []), policy=only)
    users = {uid: create_container.config.user for uid, create_container in creations(created).items()}
    assert users == {"a-uid": f"{OWN.first}:{OWN.first}", "c-uid": "34567:34567"}
    [waits] = created.deferrals
    assert (waits.ref.name, waits.reason) == ("b", "NoFreeUserID")
    assert "sandbox_ids" in waits.message


def test_a_choice_stays_until_it_is_stored() -> None:
    """A sandbox that waits for capacity is decided on in every pass, and rendered but once."""
    memo, quota = Memo(), {"hard": {"sandboxes": 0}}
    first = decided(snapshot([one()], [], quota=quota), memo)
    a_uid = memo.rendered["a-uid"]
    assert not first.groups
    decided(snapshot([one()], [], quota=quota), memo)
    assert memo.rendered["a-uid"].key.user_id == a_uid.key.user_id == OWN.first


def test_an_engine_that_maps_users_has_ids_within_its_map() -> None:
    observed = snapshot([one()], [])
    facts = HostFacts(cpus=2, security_options=("name=seccomp", "name=userns"))
    mapping = fitted(OWNING, facts)
    created = decided(replace(observed, observed=replace(observed.observed, facts=facts)), policy=mapping)
    assert 20_000 < own_id(creation(created).config.user) < 65_534
    spec = one(user="30000:30000").spec
    assert spec is not None
    assert "user 30000 is one of 20001-65533" in admit(spec, mapping)[0].message


def test_no_id_is_used_twice_at_a_time() -> None:
    """Over restarts of the daemon, with containers that stay for a while. The store refuses it, too (its contract)."""
    random, memo, serial = Random(28), Memo(), 0
    sandboxes: dict[str, Sandbox] = {}
    document: dict[str, Instance] = {}
    alive: dict[str, Container] = {}
    stale: list[Container] = []
    order: list[int] = []
    while serial < CREATIONS:
        fresh = [one(f"s{serial + number}") for number in range(MOST_LIVE - len(sandboxes))]
        serial += len(fresh)
        sandboxes |= {entry.obj.uid: entry for entry in fresh}
        document |= records(
            decided(snapshot(list(sandboxes.values()), [*alive.values(), *stale], instances=document), memo)
        )
        ids = [entry.state.security.user_id for entry in document.values()]
        assert len(set(ids)) == len(ids) == len(sandboxes)
        assert {number in OWN for number in ids} == {True}
        new = [document[entry.obj.uid].state.security.user_id for entry in fresh]
        assert not {own_id(entry.user) for entry in stale} & set(new)
        assert not set(order[-MOST_LIVE:]) & set(new), "the one that was free for longest comes first"
        order += new
        alive |= {entry.obj.uid: running(entry, document[entry.obj.uid], template="as now") for entry in fresh}
        sample = random.sample(sorted(sandboxes), random.randint(1, MOST_LIVE))
        stale = [alive[uid] for uid in sample if random.random() < 0.2]
        for uid in sample:
            del sandboxes[uid], document[uid], alive[uid]
        if sandboxes and random.random() < 0.02:
            memo, order = Memo(), []
