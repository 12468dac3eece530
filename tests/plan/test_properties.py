"""Properties of every plan, whatever is desired and observed, checked on generated hosts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from controller.kinds.observed.observed import Container, FrozenMemory, State
from controller.kinds.planning.action import (
    Action,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    HibernateContainer,
    PauseContainer,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
    WakeContainer,
)
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.outcome import Ok
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import Result, Sandbox, Snapshot
from controller.plan.base.memo import Memo
from tests.examples import examples
from tests.instance_states import instance_state
from tests.plan.case_file import NOW, container, decide, instance, rendered, sandbox, snapshot, uid_of
from tests.snapshots import changed_snapshot

NAMES = ("a", "b", "c")
SPECS = st.fixed_dictionaries(
    {
        "template": st.fixed_dictionaries({"image": st.sampled_from(["x:1", "y:1"])}),
        "runState": st.sampled_from(["Running", "Running", "Suspended", "Paused", "Hibernated"]),
        "restartPolicy": st.sampled_from(["Always", "OnFailure", "Never"]),
        "resources": st.fixed_dictionaries({"limits": st.sampled_from([{}, {"memory": "64Mi"}, {"cpu": "250m"}])}),
        "lifecycle": st.sampled_from([{}, {"shutdownGracePeriodSeconds": 0}]),
    }
)


@st.composite
def hosts(draw: st.DrawFn) -> Snapshot:
    """Up to three sandboxes, up to two containers of each in any state, and some of unknown owners."""
    sandboxes = [
        sandbox(
            name,
            draw(SPECS),
            generation=draw(st.integers(1, 2)),
            deleted_at=draw(st.sampled_from([None, None, NOW - 5])),
        )
        for name in draw(st.sets(st.sampled_from(NAMES)))
    ]
    containers: list[Container] = []
    for box in sandboxes:
        for index in range(draw(st.integers(0, 2))):
            state = draw(st.sampled_from([entry for entry in State if entry is not State.RESTARTING]))
            document = {"finished": draw(st.integers(-50, -1))} if state in (State.EXITED, State.DEAD) else {}
            containers.append(
                container(
                    box,
                    id=f"{box.obj.name}-c{index}",
                    state=state.value,
                    name=draw(st.sampled_from([rendered(box).config.name, f"{box.obj.name}-other{index}"])),
                    template=draw(st.sampled_from(["", "old"])),
                    generation=draw(st.integers(1, 2)),
                    exit_code=draw(st.sampled_from([0, 1, 137])),
                    limits=draw(st.sampled_from([{}, {"memory": "32Mi"}])),
                    networks=draw(st.sampled_from([("none",), ("bridge",), ("bridge", "mine"), ()])),
                    **document,
                )
            )
    instances = {
        box.obj.uid: instance(box, instance_state(container=f"{box.obj.name}-c{draw(st.integers(0, 1))}"))
        for box in sandboxes
    }
    strange = sandbox("stranger", {"template": {"image": "z:1"}})
    if draw(st.booleans()):
        containers.append(container(strange))
    return snapshot(sandboxes, containers, instances=instances, hibernates=draw(st.booleans()))


def own(host: Snapshot, uid: str) -> list[Container]:
    """The object's own containers: by name, or by its recorded state."""
    box, state = host.desired.sandboxes[uid], host.instances[uid].state
    containers = host.observed.containers.get(uid, ())
    return [
        c for c in containers if c.name == rendered(box).config.name or c.id in (state.container.id, state.runs.last[0])
    ]


def actions(planned: Plan) -> list[Action]:
    return [action for group in planned.groups for action in group.actions]


@given(hosts())
def test_blind_pass_changes_nothing(host: Snapshot) -> None:
    blind = replace(host, observed=replace(host.observed, blind="no answer"))
    planned = decide(blind)
    assert planned.groups == ()
    assert planned.writes.finalized == ()


@given(hosts())
def test_unreadable_containers_are_left_alone(host: Snapshot) -> None:
    planned = decide(host)
    unread = {uid for uid in host.desired.sandboxes if any(c.state is State.UNKNOWN for c in own(host, uid))}
    assert not unread & {group.ref.uid for group in planned.groups}
    assert not unread & {ref.uid for ref, _ in planned.writes.finalized}


@given(hosts())
def test_actions_name_only_the_objects_own_containers(host: Snapshot) -> None:
    for group in decide(host).groups:
        mine = {entry.id for entry in own(host, group.ref.uid)} | {""}
        for action in group.actions:
            assert getattr(action, "uid", group.ref.uid) == group.ref.uid
            assert getattr(action, "container_id", "") in mine


@given(hosts(), st.permutations(NAMES))
def test_input_order_does_not_matter(host: Snapshot, order: list[str]) -> None:
    shuffled = {uid_of(n): host.desired.sandboxes[uid_of(n)] for n in order if uid_of(n) in host.desired.sandboxes}
    turned = {uid: tuple(reversed(containers)) for uid, containers in reversed(list(host.observed.containers.items()))}
    second = changed_snapshot(host, sandboxes=shuffled, observed=replace(host.observed, containers=turned))
    assert str(decide(second)) == str(decide(host))


@given(hosts())
def test_objects_in_flight_are_not_planned(host: Snapshot) -> None:
    planned = decide(changed_snapshot(host, in_flight=frozenset(host.desired.sandboxes)))
    assert str(planned) == "nothing to do"
    assert not planned.writes


@given(hosts())
def test_memo_changes_no_plan(host: Snapshot) -> None:
    memo = Memo()
    first = decide(host, memo)
    assert str(decide(host, memo)) == str(first) == str(decide(host))


@given(hosts(), st.lists(st.tuples(hosts(), st.sets(st.sampled_from(NAMES)), st.booleans()), max_size=4))
def test_objects_that_did_not_change_need_no_comparison(
    host: Snapshot, news: list[tuple[Snapshot, set[str], bool]]
) -> None:
    """A pass that looks only at what changed plans the same as one that looks at every object."""
    memo, thorough = Memo(), Memo()
    sandboxes = [sandbox(name, {"template": {"image": "x:1"}}) for name in NAMES]
    settled = snapshot(sandboxes, [container(entry) for entry in sandboxes])
    for second, names, flying in [(settled, {"a", "b", "c"}, False), *news, (settled, {"a"}, False)]:
        uids = {uid_of(name) for name in names}
        host = _mixed(host, _readable(second), uids)
        if flying:
            host = changed_snapshot(host, in_flight=frozenset(uids))
        for _ in range(4):
            thorough.last_pass = None
            planned = decide(host, memo)
            assert planned == decide(host, thorough)
            host = changed_snapshot(_carried_out(host, planned), in_flight=frozenset())


def _mixed(host: Snapshot, other: Snapshot, uids: set[str]) -> Snapshot:
    """The host with these objects, their containers and records as on the other; all else is the same as before."""

    def mix(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        stored = {uid: our for uid, our in ours.items() if uid not in uids}
        return stored | {uid: entry for uid, entry in theirs.items() if uid in uids}

    observed = replace(host.observed, containers=mix(host.observed.containers, other.observed.containers))
    sandboxes, instances = mix(host.desired.sandboxes, other.desired.sandboxes), mix(host.instances, other.instances)
    return changed_snapshot(host, sandboxes=sandboxes, instances=instances, observed=observed)


@given(hosts())
@settings(max_examples=examples(300))
def test_every_host_settles(host: Snapshot) -> None:
    """Executing plans, and waiting when they say so, ends in a host that needs nothing, without a duplicate."""
    host = _readable(host)
    memo = Memo()
    for _ in range(40):
        planned = decide(host, memo)
        if not planned.groups and planned.next_wake is None and not planned.writes:
            break
        host = _carried_out(host, planned)
    assert not planned.groups, f"still busy: {planned}"
    assert not planned.writes, f"still writing: {planned.writes}"
    for uid, box in host.desired.sandboxes.items():
        containers = own(host, uid)
        assert len(containers) <= 1
        assert box.spec is not None
        if containers and box.spec.run_state == "Running" and containers[0].state is State.RUNNING:
            assert (
                containers[0].template_hash == rendered(box).template_hash
                or containers[0].generation == box.obj.generation
            )
    assert all(box.obj.deleted_at is None for box in host.desired.sandboxes.values())


def _readable(host: Snapshot) -> Snapshot:
    """The same host without states that only the engine itself can end."""
    ending = (State.UNKNOWN, State.REMOVING)
    stored = {
        uid: tuple(c for c in containers if c.state not in ending)
        for uid, containers in host.observed.containers.items()
    }
    return replace(host, observed=replace(host.observed, containers=stored))


def _carried_out(host: Snapshot, planned: Plan) -> Snapshot:
    """The host after an engine that succeeds in everything, with the clock at the next wake."""
    now = max(planned.next_wake or 0.0, host.now + 1)
    containers = dict(host.observed.containers)
    results: dict[str, Result] = {}
    for group in planned.groups:
        reserved = containers.get(group.ref.uid, ())
        for action in group.actions:
            reserved = _after(reserved, action, now)
        containers[group.ref.uid] = reserved
        done = tuple((action, Ok()) for action in group.actions)
        results[group.ref.uid] = Result(group.ref.uid, group.generation, group.deleting, done)
    return changed_snapshot(
        host,
        now=now,
        sandboxes=_remembered(host, planned),
        observed=replace(host.observed, containers=containers, revision=host.observed.revision + 1),
        instances={**host.instances, **{entry.parent_uid: entry for entry in planned.writes.instances}},
        results=results,
    )


def _remembered(host: Snapshot, planned: Plan) -> dict[str, Sandbox]:
    uids = {ref.uid for ref, _ in planned.writes.finalized}
    statuses = {write.ref.uid: write.status for write in planned.writes.statuses}
    document = {}
    for uid, box in host.desired.sandboxes.items():
        if uid not in uids:
            status = statuses.get(uid)
            document[uid] = box if status is None else replace(box, obj=replace(box.obj, status=status))
    return document


def _after(held: tuple[Container, ...], action: Action, now: float) -> tuple[Container, ...]:
    target = getattr(action, "container_id", "")

    def change(**fields: object) -> tuple[Container, ...]:
        return tuple(replace(c, **fields) if target in ("", c.id) else c for c in held)  # type: ignore[arg-type]

    match action:
        case CreateContainer():
            assert not any(c.name == action.config.name for c in held), "made twice"
            labels = action.labels
            created = Container(
                id=f"made-{now}-{len(held)}",
                name=action.config.name,
                uid=action.uid,
                state=State.CREATED,
                generation=int(labels["paddock.generation"]),
                config_hash=labels["paddock.config-hash"],
                template_hash=labels["paddock.template-hash"],
                image_id="sha256:1",
                limits=action.config.limits,
                networks=(action.config.network_mode,),
            )
            return (*held, created)
        case HibernateContainer():
            return change(state=State.PAUSED, frozen_memory=FrozenMemory(1 << 20, 9 << 20))
        case WakeContainer():
            return change(state=State.RUNNING, frozen_memory=None)
        case StartContainer() | UnpauseContainer():
            return change(state=State.RUNNING, started_at=now)
        case PauseContainer():
            return change(state=State.PAUSED)
        case SignalContainer():
            return change(state=State.EXITED, exit_code=143, finished_at=now)
        case RemoveContainer():
            return tuple(c for c in held if c.id != action.container_id)
        case UpdateLimits():
            return change(limits=action.limits)
        case RenameContainer():
            return change(name=action.name)
        case DisconnectNetwork():
            return tuple(replace(c, networks=tuple(n for n in c.networks if n != action.network)) for c in held)
        case ConnectNetwork():
            return tuple(replace(c, networks=(*c.networks, action.network)) for c in held)
        case _:
            return held


def test_instances_are_written_before_containers_are_created() -> None:
    planned = decide(snapshot([sandbox("a", {"template": {"image": "x:1"}})], []))
    instances: tuple[Instance, ...] = planned.writes.instances
    assert [entry.name for entry in instances] == ["pdk-a-auid"]
    assert instances[0].reserves.memory_bytes == 512 << 20
