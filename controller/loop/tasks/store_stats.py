"""Metrics of the store: read in the background, never by a scrape."""

import structlog

from controller.kinds.registry import discover
from controller.ports import Meter, Store, StoreError

_log = structlog.get_logger("paddock.loop")
STORE_SECONDS = 60.0


def publish_store_stats(store: Store, meter: Meter) -> None:
    """Read the store's figures and publish them. If it can't be read, the last ones stay."""
    try:
        found = store.figures()
    except StoreError as error:
        _log.info("store figures unreadable", reason=str(error))
        return
    labels = {"backend": found.backend, "server_version": found.server_version, "revision": found.revision}
    meter.gauge("paddock_store_info", 1, **labels)
    meter.gauge("paddock_store_schema_current", float(found.schema_current))
    meter.gauge("paddock_store_size_bytes", found.size_bytes)
    if found.wal_bytes is not None:
        meter.gauge("paddock_store_wal_bytes", found.wal_bytes)
    for kind in {each.name for each in discover() if not each.read_only} | found.objects.keys():
        meter.gauge("paddock_store_objects", found.objects.get(kind, 0), kind=kind)
