"""Overview dashboard: all sandboxes, quotas and the host."""

from deploy.grafana.panels import (
    CORES,
    NAMESPACE,
    TO_POOL,
    TO_QUOTAS,
    TO_RUNBOOKS,
    TO_SANDBOX,
    Link,
    Panel,
    Row,
    make,
)

OF = 'namespace=~"$namespace"'
# A pool member is no sandbox yet: it is shown with its pool.
OF_SANDBOXES = f'{OF}, sandbox!=""'
BY_SANDBOX = "{{namespace}}/{{sandbox}}"


def overview() -> str:
    """Build the overview dashboard."""
    about = "All sandboxes of this Paddock: state, usage and quotas."
    rows = (_now(), _alerts(), _use(), _near(), _host())
    return make("paddock-overview", "Paddock / Overview", about, rows, (NAMESPACE,))


def _now() -> Row:
    return Row(
        "Status",
        (
            Panel(
                "Sandboxes",
                "Number of sandboxes by state.",
                ((f"sum by (state) (paddock_sandbox_status_state{{{OF}}})", "{{state}}"),),
                kind="bars",
                width=6,
                empty="There is no sandbox in these namespaces",
            ),
            Panel(
                "Ready",
                "Ready share of the sandboxes that should run, not of suspended, paused, finished or terminating ones.",
                (
                    (
                        f"avg(namespace_sandbox:paddock_sandbox_status_ready:expected{{{OF}}})",
                        "ready",
                    ),
                ),
                unit="percentunit",
                kind="stat",
                width=3,
                falling=True,
                warn=0.95,
                bad=0.8,
                empty="No sandbox should run",
            ),
            Panel(
                "Engine",
                "Up if the Docker Engine answers.",
                (("paddock_docker_up", "{{instance}}"),),
                kind="stat",
                width=3,
                words=(("1", "Up", "green"), ("0", "Down", "red")),
            ),
            Panel(
                "Pending (quota)",
                "Sandboxes pending for quota, by resource and scope.",
                (
                    (
                        "sum by (scope, resource) (paddock_quota_waiting_sandboxes) > 0"
                        ' or label_replace(sum(paddock_quota_waiting_sandboxes) == 0, "resource", "none", "", "")',
                        "{{resource}} {{scope}}",
                    ),
                ),
                kind="stat",
                width=6,
                names="too",
                warn=1,
                links=(TO_QUOTAS,),
            ),
            Panel(
                "Warm members ready",
                "Ready warm members of each pool.",
                (('sum by (namespace, pool) (paddock_pool_containers{state="ready"})', "{{namespace}}/{{pool}}"),),
                kind="stat",
                width=6,
                names="too",
                empty="There is no SandboxPool",
                links=(TO_POOL,),
            ),
        ),
    )


def _alerts() -> Row:
    return Row(
        "Alerts",
        (
            Panel(
                "Firing alerts",
                "Alerts of deploy/prometheus that fire now. A click opens the runbooks.",
                (('ALERTS{alertstate="firing", alertname=~"(Paddock|Sandbox|Pool|Quota).+"}', ""),),
                kind="table",
                width=14,
                height=6,
                columns=(
                    ("alertname", "Alert"),
                    ("severity", "Severity"),
                    ("namespace", "Namespace"),
                    ("sandbox", "Sandbox"),
                    ("pool", "Pool"),
                    ("instance", "Instance"),
                ),
                empty="No alert fires (or this Prometheus does not load alerts.rules.yml)",
                links=(TO_RUNBOOKS,),
            ),
            Panel(
                "Not Ready",
                "Sandboxes that should be Ready and are not. `paddock why NAME` says what each waits for.",
                ((f"namespace_sandbox:paddock_sandbox_status_ready:expected{{{OF}}} == 0", ""),),
                kind="table",
                width=10,
                height=6,
                columns=(("namespace", "Namespace"), ("sandbox", "Sandbox")),
                empty="Every sandbox that should be Ready is",
                links=(Link("Open the sandbox", "paddock-sandbox", ("namespace", "sandbox"), fields=True),),
            ),
        ),
    )


def _use() -> Row:
    return Row(
        "Usage",
        (
            Panel(
                "CPU by sandbox",
                "Cores in use, top 20.",
                (
                    (
                        f"topk(20, namespace_sandbox:paddock_container_cpu_usage_seconds:rate2m{{{OF_SANDBOXES}}})",
                        BY_SANDBOX,
                    ),
                ),
                unit=CORES,
                decimals=3,
                width=12,
                height=8,
                beside=True,
                empty="No sandbox of these namespaces runs",
                links=(TO_SANDBOX,),
            ),
            Panel(
                "Memory by sandbox",
                "Working set, top 20.",
                (
                    (
                        f"topk(20, sum by (namespace, sandbox)"
                        f" (paddock_container_memory_working_set_bytes{{{OF_SANDBOXES}}}))",
                        BY_SANDBOX,
                    ),
                ),
                unit="bytes",
                width=12,
                height=8,
                beside=True,
                empty="No sandbox of these namespaces runs",
                links=(TO_SANDBOX,),
            ),
        ),
    )


def _near() -> Row:
    return Row(
        "Near limits",
        (
            Panel(
                "Nearest to memory limit",
                "Working set as a share of the limit. The kernel kills processes at 100 %.",
                (
                    (
                        "topk(10, namespace_sandbox:paddock_container_memory_working_set_bytes:ratio"
                        f"{{{OF_SANDBOXES}}})",
                        BY_SANDBOX,
                    ),
                ),
                unit="percentunit",
                kind="bars",
                width=6,
                height=8,
                most=1,
                warn=0.8,
                bad=0.9,
                empty="No sandbox runs",
                links=(TO_SANDBOX,),
            ),
            Panel(
                "Most throttled",
                "Share of CPU periods in which the sandbox was throttled.",
                (
                    (
                        "topk(10, namespace_sandbox:paddock_container_cpu_cfs_throttled_periods:ratio_rate5m"
                        f"{{{OF_SANDBOXES}}})",
                        BY_SANDBOX,
                    ),
                ),
                unit="percentunit",
                kind="bars",
                width=6,
                height=8,
                most=1,
                warn=0.25,
                bad=0.5,
                empty="No sandbox with a CPU limit has run for two scrapes",
                links=(TO_SANDBOX,),
            ),
            Panel(
                "Nearest to PID limit",
                "Processes and threads as a share of the limit. Forks fail at 100 %.",
                ((f"topk(10, namespace_sandbox:paddock_container_pids:ratio{{{OF_SANDBOXES}}})", BY_SANDBOX),),
                unit="percentunit",
                kind="bars",
                width=6,
                height=8,
                most=1,
                warn=0.8,
                bad=0.9,
                empty="No sandbox runs",
                links=(TO_SANDBOX,),
            ),
            Panel(
                "Largest on disk",
                "Size of the writable layer, top 10.",
                (
                    (
                        f"topk(10, sum by (namespace, sandbox) (paddock_container_fs_usage_bytes{{{OF_SANDBOXES}}}))",
                        BY_SANDBOX,
                    ),
                ),
                unit="bytes",
                kind="bars",
                width=6,
                height=8,
                empty="Not measured yet: about a minute after the first start",
                links=(TO_SANDBOX,),
            ),
        ),
    )


def _host() -> Row:
    return Row(
        "Host and quotas",
        (
            Panel(
                "Hibernated",
                "Memory of hibernated sandboxes: what stayed in memory, and what is in swap, before compression.",
                (
                    (f"sum(paddock_sandbox_hibernated_resident_bytes{{{OF_SANDBOXES}}})", "in memory"),
                    (f"sum(paddock_sandbox_hibernated_swapped_bytes{{{OF_SANDBOXES}}})", "in swap"),
                ),
                unit="bytes",
                empty="No sandbox is hibernated",
            ),
            Panel(
                "Wakes",
                "Time that the engine takes to wake a hibernated sandbox, p50 and p99.",
                (
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(paddock_sandbox_wake_seconds_bucket"
                        "[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(paddock_sandbox_wake_seconds_bucket"
                        "[$__rate_interval])))",
                        "p99",
                    ),
                ),
                unit="s",
                empty="No sandbox was woken in this time",
            ),
            Panel(
                "Snapshots",
                "Size of the files of snapshots on the hosts.",
                (("sum(paddock_snapshot_storage_bytes)", "files"),),
                unit="bytes",
                empty="No daemon reports snapshots",
            ),
            Panel(
                "Memory reserved",
                "Sum of memory limits as a share of the quota, of the host and of each namespace.",
                (
                    (
                        "paddock_quota_memory_used_bytes / paddock_quota_memory_limit_bytes",
                        "{{scope}} {{namespace}}",
                    ),
                ),
                unit="percentunit",
                kind="bars",
                most=1,
                warn=0.9,
                links=(TO_QUOTAS,),
            ),
            Panel(
                "CPU reserved",
                "Sum of CPU limits as a share of the quota, of the host and of each namespace.",
                (("paddock_quota_cpu_used_cores / paddock_quota_cpu_limit_cores", "{{scope}} {{namespace}}"),),
                unit="percentunit",
                kind="bars",
                most=1,
                warn=0.9,
                links=(TO_QUOTAS,),
            ),
            Panel(
                "Docker disk used",
                "Used share of the file system with images, containers and logs.",
                (
                    (
                        "1 - paddock_host_docker_root_avail_bytes / paddock_host_docker_root_size_bytes",
                        "{{instance}}",
                    ),
                ),
                unit="percentunit",
                most=1,
                warn=0.8,
                bad=0.9,
            ),
        ),
    )
