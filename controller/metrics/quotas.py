"""Quotas and their reserved amounts, from the last snapshot (section D of the catalogue)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import Metric

from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.quota import Amount
from controller.metrics.catalogue import QUOTAS
from controller.metrics.families import empty, filled
from controller.metrics.render import Labels
from controller.plan.capacity.reservations import reserved_amounts
from controller.policy.quota_ledger import HOST, QuotaBound, bounds


@dataclass(frozen=True, slots=True)
class _Resource:
    """Resource of a quota: its metric names, and the factor between its unit and theirs."""

    name: str
    unit: str
    limit: str
    usage: str
    divisor: int = 1


_RESOURCES = (
    _Resource("cpu", "cpu_millicores", "paddock_quota_cpu_limit_cores", "paddock_quota_cpu_used_cores", divisor=1000),
    _Resource("memory", "memory_bytes", "paddock_quota_memory_limit_bytes", "paddock_quota_memory_used_bytes"),
    _Resource("pids", "pids", "paddock_quota_pids_limit", "paddock_quota_pids_used"),
    _Resource("sandboxes", "sandboxes", "paddock_quota_sandboxes_limit", "paddock_quota_sandboxes_used"),
    _Resource("disk", "disk_bytes", "paddock_quota_fs_limit_bytes", "paddock_quota_fs_used_bytes"),
    _Resource("gpus", "gpus", "paddock_quota_gpus_limit", "paddock_quota_gpus_used"),
)


class QuotaCollector:
    """Collector of the host and each namespace with a quota or reservations. Unbounded resources have no limit."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        return [empty(family) for family in QUOTAS]

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        own_scopes = (
            {HOST} if not snapshot.fleet.leads else None
        )  # a namespace is counted over all hosts, by the one that leads
        of = bounds(snapshot.rules.quotas.values(), snapshot.observed.facts, snapshot.fleet.host)
        amounts = reserved_amounts(snapshot.instances.values())
        amounts |= {
            scope: amounts.get(scope, Amount()) + elsewhere for scope, elsewhere in snapshot.fleet.elsewhere.items()
        }
        scope_names = own_scopes or of.keys() | amounts.keys()
        scopes = [(_labels(scope), of.get(scope, ()), amounts.get(scope, Amount())) for scope in sorted(scope_names)]
        for resource in _RESOURCES:
            most = ((labels, _least(resource, hard_bounds)) for labels, hard_bounds, _ in scopes)
            yield filled(resource.limit, ((labels, limit) for labels, limit in most if limit is not None))
            yield filled(
                resource.usage, ((labels, getattr(now, resource.unit) / resource.divisor) for labels, _, now in scopes)
            )


def _labels(namespace: str) -> Labels:
    return Labels({"scope": "host" if namespace == HOST else "namespace", "namespace": namespace})


def _least(resource: _Resource, scope_bounds: Sequence[QuotaBound]) -> float | None:
    """Return the narrowest bound of several quotas of one namespace; None if there is none."""
    limits = [getattr(bound.hard, resource.name) for bound in scope_bounds if bound.hard is not None]
    return min((limit / resource.divisor for limit in limits if limit is not None), default=None)
