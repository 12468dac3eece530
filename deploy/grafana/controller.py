"""Dashboard of the controller itself."""

from deploy.grafana.panels import CORES, Panel, Row, make, some


def controller() -> str:
    """Build the dashboard of the controller."""
    about = "Health of the controller: reconcile loop, engine, store and API."
    rows = (_loop(), _engine(), _store_and_api(), _front_door(), _mcp_servers(), _itself())
    return make("paddock-controller", "Paddock / Controller", about, rows, ())


def _loop() -> Row:
    return Row(
        "Reconcile loop",
        (
            Panel(
                "Convergence",
                "Time from an accepted spec to the state it asks for, p95.",
                (("instance:paddock_convergence_duration_seconds:p95_30m", "{{operation}}"),),
                unit="s",
                empty="No spec changed in the last half hour",
            ),
            Panel(
                "Reconcile duration",
                "Duration of a reconcile pass, p99 and mean.",
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
                "Objects being reconciled, and objects queued for a worker.",
                (
                    ("paddock_reconcile_active_workers", "busy"),
                    ("paddock_workqueue_depth", "queued"),
                    ("paddock_reconcile_max_concurrent", "limit"),
                ),
                decimals=0,
            ),
            Panel(
                "Actions",
                "Actions of the reconcile loop per second, by type: areas on top of each other.",
                ((some("action", "paddock_reconcile_actions_total"), "{{action}}"),),
                unit="ops",
                stacked=True,
                empty="Nothing was done in this time",
            ),
            Panel(
                "Failed actions",
                "Failed actions per second, total and by reason.",
                (
                    ("sum(rate(paddock_reconcile_action_errors_total[$__rate_interval]))", "all"),
                    (some("reason", "paddock_reconcile_action_errors_total"), "{{reason}}"),
                ),
                unit="ops",
                empty="No action failed",
            ),
            Panel(
                "Drift detected",
                "Out-of-band changes and unexpected exits in five minutes, by field.",
                (
                    ("sum(increase(paddock_reconcile_drift_detected_total[5m]))", "all"),
                    ("sum by (field) (increase(paddock_reconcile_drift_detected_total[5m])) > 0", "{{field}}"),
                ),
                decimals=0,
                empty="No drift",
            ),
        ),
    )


def _engine() -> Row:
    return Row(
        "Engine",
        (
            Panel(
                "Engine requests",
                "Requests to the Docker Engine per second, by operation.",
                ((some("operation", "paddock_docker_requests_total"), "{{operation}}"),),
                unit="reqps",
                width=12,
                height=8,
                beside=True,
                empty="No request in this time",
            ),
            Panel(
                "Engine events",
                "Events of our containers per second, by action.",
                ((some("action", "paddock_docker_events_total"), "{{action}}"),),
                unit="ops",
                width=12,
                height=8,
                beside=True,
                empty="No event in this time",
            ),
            Panel(
                "Engine latency",
                "Duration of a request to the engine, p99.",
                (("instance:paddock_docker_request_duration_seconds:p99_5m", "p99"),),
                unit="s",
                width=12,
            ),
            Panel(
                "Engine errors",
                "Share of requests to the engine that failed.",
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
                "Store operations",
                "Store operations per second, by operation.",
                ((some("operation", "paddock_store_operations_total"), "{{operation}}"),),
                unit="ops",
                empty="No operation in this time",
            ),
            Panel(
                "Store latency",
                "Duration of a store operation, p99.",
                (("instance:paddock_store_operation_duration_seconds:p99_5m", "p99"),),
                unit="s",
            ),
            Panel(
                "Stored objects",
                "Stored objects by kind.",
                (("paddock_store_objects", "{{kind}}"),),
                kind="bars",
                empty="The store is empty",
            ),
            Panel(
                "API requests",
                "Requests per second, by status code.",
                (("sum by (code) (rate(paddock_api_requests_total[$__rate_interval]))", "{{code}}"),),
                unit="reqps",
                empty="No request in this time",
            ),
            Panel(
                "API latency",
                "Duration of a request, p99, without streams.",
                (
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(paddock_api_request_duration_seconds_bucket[5m])))",
                        "p99",
                    ),
                ),
                unit="s",
                empty="No request in the last five minutes",
            ),
            Panel(
                "Audit log",
                "Audit entries in five minutes by category, and failed writes.",
                (
                    ("sum by (category) (increase(paddock_audit_events_total[5m]))", "{{category}}"),
                    ("sum(increase(paddock_audit_write_failures_total[5m]))", "failed"),
                ),
                decimals=0,
            ),
        ),
    )


def _front_door() -> Row:
    return Row(
        "SSH and previews",
        (
            Panel(
                "Open connections",
                "Open SSH connections, and requests and WebSockets of previews that are passed on.",
                (
                    ("sum(paddock_ssh_open_connections)", "ssh"),
                    ("sum(paddock_preview_open_requests)", "previews"),
                ),
                width=6,
                decimals=0,
            ),
            Panel(
                "SSH channels",
                "Commands, file channels and ports opened by SSH per second, and those that were refused.",
                (
                    (some("what", "paddock_ssh_channels_total"), "{{what}}"),
                    ("sum(rate(paddock_ssh_refusals_total[$__rate_interval])) > 0", "refused"),
                ),
                unit="ops",
                width=6,
                empty="No SSH in this time",
            ),
            Panel(
                "Preview requests",
                "Requests for previews per second: passed, refused, or nothing answers at the port.",
                ((some("outcome", "paddock_preview_requests_total"), "{{outcome}}"),),
                unit="reqps",
                width=6,
                empty="No preview in this time",
            ),
            Panel(
                "Bytes of SSH and previews",
                "Bytes per second from (in) and to (out) clients.",
                (
                    (some("direction", "paddock_ssh_bytes_total"), "ssh {{direction}}"),
                    (some("direction", "paddock_preview_bytes_total"), "previews {{direction}}"),
                ),
                unit="binBps",
                width=6,
                empty="No bytes in this time",
            ),
        ),
    )


def _mcp_servers() -> Row:
    return Row(
        "MCP servers",
        (
            Panel(
                "Servers",
                "Other people's MCP servers by state.",
                (("sum by (state) (paddock_mcp_servers) > 0", "{{state}}"),),
                kind="bars",
                width=6,
                decimals=0,
                empty="There are no MCP servers",
            ),
            Panel(
                "Sessions",
                "Running sessions, and those without a sandbox.",
                (
                    ('paddock_mcp_sessions{sandboxed="true"}', "in sandboxes"),
                    ('paddock_mcp_sessions{sandboxed="false"} > 0', "without"),
                ),
                width=6,
                decimals=0,
            ),
            Panel(
                "Tool calls",
                "Calls of their tools per second, by outcome.",
                ((some("outcome", "paddock_mcp_server_calls_total"), "{{outcome}}"),),
                unit="ops",
                width=6,
                empty="No call in this time",
            ),
            Panel(
                "Call duration",
                "Duration of a call, p95, by server.",
                (
                    (
                        "histogram_quantile(0.95, sum by (le, namespace, server) "
                        "(rate(paddock_mcp_server_call_duration_seconds_bucket[5m])))",
                        "{{namespace}}/{{server}}",
                    ),
                ),
                unit="s",
                width=6,
                empty="No call in the last five minutes",
            ),
        ),
    )


def _itself() -> Row:
    return Row(
        "Daemon process",
        (
            Panel(
                "CPU of the daemon",
                "Cores in use.",
                (('rate(process_cpu_seconds_total{job="paddock"}[$__rate_interval])', "{{instance}}"),),
                unit=CORES,
                decimals=3,
                width=6,
            ),
            Panel(
                "Memory of the daemon",
                "Resident memory.",
                (('process_resident_memory_bytes{job="paddock"}', "{{instance}}"),),
                unit="bytes",
                width=6,
            ),
            Panel(
                "Usage collection",
                "Time that the last scrape took to read container usage.",
                (("paddock_stats_scrape_duration_seconds", "{{instance}}"),),
                unit="s",
                width=6,
            ),
            Panel(
                "Containers measured",
                "Containers by source of their usage, and containers that could not be read.",
                (
                    ("paddock_stats_containers > 0", "{{source}}"),
                    ("sum(paddock_stats_scrape_errors)", "failed"),
                ),
                width=6,
                decimals=0,
                empty="No container runs",
            ),
            Panel(
                "Log messages",
                "Warnings and errors in five minutes, by level.",
                (("sum by (level) (increase(paddock_log_messages_total[5m]))", "{{level}}"),),
                width=12,
                warn=1,
                decimals=0,
            ),
            Panel(
                "Background jobs",
                "Time since the last success of each job.",
                (("time() - paddock_scheduler_job_last_success_timestamp_seconds", "{{job_id}}"),),
                unit="s",
                width=12,
            ),
        ),
    )
