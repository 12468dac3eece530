"""Section G: calls to the database."""

from controller.metrics.catalogue.family import OTHER, Family, counter, gauge, histogram

SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
REASONS = (
    "locked",
    "serialization",
    "conflict",
    "integrity",
    "timeout",
    "connection",
    "readonly",
    "missing",
    "full",
    "corrupt",
    "io",
    "schema",
    "data",
    "gone",
    "too_new",
    "closed",
    OTHER,
)

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_store_up", "1 when the last health query succeeded."),
    gauge("paddock_store_info", "Always 1; revision = alembic current.", ("backend", "server_version", "revision")),
    gauge("paddock_store_schema_current", "1 when the database is at alembic head."),
    counter("paddock_store_operations_total", "Repository calls.", ("operation",)),
    counter(
        "paddock_store_operation_errors_total",
        "Failed calls (locked, serialization, conflict, integrity, timeout, connection).",
        ("operation", "reason"),
        values={"reason": REASONS},
    ),
    histogram(
        "paddock_store_operation_duration_seconds", "Length of a call, retries included.", ("operation",), buckets=SHORT
    ),
    counter(
        "paddock_store_retries_total",
        "Transactions retried after a concurrent change.",
        ("reason",),
        values={"reason": ("conflict",)},
    ),
    gauge(
        "paddock_store_connections",
        "Pool connections (checked_in, checked_out, overflow).",
        ("state",),
        values={"state": ("checked_in", "checked_out", "overflow")},
    ),
    gauge("paddock_store_connections_max", "pool_size + max_overflow."),
    gauge("paddock_store_objects", "Objects stored.", ("kind",)),
    gauge("paddock_store_size_bytes", "Database size.", unit="bytes"),
    gauge("paddock_store_wal_bytes", "SQLite WAL size.", unit="bytes"),
    gauge(
        "paddock_store_last_backup_timestamp_seconds",
        "End of the last good backup that this daemon made; absent before it made one.",
        unit="seconds",
    ),
)
