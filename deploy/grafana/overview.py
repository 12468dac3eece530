"""Overview: how is everything."""

from deploy.grafana.panels import NAMESPACE, Panel, Row, make

OF = 'namespace=~"$namespace"'
BY_BOX = "{{namespace}}/{{sandbox}}"


def overview() -> str:
    """Everything on one page."""
    now = Row(
        "Now",
        (
            Panel(
                "Sandboxes",
                "By state.",
                ((f"sum by (state) (paddock_sandbox_status_state{{{OF}}})", "{{state}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Ready",
                "Of those that are meant to run.",
                (
                    (
                        f"sum(paddock_sandbox_status_ready{{{OF}}}) / sum(paddock_sandbox_spec_running{{{OF}}})",
                        "ready",
                    ),
                ),
                unit="percentunit",
                kind="stat",
                width=4,
            ),
            Panel(
                "Engine",
                "1 while the Docker Engine answers.",
                (("paddock_docker_up", "{{instance}}"),),
                kind="stat",
                width=4,
            ),
            Panel(
                "Waiting for room",
                "Sandboxes that wait for quota, by what is short.",
                (("sum by (scope, resource) (paddock_quota_waiting_sandboxes)", "{{scope}} {{resource}}"),),
                kind="bars",
                width=5,
                warn=1,
            ),
            Panel(
                "Warm members ready",
                "Ready members of each pool.",
                (('sum by (namespace, pool) (paddock_pool_containers{state="ready"})', "{{namespace}}/{{pool}}"),),
                kind="bars",
                width=5,
            ),
        ),
    )
    use = Row(
        "Use",
        (
            Panel(
                "CPU by sandbox",
                "Cores in use, the twenty that use most.",
                ((f"topk(20, namespace_sandbox:paddock_container_cpu_usage_seconds:rate2m{{{OF}}})", BY_BOX),),
                unit="none",
                stacked=True,
                width=12,
            ),
            Panel(
                "Memory by sandbox",
                "Working sets, the twenty largest.",
                (
                    (
                        f"topk(20, sum by (namespace, sandbox) (paddock_container_memory_working_set_bytes{{{OF}}}))",
                        BY_BOX,
                    ),
                ),
                unit="bytes",
                stacked=True,
                width=12,
            ),
            Panel(
                "Nearest to their memory limit",
                "Working set by limit. The kernel kills at 1.",
                ((f"topk(10, namespace_sandbox:paddock_container_memory_working_set_bytes:ratio{{{OF}}})", BY_BOX),),
                unit="percentunit",
                kind="bars",
                most=1,
                warn=0.8,
                bad=0.9,
            ),
            Panel(
                "Most throttled",
                "Share of the CPU periods in which a sandbox was held back.",
                (
                    (
                        f"topk(10, namespace_sandbox:paddock_container_cpu_cfs_throttled_periods:ratio_rate5m{{{OF}}})",
                        BY_BOX,
                    ),
                ),
                unit="percentunit",
                kind="bars",
                most=1,
                warn=0.25,
                bad=0.5,
            ),
            Panel(
                "Nearest to their task limit",
                "Processes and threads by limit. Forks fail at 1.",
                ((f"topk(10, namespace_sandbox:paddock_container_pids:ratio{{{OF}}})", BY_BOX),),
                unit="percentunit",
                kind="bars",
                most=1,
                warn=0.8,
                bad=0.9,
            ),
        ),
    )
    host = Row(
        "Host and quotas",
        (
            Panel(
                "Memory promised",
                "Limits of all that may run, and what may be promised. Namespace '' is the host.",
                (
                    ("paddock_quota_memory_used_bytes", "used {{scope}} {{namespace}}"),
                    ("paddock_quota_memory_limit_bytes", "limit {{scope}} {{namespace}}"),
                ),
                unit="bytes",
            ),
            Panel(
                "CPU promised",
                "The same of CPU, in cores.",
                (
                    ("paddock_quota_cpu_used_cores", "used {{scope}} {{namespace}}"),
                    ("paddock_quota_cpu_limit_cores", "limit {{scope}} {{namespace}}"),
                ),
                unit="none",
            ),
            Panel(
                "The engine's disk",
                "Free share of the file system that holds images, containers and logs.",
                (("paddock_host_docker_root_avail_bytes / paddock_host_docker_root_size_bytes", "{{instance}} free"),),
                unit="percentunit",
                most=1,
            ),
        ),
    )
    about = "Every sandbox of this Paddock: how they are, what they use, and what there is room for."
    return make("paddock-overview", "Paddock / Overview", about, (now, use, host), (NAMESPACE,))
