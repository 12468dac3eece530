"""Section D: what may be promised, what is promised, and who waits. `scope` is host or namespace; pool for waits."""

from controller.metrics.catalogue.family import Family, counter, gauge

BOUND = ("scope", "namespace")
SCOPES = ("host", "namespace")
RESOURCES = ("cpu", "memory", "pids", "sandboxes", "disk", "gpus")
_SHORT = {"scope": (*SCOPES, "pool"), "resource": RESOURCES}

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_quota_cpu_limit_cores", "Total CPU that may be promised.", BOUND, unit="cores"),
    gauge("paddock_quota_cpu_used_cores", "CPU promised now.", BOUND, unit="cores"),
    gauge("paddock_quota_memory_limit_bytes", "Total memory that may be promised.", BOUND, unit="bytes"),
    gauge("paddock_quota_memory_used_bytes", "Memory promised now.", BOUND, unit="bytes"),
    gauge("paddock_quota_pids_limit", "Tasks that may be promised.", BOUND),
    gauge("paddock_quota_pids_used", "Tasks promised now.", BOUND),
    gauge("paddock_quota_sandboxes_limit", "Sandboxes allowed.", BOUND),
    gauge(
        "paddock_quota_sandboxes_used", "Sandboxes counted now; a pool's members count once they are claimed.", BOUND
    ),
    gauge("paddock_quota_fs_limit_bytes", "Disk that may be promised.", BOUND, unit="bytes"),
    gauge("paddock_quota_fs_used_bytes", "Disk promised now.", BOUND, unit="bytes"),
    gauge("paddock_quota_gpus_limit", "GPUs that may be promised.", BOUND),
    gauge("paddock_quota_gpus_used", "GPUs promised now.", BOUND),
)
WAITING: tuple[Family, ...] = (
    counter(
        "paddock_quota_rejections_total",
        "Sandboxes left waiting for quota, counted when the wait begins.",
        ("scope", "resource"),
        values=_SHORT,
    ),
    gauge(
        "paddock_quota_waiting_sandboxes",
        "Sandboxes waiting for quota now.",
        ("scope", "resource"),
        values=_SHORT,
        at_start=0,
    ),
)
