"""Registration of the collectors of the last snapshot."""

from collections.abc import Callable, Mapping, Sequence

from controller.kinds.observed.usage import LayerUsage
from controller.kinds.planning.snapshot import Snapshot
from controller.metrics.containers import ContainerCollector
from controller.metrics.host import HostCollector
from controller.metrics.models import ModelsCollector
from controller.metrics.objects import ObjectCollector
from controller.metrics.pools import PoolCollector
from controller.metrics.quotas import QuotaCollector
from controller.metrics.registry import Registry
from controller.ports import UsageReader


def collect(
    registry: Registry,
    snapshot: Callable[[], Snapshot | None],
    usage: UsageReader,
    *,
    layers: Callable[[], Mapping[str, LayerUsage]],
    detail: bool,
    labels: Sequence[str],
) -> None:
    """Register all collectors. `detail` adds detailed families; `labels` are the exported sandbox labels."""
    registry.register(ContainerCollector(snapshot, usage, layers=layers, detail=detail))
    registry.register(ObjectCollector(snapshot, label_allowlist=labels, detail=detail))
    for collector in (PoolCollector, QuotaCollector, ModelsCollector, HostCollector):
        registry.register(collector(snapshot))
