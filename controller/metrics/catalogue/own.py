"""Section M: Paddock itself. process_* and python_gc_* come from prometheus_client."""

from controller.metrics.catalogue.family import Family, counter, gauge

# Reasons of lost metrics; each is a bug of ours, never of a sandbox.
REASONS = ("collector", "unknown_name", "wrong_type", "wrong_labels", "bad_value")

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_build_info", "Always 1.", ("version", "revision", "python_version")),
    gauge("paddock_config_last_reload_successful", "1 when the last configuration load worked."),
    gauge("paddock_config_last_reload_success_timestamp_seconds", "When it last worked.", unit="seconds"),
    counter(
        "paddock_log_messages_total",
        "Log lines written by level (warning, error, critical).",
        ("level",),
        values={"level": ("warning", "error", "critical")},
    ),
    counter(
        "paddock_audit_events_total",
        "Audit records written: changes of objects, use of sandboxes, refusals.",
        ("category",),
        values={"category": ("change", "use", "refusal")},
    ),
    counter(
        "paddock_audit_write_failures_total",
        "Audit records of use and refusals that could not be written; a change without its record does not happen.",
    ),
    counter(
        "paddock_metrics_errors_total",
        "Metrics lost by a bug: a failed collector, or a metric that is not in the catalogue.",
        ("reason",),
        values={"reason": REASONS},
    ),
)
