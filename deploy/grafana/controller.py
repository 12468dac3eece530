"""Controller: does Paddock itself keep up."""

from deploy.grafana.panels import CORES, Panel, Row, make, some


def controller() -> str:
    """Paddock itself."""
    about = "Whether Paddock keeps up: its loop, the engine under it, its store and its API."
    rows = (_loop(), _engine(), _store_and_api(), _itself())
    return make("paddock-controller", "Paddock / Controller", about, rows, ())


def _loop() -> Row:
    return Row(
        "Loop",
        (
            Panel(
                "Convergence",
                "From a spec that was accepted to what it asks for, nineteen of twenty.",
                (("instance:paddock_convergence_duration_seconds:p95_30m", "{{operation}}"),),
                unit="s",
            ),
            Panel(
                "Turns",
                "Length of a turn of the loop, 99 of 100, and the mean.",
                (
                    (
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(paddock_reconcile_duration_seconds_bucket[$__rate_interval])))",
                        "p99",
                    ),
                    (
                        "sum(rate(paddock_reconcile_duration_seconds_sum[$__rate_interval])) "
                        "/ sum(rate(paddock_reconcile_duration_seconds_count[$__rate_interval]))",
                        "mean",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Workers",
                "Objects that are worked on, and those that wait for a worker.",
                (
                    ("paddock_reconcile_active_workers", "busy"),
                    ("paddock_workqueue_depth", "waiting"),
                    ("paddock_reconcile_max_concurrent", "limit"),
                ),
                decimals=0,
            ),
            Panel(
                "Changes",
                "Engine calls that change something, a second.",
                ((some("action", "paddock_reconcile_actions_total"), "{{action}}"),),
                unit="ops",
                stacked=True,
            ),
            Panel(
                "Changes that failed",
                "All, and by reason, a second.",
                (
                    ("sum(rate(paddock_reconcile_action_errors_total[$__rate_interval]))", "all"),
                    (some("reason", "paddock_reconcile_action_errors_total"), "{{reason}}"),
                ),
                unit="ops",
            ),
            Panel(
                "Drift found",
                "What was changed behind Paddock's back, or ended by itself, in five minutes.",
                (
                    ("sum(increase(paddock_reconcile_drift_detected_total[5m]))", "all"),
                    ("sum by (field) (increase(paddock_reconcile_drift_detected_total[5m])) > 0", "{{field}}"),
                ),
                decimals=0,
            ),
        ),
    )


def _engine() -> Row:
    return Row(
        "Engine",
        (
            Panel(
                "Calls to the engine",
                "A second, by operation.",
                ((some("operation", "paddock_docker_requests_total"), "{{operation}}"),),
                unit="reqps",
                width=12,
                height=8,
                beside=True,
            ),
            Panel(
                "Events heard",
                "Of our containers, a second.",
                ((some("action", "paddock_docker_events_total"), "{{action}}"),),
                unit="ops",
                width=12,
                height=8,
                beside=True,
            ),
            Panel(
                "The engine's answers",
                "Length of a call, 99 of 100.",
                (("instance:paddock_docker_request_duration_seconds:p99_5m", "p99"),),
                unit="s",
                width=12,
            ),
            Panel(
                "Calls that failed",
                "Share of the calls to the engine.",
                (("instance:paddock_docker_request_errors:ratio_rate5m", "failed"),),
                unit="percentunit",
                width=12,
                most=1,
                warn=0.05,
                bad=0.25,
            ),
        ),
    )


def _store_and_api() -> Row:
    return Row(
        "Store and API",
        (
            Panel(
                "Store",
                "Operations a second.",
                ((some("operation", "paddock_store_operations_total"), "{{operation}}"),),
                unit="ops",
            ),
            Panel(
                "The store's answers",
                "Length of an operation, 99 of 100.",
                (("instance:paddock_store_operation_duration_seconds:p99_5m", "p99"),),
                unit="s",
            ),
            Panel(
                "Stored objects",
                "By kind.",
                (("paddock_store_objects", "{{kind}}"),),
                kind="bars",
            ),
            Panel(
                "API",
                "Requests a second, by answer.",
                (("sum by (code) (rate(paddock_api_requests_total[$__rate_interval]))", "{{code}}"),),
                unit="reqps",
            ),
            Panel(
                "The API's answers",
                "Length of a request, 99 of 100; streams are left out.",
                (
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(paddock_api_request_duration_seconds_bucket[5m])))",
                        "p99",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Audit log",
                "Entries in five minutes, by what they are about, and those that could not be written.",
                (
                    ("sum by (category) (increase(paddock_audit_events_total[5m]))", "{{category}}"),
                    ("sum(increase(paddock_audit_write_failures_total[5m]))", "not written"),
                ),
                decimals=0,
            ),
        ),
    )


def _itself() -> Row:
    return Row(
        "Paddock itself",
        (
            Panel(
                "CPU",
                "Of the daemon.",
                (('rate(process_cpu_seconds_total{job="paddock"}[$__rate_interval])', "{{instance}}"),),
                unit=CORES,
                decimals=3,
                width=6,
            ),
            Panel(
                "Memory of the daemon",
                "Resident.",
                (('process_resident_memory_bytes{job="paddock"}', "{{instance}}"),),
                unit="bytes",
                width=6,
            ),
            Panel(
                "Reading the containers",
                "Time that the last scrape took for it.",
                (("paddock_stats_scrape_duration_seconds", "{{instance}}"),),
                unit="s",
                width=6,
            ),
            Panel(
                "Containers read",
                "By where they were read from, and those that could not be read.",
                (
                    ("paddock_stats_containers > 0", "{{source}}"),
                    ("sum(paddock_stats_scrape_errors)", "not read"),
                ),
                width=6,
                decimals=0,
            ),
            Panel(
                "Trouble in the log",
                "Lines in five minutes, by level.",
                (("sum by (level) (increase(paddock_log_messages_total[5m]))", "{{level}}"),),
                width=12,
                warn=1,
                decimals=0,
            ),
            Panel(
                "Background jobs",
                "Time since each was last done.",
                (("time() - paddock_scheduler_job_last_success_timestamp_seconds", "{{job_id}}"),),
                unit="s",
                width=12,
            ),
        ),
    )
