"""Cost of planning: settled hosts of 1,000 to 10,000 sandboxes, with warm memos, and the first, cold pass.

The baseline is one pass over the same dictionaries that only looks each object up: what no planner can beat.
"""

import time
from dataclasses import replace

import pytest

from controller.kinds.planning.snapshot import Snapshot
from controller.plan.base.memo import Memo
from tests.plan.case_file import container, decide, sandbox, snapshot
from tests.snapshots import changed_snapshot

pytestmark = pytest.mark.bench


def settled_host(count: int) -> tuple[Snapshot, Memo]:
    """A host on which nothing is left to do, and the memos of a planner that has seen it."""
    sandboxes = [sandbox(f"box-{index}", {"template": {"image": "a:1"}}) for index in range(count)]
    host = snapshot(sandboxes, [container(stored) for stored in sandboxes])
    memo = Memo()
    for _ in range(3):
        planned = decide(host, memo)
        statuses = {write.ref.uid: write.status for write in planned.writes.statuses}
        host = changed_snapshot(
            host,
            sandboxes={
                uid: replace(sandbox, obj=replace(sandbox.obj, status=statuses[uid])) if uid in statuses else sandbox
                for uid, sandbox in host.desired.sandboxes.items()
            },
            instances={**host.instances, **{instance.parent_uid: instance for instance in planned.writes.instances}},
        )
    return host, memo


def best_of(runs: int, work: object) -> float:
    """Milliseconds of the quickest of some runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def test_planning_a_settled_host(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["", "sandboxes   cold ms   all decided anew ms   warm ms   snapshot ms   look-up ms   warm/look-up"]
    for count in (1_000, 2_000, 5_000, 10_000):
        host, memo = settled_host(count)
        cold = best_of(3, lambda host=host: decide(host, Memo()))
        warm = best_of(20, lambda host=host, memo=memo: decide(host, memo))
        anew = best_of(3, lambda host=host, memo=memo: decide(host, Memo(memo.policy, memo.rendered)))
        build = best_of(20, lambda host=host: replace(host, instances=dict(host.instances), now=host.now + 1))

        def look_up(host: Snapshot = host) -> None:
            for uid in host.desired.sandboxes:
                host.observed.containers.get(uid), host.instances.get(uid)

        base = best_of(20, look_up)
        lines.append(f"{count:9} {cold:9.2f} {anew:21.2f} {warm:9.3f} {build:13.3f} {base:12.3f} {warm / base:14.2f}")
        assert str(decide(host, memo)) == "nothing to do"
    with capsys.disabled():
        print("\n".join(lines))
