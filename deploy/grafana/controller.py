"""Controller: does Paddock itself keep up."""

from deploy.grafana.panels import Panel, Row, make


def controller() -> str:
    """Paddock itself."""
    loop = Row(
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
                "Changes",
                "Engine calls that change something, a second.",
                (("sum by (action) (rate(paddock_reconcile_actions_total[$__rate_interval])) > 0", "{{action}}"),),
                unit="ops",
                stacked=True,
            ),
            Panel(
                "Changes that failed",
                "By reason, a second.",
                (("sum by (reason) (rate(paddock_reconcile_action_errors_total[$__rate_interval]))", "{{reason}}"),),
                unit="ops",
            ),
            Panel(
                "Drift found",
                "What was changed behind Paddock's back, in five minutes.",
                (("sum by (field) (increase(paddock_reconcile_drift_detected_total[5m]))", "{{field}}"),),
            ),
            Panel(
                "Workers",
                "Objects that are worked on, and those that wait for a worker.",
                (
                    ("paddock_reconcile_active_workers", "busy"),
                    ("paddock_workqueue_depth", "waiting"),
                    ("paddock_reconcile_max_concurrent", "workers"),
                ),
            ),
        ),
    )
    around = Row(
        "Engine, store, API",
        (
            Panel(
                "Calls to the engine",
                "A second, by operation.",
                (("sum by (operation) (rate(paddock_docker_requests_total[$__rate_interval]))", "{{operation}}"),),
                unit="reqps",
            ),
            Panel(
                "The engine's answers",
                "Length of a call, 99 of 100; and the share that fails.",
                (
                    ("instance:paddock_docker_request_duration_seconds:p99_5m", "p99 seconds"),
                    ("instance:paddock_docker_request_errors:ratio_rate5m", "errors (share)"),
                ),
                unit="none",
            ),
            Panel(
                "Events heard",
                "Of our containers, a second.",
                (("sum by (action) (rate(paddock_docker_events_total[$__rate_interval]))", "{{action}}"),),
                unit="ops",
            ),
            Panel(
                "Store",
                "Operations a second, and their length, 99 of 100.",
                (
                    ("sum by (operation) (rate(paddock_store_operations_total[$__rate_interval]))", "{{operation}}"),
                    ("instance:paddock_store_operation_duration_seconds:p99_5m", "p99 seconds"),
                ),
                unit="none",
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
        ),
    )
    self_ = Row(
        "Paddock itself",
        (
            Panel(
                "CPU and memory",
                "Of the daemon.",
                (
                    ('rate(process_cpu_seconds_total{job="paddock"}[$__rate_interval])', "cores"),
                    ('process_resident_memory_bytes{job="paddock"} / 1073741824', "memory, GiB"),
                ),
                unit="none",
            ),
            Panel(
                "Reading the containers",
                "Time that the last scrape took for it, and how many were read.",
                (
                    ("paddock_stats_scrape_duration_seconds", "seconds"),
                    ("paddock_stats_scrape_errors > 0 or paddock_stats_containers", "{{source}}"),
                ),
                unit="none",
            ),
            Panel(
                "Trouble in the log",
                "Lines in five minutes, by level.",
                (("sum by (level) (increase(paddock_log_messages_total[5m]))", "{{level}}"),),
                warn=1,
            ),
        ),
    )
    about = "Whether Paddock keeps up: its loop, the engine under it, its store and its API."
    return make("paddock-controller", "Paddock / Controller", about, (loop, around, self_), ())
