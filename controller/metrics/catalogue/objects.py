"""Section B: desired and actual state of each sandbox."""

from controller.kinds.planning import instance_state
from controller.metrics.catalogue.family import OTHER, Family, counter, gauge

SANDBOX = ("namespace", "sandbox")
HIBERNATED = "Hibernated"
STATES = ("Pending", "Starting", "Running", "Suspended", "Paused", HIBERNATED, "Failed", "Terminating")
CONDITIONS = (
    "Ready",
    "Accepted",
    "Scheduled",
    "Provisioned",
    "Resized",
    "Secured",
    "DiskQuotaEnforced",
    "NetworkReady",
    "AgentCallersEnforced",
    "ModelsReachable",
    "Outdated",
    "Suspended",
    "Finished",
    "Degraded",
)
WAITING_REASONS = (
    "CrashLoopBackOff",
    "ImagePullFailed",
    "QuotaExceeded",
    "ConfigError",
    "DockerUnavailable",
    "PoolExhausted",
)
# What conditions say, by what operators count.
WAITING_WORDS = {
    "EngineUnreachable": "DockerUnavailable",
    "ImageBuildFailed": "ImagePullFailed",
    "ImageMissing": "ImagePullFailed",
    "ImageRefused": "ConfigError",
    "InvalidConfig": "ConfigError",
    "Refused": "ConfigError",
}
END_REASONS = (*instance_state.END_REASONS, OTHER)

FAMILIES: tuple[Family, ...] = (
    gauge(
        "paddock_sandbox_info",
        "Always 1; labels from the spec.",
        ("namespace", "sandbox", "uid", "image", "security_level", "network", "pool"),
    ),
    gauge("paddock_sandbox_created_timestamp_seconds", "When the object was created.", SANDBOX, unit="seconds"),
    gauge(
        "paddock_sandbox_deletion_timestamp_seconds",
        "When deletion was requested; present only while terminating.",
        SANDBOX,
        unit="seconds",
    ),
    gauge("paddock_sandbox_metadata_generation", "Generation of the desired state.", SANDBOX),
    gauge("paddock_sandbox_status_observed_generation", "Generation the reconciler last brought into force.", SANDBOX),
    gauge("paddock_sandbox_spec_running", "1 when the sandbox is meant to run, else 0.", SANDBOX),
    gauge("paddock_sandbox_spec_cpu_limit_cores", "Desired CPU limit.", SANDBOX, unit="cores"),
    gauge("paddock_sandbox_spec_memory_limit_bytes", "Desired memory limit.", SANDBOX, unit="bytes"),
    gauge("paddock_sandbox_spec_pids_limit", "Desired task limit.", SANDBOX),
    gauge(
        "paddock_sandbox_spec_fs_limit_bytes",
        "Desired limit of its writable layer, counted against the quotas; absent when none.",
        SANDBOX,
        unit="bytes",
    ),
    gauge("paddock_sandbox_spec_gpus", "Desired number of GPUs; absent when none.", SANDBOX),
    gauge(
        "paddock_sandbox_spec_idle_timeout_seconds",
        "Idle time after which it is reaped; absent when never.",
        SANDBOX,
        unit="seconds",
    ),
    gauge(
        "paddock_sandbox_last_activity_timestamp_seconds",
        "Last exec, file, tool or stream use.",
        SANDBOX,
        unit="seconds",
    ),
    gauge(
        "paddock_sandbox_status_state",
        f"1 for the current state, 0 for the others ({', '.join(STATES)}); Hibernated is absent else.",
        ("namespace", "sandbox", "state"),
        values={"state": STATES},
    ),
    gauge(
        "paddock_sandbox_hibernated",
        "1 while it is frozen with its memory in swap; absent otherwise.",
        SANDBOX,
    ),
    gauge(
        "paddock_sandbox_hibernated_resident_bytes",
        "Memory of a hibernated sandbox that stayed in memory; absent while it is awake.",
        SANDBOX,
        unit="bytes",
    ),
    gauge(
        "paddock_sandbox_hibernated_swapped_bytes",
        "Memory of a hibernated sandbox in swap, before compression; absent while it is awake.",
        SANDBOX,
        unit="bytes",
    ),
    gauge("paddock_sandbox_status_ready", "1 when running, healthy and the agent answers.", SANDBOX),
    gauge(
        "paddock_sandbox_status_condition",
        "1 true, 0 false, absent unknown.",
        ("namespace", "sandbox", "condition"),
        values={"condition": CONDITIONS},
    ),
    gauge(
        "paddock_sandbox_status_waiting_reason",
        f"1 while waiting for this reason ({', '.join(WAITING_REASONS)}); absent otherwise.",
        ("namespace", "sandbox", "reason"),
        values={"reason": WAITING_REASONS},
    ),
    counter(
        "paddock_sandbox_status_restarts_total",
        "Restarts over the object's lifetime, by Paddock or out of band; stored, so it survives re-creation.",
        SANDBOX,
    ),
    gauge(
        "paddock_sandbox_status_last_termination_reason",
        f"1 for the reason of the last end ({', '.join(END_REASONS)}).",
        ("namespace", "sandbox", "reason"),
        values={"reason": END_REASONS},
    ),
    gauge("paddock_sandbox_status_last_termination_exit_code", "Exit code of the last termination.", SANDBOX),
    gauge(
        "paddock_sandbox_status_drifted_fields",
        "Fields in which the container differed from the spec in the last pass that planned it.",
        SANDBOX,
        detail=True,
    ),
    gauge(
        "paddock_sandbox_labels",
        "Always 1; only the labels in the setting metrics_labels (default none).",
        ("namespace", "sandbox", "label_*"),
    ),
)
