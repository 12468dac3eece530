"""What a plan tells of its pools for those who count: which members may be claimed, and why others go unused."""

from collections.abc import Iterable, Iterator, Sequence

from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Retirement, Warm
from controller.kinds.planning.snapshot import Pool
from controller.plan.common.backoff import waits
from controller.plan.pool.sandboxpool import Member


def ready_ones(pool: Pool, members: Iterable[Member]) -> Iterator[Warm]:
    """The members that may be claimed."""
    for each in members:
        if each.ready:
            yield Warm(each.instance.uid, pool.obj.ref, each.instance.created_at)


def retirements(
    pool: Pool, members: Sequence[Member], retired: Iterable[Instance], *, crowded: bool, now: float
) -> Iterator[Retirement]:
    """Why each of these members is retired now."""
    known = {each.instance.uid: each for each in members}
    for each in retired:
        yield Retirement(each.uid, pool.obj.ref, _why(pool, known[each.uid], crowded=crowded, now=now))


def _why(pool: Pool, member: Member, *, crowded: bool, now: float) -> str:
    if pool.spec is not None and not waits(now, member.instance.created_at + pool.spec.max_age_seconds, float("inf")):
        return "age"
    if member.stale:
        return "outdated"
    if crowded:
        return "room"
    return "unhealthy" if member.trouble else "scale_down"
