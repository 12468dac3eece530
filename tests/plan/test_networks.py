"""Networks of a sandbox: decisions on what the engine answered, by typed data and not by its messages."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.kinds.planning.outcome import Transient
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import Result, Snapshot
from controller.kinds.runtime.network import EnsureNetwork, Network
from controller.plan.base.memo import Memo
from tests.plan.case_file import container, decide, read, sandbox, snapshot
from tests.plan.test_cases import CASES
from tests.snapshots import changed_snapshot


def ensured(host: Snapshot) -> tuple[str, str, EnsureNetwork]:
    """The subnet of the first sandbox's own network, its uid, and the action that creates it."""
    [group] = decide(host).groups
    own_ensure_network = next(action for action in group.actions if isinstance(action, EnsureNetwork) and action.uid)
    return own_ensure_network.config.subnet, group.ref.uid, own_ensure_network


@pytest.mark.parametrize("prose", ["", "Pool overlaps with other one on this address space", "10.0.0.0/28 is in use"])
def test_taken_subnet_is_replaced_whatever_the_message_says(prose: str) -> None:
    host, _ = read(next(case for case in CASES if case.stem == "sealed-create"))
    subnet, uid, own_ensure_network = ensured(host)
    content = {instance.uid: instance for instance in decide(host).writes.instances}
    result = Result(uid, 1, False, ((own_ensure_network, Transient("SubnetTaken", prose)),))
    answered = changed_snapshot(
        host, instances={**host.instances, **content}, results={uid: result}, now=host.now + 0.1
    )
    after = {instance.uid: instance for instance in decide(answered).writes.instances}
    later = replace(host, instances={**content, **after}, now=host.now + 60)
    chosen, _, _ = ensured(later)
    assert chosen != subnet


def test_other_failures_keep_the_subnet() -> None:
    host, _ = read(next(case for case in CASES if case.stem == "sealed-create"))
    subnet, uid, own_ensure_network = ensured(host)
    content = {instance.uid: instance for instance in decide(host).writes.instances}
    result = Result(uid, 1, False, ((own_ensure_network, Transient("Timeout", f"{subnet} is in use")),))
    answered = changed_snapshot(
        host, instances={**host.instances, **content}, results={uid: result}, now=host.now + 0.1
    )
    after = {instance.uid: instance for instance in decide(answered).writes.instances}
    later = replace(host, instances={**content, **after}, now=host.now + 60)
    assert ensured(later)[0] == subnet


def test_a_network_settles_all_but_those_it_touches() -> None:
    sandboxes = [sandbox(f"box-{index}", {"template": {"image": "a:1"}}) for index in range(5)]
    host = snapshot(sandboxes, [container(stored) for stored in sandboxes])
    memo = Memo()
    for _ in range(3):
        host = _taken_in(host, decide(host, memo))
    settled = dict(memo.settled)
    assert len(settled) == len(sandboxes)
    mine = Network("n1", "pdp-else", "another", "", "0", "10.0.0.0/28")
    decide(_seen(host, {mine.name: mine}), memo)
    assert all(memo.settled[uid] is entry for uid, entry in settled.items())
    own_network = replace(mine, uid=sandboxes[0].obj.uid)
    decide(_seen(host, {own_network.name: own_network}), memo)
    assert [uid for uid, entry in settled.items() if memo.settled.get(uid) is not entry] == [sandboxes[0].obj.uid]


def _seen(host: Snapshot, networks: Mapping[str, Network]) -> Snapshot:
    return replace(host, observed=replace(host.observed, networks=networks))


def _taken_in(host: Snapshot, planned: Plan) -> Snapshot:
    """The host with what the plan writes."""
    statuses = {write.ref.uid: write.status for write in planned.writes.statuses}
    sandboxes = {
        uid: replace(sandbox, obj=replace(sandbox.obj, status=statuses[uid])) if uid in statuses else sandbox
        for uid, sandbox in host.desired.sandboxes.items()
    }
    instances = {**host.instances, **{instance.uid: instance for instance in planned.writes.instances}}
    return changed_snapshot(host, sandboxes=sandboxes, instances=instances)
