"""Warm pools, from the last snapshot (section C of the catalogue)."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric

from controller.kinds.observed.observed import State
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.metrics.catalogue import POOLS
from controller.metrics.catalogue.pools import STATES
from controller.metrics.families import empty, filled
from controller.metrics.render import Labels


class PoolCollector:
    """Collector of desired, claimed and actual members of each pool."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        return [empty(family) for family in POOLS]

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        pools = [(_labels(pool), pool) for pool in snapshot.desired.pools.values()]
        lasting = [(at, pool) for at, pool in pools if pool.spec and pool.obj.deleted_at is None]
        desired = ((_with_image(at, pool), pool.spec.warm_replicas) for at, pool in lasting if pool.spec)
        yield filled("paddock_pool_desired_containers", desired)
        most = ((at, pool.spec.max_replicas) for at, pool in pools if pool.spec)
        yield filled("paddock_pool_max_containers", ((at, bound) for at, bound in most if bound is not None))
        yield filled("paddock_pool_containers", _members(snapshot, pools))


def _members(snapshot: Snapshot, pools: list[tuple[Labels, Pool]]) -> Iterator[tuple[Labels, float]]:
    for labels, pool in pools:
        counted = dict.fromkeys(STATES, 0)
        for member in snapshot.instances.values():
            if member.member_uid and member.parent_uid == pool.obj.uid:
                counted[_state(snapshot, member)] += 1
        for state, number in counted.items():
            yield _with_image(labels, pool).plus("state", state), number


def _state(snapshot: Snapshot, member: Instance) -> str:
    if member.role == "retired":
        return "draining"
    if member.state.backoff.failure is not None:
        return "failed"
    containers = snapshot.observed.containers.get(member.uid, ())
    return "ready" if any(container.state is State.RUNNING for container in containers) else "warming"


def _labels(pool: Pool) -> Labels:
    return Labels({"namespace": pool.obj.namespace, "pool": pool.obj.name})


def _with_image(labels: Labels, pool: Pool) -> Labels:
    return Labels({**labels, "image": pool.template.image if pool.template else ""})
