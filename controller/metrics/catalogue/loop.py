"""Sections E and H: the reconcile loop, its queue, and the scheduler."""

from controller.metrics.catalogue.family import OTHER, Family, counter, gauge, histogram

SHORT = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
JOB = {"job_id": ("resync", "prune", "pressure", "store-figures", "health", "layers")}
QUEUE = {"queue": ("sandbox",)}
CONTROLLER = {"controller": ("sandbox",)}
ACTION = {
    "action": (
        "pull",
        "create",
        "start",
        "stop",
        "signal",
        "restart",
        "update",
        "rename",
        "disconnect",
        "connect",
        "read",
        "recreate",
        "pause",
        "unpause",
        "hibernate",
        "wake",
        "remove",
        "claim",
        "adopt",
        "make-network",
        "remove-network",
    )
}
REASONS = ("not_found", "conflict", "timeout", "no_space", "image", "docker_down", OTHER)
# What outcomes say (for people), by what operators count.
OUTCOMES = {
    "BeingRemoved": "conflict",
    "Conflict": "conflict",
    "ContainerGone": "not_found",
    "EngineUnreachable": "docker_down",
    "ForeignContainer": "conflict",
    "EgressImageMissing": "image",
    "ImageBuildFailed": "image",
    "ImageMissing": "image",
    "ImagePullFailed": "image",
    "ImageRefused": "image",
    "NameConflict": "conflict",
    "NetworkInUse": "conflict",
    "SubnetTaken": "conflict",
}
DRIFT = (
    "missing",
    "exited",
    "paused",
    "name",
    "cpu",
    "cpu_shares",
    "swap",
    "restart_policy",
    "memory",
    "pids",
    "image",
    "network",
    "egress",
    "mounts",
    "security",
    "labels",
)

FAMILIES: tuple[Family, ...] = (
    counter(
        "paddock_reconcile_total",
        "Reconciliations by result (success, error, requeue, requeue_after).",
        ("controller", "result"),
        values={**CONTROLLER, "result": ("success", "error", "requeue", "requeue_after")},
    ),
    counter("paddock_reconcile_errors_total", "Reconciliations that raised.", ("controller",), values=CONTROLLER),
    counter(
        "paddock_reconcile_terminal_errors_total",
        "Errors that will not be retried until the spec changes.",
        ("controller",),
        values=CONTROLLER,
    ),
    counter("paddock_reconcile_panics_total", "Unexpected exceptions (bugs).", ("controller",), values=CONTROLLER),
    histogram(
        "paddock_reconcile_duration_seconds",
        "Length of one reconciliation.",
        ("controller",),
        buckets=SHORT,
        values=CONTROLLER,
    ),
    gauge("paddock_reconcile_max_concurrent", "Workers configured.", ("controller",), values=CONTROLLER),
    gauge("paddock_reconcile_active_workers", "Workers busy.", ("controller",), values=CONTROLLER),
    gauge("paddock_workqueue_depth", "Keys waiting.", ("queue",), values=QUEUE),
    counter("paddock_workqueue_adds_total", "Keys added.", ("queue",), values=QUEUE),
    counter("paddock_workqueue_retries_total", "Keys re-added after an error.", ("queue",), values=QUEUE),
    histogram(
        "paddock_workqueue_queue_duration_seconds",
        "Wait before a key is taken.",
        ("queue",),
        buckets=SHORT,
        values=QUEUE,
    ),
    histogram(
        "paddock_workqueue_work_duration_seconds", "Processing time of a key.", ("queue",), buckets=LONG, values=QUEUE
    ),
    gauge(
        "paddock_workqueue_unfinished_work_seconds",
        "Sum of the ages of work in progress.",
        ("queue",),
        unit="seconds",
        values=QUEUE,
    ),
    gauge(
        "paddock_workqueue_longest_running_processor_seconds",
        "Age of the oldest work in progress.",
        ("queue",),
        unit="seconds",
        values=QUEUE,
    ),
    counter(
        "paddock_reconcile_actions_total",
        "Changes made (create, start, stop, restart, update, recreate, pause, unpause, remove, claim, adopt).",
        ("action",),
        values=ACTION,
    ),
    counter(
        "paddock_reconcile_action_errors_total",
        "Changes that failed (not_found, conflict, timeout, no_space, image, docker_down, other).",
        ("action", "reason"),
        values={**ACTION, "reason": REASONS},
        aliases={"reason": OUTCOMES},
    ),
    histogram(
        "paddock_reconcile_action_duration_seconds", "Length of one change.", ("action",), buckets=LONG, values=ACTION
    ),
    histogram(
        "paddock_sandbox_wake_seconds",
        "Length of one wake of a hibernated sandbox: the engine's part. Its count is the number of wakes.",
        buckets=LONG,
    ),
    histogram(
        "paddock_convergence_duration_seconds",
        "Spec accepted to observed (create, update, delete): the user-visible SLI.",
        ("operation",),
        buckets=LONG,
        values={"operation": ("create", "update", "delete")},
    ),
    gauge(
        "paddock_reconcile_last_full_sync_timestamp_seconds",
        "End of the last complete desired-vs-actual pass.",
        unit="seconds",
    ),
    gauge("paddock_reconcile_full_sync_duration_seconds", "Length of that pass.", unit="seconds"),
    gauge(
        "paddock_thread_heartbeat_timestamp_seconds",
        "Last heartbeat of a long-lived thread.",
        ("thread",),
        unit="seconds",
        values={"thread": ("heartbeat", "leading")},
    ),
    counter(
        "paddock_reconcile_drift_detected_total",
        "Drift found by field (missing, exited, cpu, memory, pids, image, network, mounts, security, labels).",
        ("field",),
        values={"field": DRIFT},
        aliases={"field": {"cpuShares": "cpu_shares", "restartPolicy": "restart_policy"}},
    ),
    counter(
        "paddock_reaped_total",
        "Sandboxes, containers or images removed (idle, ttl, deleted, orphan, quota, failed, pressure, image).",
        ("reason",),
        values={"reason": ("idle", "ttl", "deleted", "orphan", "quota", "failed", "pressure", "image")},
    ),
    gauge("paddock_orphan_containers", "Managed containers with no object in the store."),
    gauge("paddock_leader", "1 when this process holds the lease and acts."),
    gauge("paddock_fleet_leader", "1 when this process decides for all hosts of the store."),
    counter("paddock_leader_lease_renew_failures_total", "Failed lease renewals."),
    gauge("paddock_scheduler_running", "1 while the scheduler thread runs."),
    counter("paddock_scheduler_job_runs_total", "Runs ended.", ("job_id",), values=JOB),
    counter("paddock_scheduler_job_failures_total", "Runs that raised.", ("job_id",), values=JOB),
    counter("paddock_scheduler_job_missed_total", "Runs skipped because they were too late.", ("job_id",), values=JOB),
    counter(
        "paddock_scheduler_job_overlaps_total",
        "Runs skipped because the last was still going.",
        ("job_id",),
        values=JOB,
    ),
    histogram("paddock_scheduler_job_duration_seconds", "Length of a run.", ("job_id",), buckets=LONG, values=JOB),
    gauge(
        "paddock_scheduler_job_last_success_timestamp_seconds",
        "End of the last good run.",
        ("job_id",),
        unit="seconds",
        values=JOB,
    ),
    gauge(
        "paddock_scheduler_job_interval_seconds",
        "Configured interval of the job.",
        ("job_id",),
        unit="seconds",
        values=JOB,
    ),
    gauge(
        "paddock_scheduler_job_next_run_timestamp_seconds",
        "Next run; absent when paused.",
        ("job_id",),
        unit="seconds",
        values=JOB,
    ),
)
