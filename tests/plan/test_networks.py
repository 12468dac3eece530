"""Networks of a sandbox: decisions on what the engine answered, by typed data and not by its messages."""

from dataclasses import replace

import pytest

from controller.kinds.planning.outcome import Transient
from controller.kinds.planning.snapshot import Result, Snapshot
from controller.kinds.runtime.network import EnsureNetwork
from tests.plan.case_file import decide, read
from tests.plan.test_cases import CASES


def ensured(host: Snapshot) -> tuple[str, str, EnsureNetwork]:
    """The subnet of the first sandbox's own network, its uid, and the action that creates it."""
    [group] = decide(host).groups
    own = next(each for each in group.actions if isinstance(each, EnsureNetwork) and each.uid)
    return own.config.subnet, group.ref.uid, own


@pytest.mark.parametrize("prose", ["", "Pool overlaps with other one on this address space", "10.0.0.0/28 is in use"])
def test_taken_subnet_is_replaced_whatever_the_message_says(prose: str) -> None:
    host, _ = read(next(each for each in CASES if each.stem == "sealed-create"))
    subnet, uid, own = ensured(host)
    written = {each.uid: each for each in decide(host).writes.instances}
    result = Result(uid, 1, False, ((own, Transient("SubnetTaken", prose)),))
    answered = replace(host, instances={**host.instances, **written}, results={uid: result}, now=host.now + 0.1)
    after = {each.uid: each for each in decide(answered).writes.instances}
    later = replace(host, instances={**written, **after}, now=host.now + 60)
    chosen, _, _ = ensured(later)
    assert chosen != subnet


def test_other_failures_keep_the_subnet() -> None:
    host, _ = read(next(each for each in CASES if each.stem == "sealed-create"))
    subnet, uid, own = ensured(host)
    written = {each.uid: each for each in decide(host).writes.instances}
    result = Result(uid, 1, False, ((own, Transient("Timeout", f"{subnet} is in use")),))
    answered = replace(host, instances={**host.instances, **written}, results={uid: result}, now=host.now + 0.1)
    after = {each.uid: each for each in decide(answered).writes.instances}
    later = replace(host, instances={**written, **after}, now=host.now + 60)
    assert ensured(later)[0] == subnet
