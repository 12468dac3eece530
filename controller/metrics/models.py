"""Providers and model servers, from the last snapshot (section N of the catalogue)."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric

from controller.kinds.meta import StoredObject
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.provider import condition_of
from controller.metrics.catalogue import MODELS
from controller.metrics.families import empty, filled
from controller.metrics.render import Labels


class ModelsCollector:
    """Collector of the readiness of each source of models. Series vanish with their object."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        return [empty(family) for family in MODELS]

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        providers = (provider.obj for provider in snapshot.models.providers.values())
        yield filled("paddock_provider_status_ready", _ready(providers, "provider"))
        servers = (server.obj for server in snapshot.models.servers.values())
        yield filled("paddock_model_server_status_ready", _ready(servers, "model_server"))


def _ready(objects: Iterable[StoredObject], label: str) -> Iterator[tuple[Labels, float]]:
    for obj in objects:
        status = condition_of(obj).get("status")
        if obj.deleted_at is None and status in ("True", "False"):
            yield Labels({"namespace": obj.namespace, label: obj.name}), int(status == "True")
