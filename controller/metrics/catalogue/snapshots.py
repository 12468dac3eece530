"""Section C: snapshots of sandboxes on this host."""

from controller.metrics.catalogue.family import Family, counter, gauge, histogram

LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 600)
FAILURES = (
    "TooLarge",
    "Unsupported",
    "NotFrozen",
    "Thawed",
    "NotCapturable",
    "BeingCaptured",
    "EngineElsewhere",
    "EngineFailed",
    "Damaged",
    "Failed",
)

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_snapshots", "Snapshots whose files are on this host."),
    gauge("paddock_snapshot_storage_bytes", "Size of their files.", unit="bytes"),
    gauge(
        "paddock_snapshot_last_capture_timestamp_seconds",
        "End of the last capture; absent before the first.",
        unit="seconds",
    ),
    histogram("paddock_snapshot_capture_seconds", "Length of one capture. Its count is their number.", buckets=LONG),
    histogram(
        "paddock_snapshot_frozen_seconds", "Time that a sandbox stood still for a capture of it running.", buckets=LONG
    ),
    counter(
        "paddock_snapshot_capture_failures_total",
        f"Captures that failed ({', '.join(FAILURES)}, other); some are tried again.",
        ("reason",),
        values={"reason": FAILURES},
    ),
)
