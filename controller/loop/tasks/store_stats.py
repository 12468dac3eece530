"""Metrics of the store: read in the background, never by a scrape."""

import structlog

from controller.kinds.registry import discover
from controller.ports import Meter, Store, StoreError

_log = structlog.get_logger("paddock.loop")
STORE_SECONDS = 60.0


def publish_store_stats(store: Store, meter: Meter) -> None:
    """Read the store's figures and publish them. If it can't be read, the last ones stay."""
    try:
        stats = store.figures()
    except StoreError as error:
        _log.info("store figures unreadable", reason=str(error))
        return
    labels = {"backend": stats.backend, "server_version": stats.server_version, "revision": stats.revision}
    meter.gauge("paddock_store_info", 1, **labels)
    meter.gauge("paddock_store_schema_current", float(stats.schema_current))
    meter.gauge("paddock_store_size_bytes", stats.size_bytes)
    if stats.wal_bytes is not None:
        meter.gauge("paddock_store_wal_bytes", stats.wal_bytes)
    for kind in {known_kind.name for known_kind in discover() if not known_kind.read_only} | stats.objects.keys():
        meter.gauge("paddock_store_objects", stats.objects.get(kind, 0), kind=kind)
