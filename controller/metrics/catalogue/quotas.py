"""Section D: quotas, reserved amounts, pending sandboxes. `scope` is host or namespace; also pool for pending ones."""

from controller.metrics.catalogue.family import Family, counter, gauge

BOUND = ("scope", "namespace")
SCOPES = ("host", "namespace")
RESOURCES = ("cpu", "memory", "pids", "sandboxes", "disk", "gpus")
_SHORT = {"scope": (*SCOPES, "pool"), "resource": RESOURCES}

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_quota_cpu_limit_cores", "CPU that may be reserved.", BOUND, unit="cores"),
    gauge("paddock_quota_cpu_used_cores", "CPU reserved now.", BOUND, unit="cores"),
    gauge("paddock_quota_memory_limit_bytes", "Memory that may be reserved.", BOUND, unit="bytes"),
    gauge("paddock_quota_memory_used_bytes", "Memory reserved now.", BOUND, unit="bytes"),
    gauge("paddock_quota_pids_limit", "PIDs that may be reserved.", BOUND),
    gauge("paddock_quota_pids_used", "PIDs reserved now.", BOUND),
    gauge("paddock_quota_sandboxes_limit", "Sandboxes allowed.", BOUND),
    gauge(
        "paddock_quota_sandboxes_used", "Sandboxes counted now; a pool's members count once they are claimed.", BOUND
    ),
    gauge("paddock_quota_fs_limit_bytes", "Disk that may be reserved.", BOUND, unit="bytes"),
    gauge("paddock_quota_fs_used_bytes", "Disk reserved now.", BOUND, unit="bytes"),
    gauge("paddock_quota_gpus_limit", "GPUs that may be reserved.", BOUND),
    gauge("paddock_quota_gpus_used", "GPUs reserved now.", BOUND),
)
WAITING: tuple[Family, ...] = (
    counter(
        "paddock_quota_rejections_total",
        "Sandboxes that became pending for quota.",
        ("scope", "resource"),
        values=_SHORT,
    ),
    gauge(
        "paddock_quota_waiting_sandboxes",
        "Sandboxes pending for quota now.",
        ("scope", "resource"),
        values=_SHORT,
        at_start=0,
    ),
)
