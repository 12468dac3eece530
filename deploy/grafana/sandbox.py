"""Sandbox: what does this one use, and why is it as it is."""

from deploy.grafana.panels import NAMESPACE, Panel, Row, make

BOX = 'namespace=~"$namespace", sandbox=~"$sandbox"'
SANDBOX = ("sandbox", 'label_values(paddock_sandbox_info{namespace=~"$namespace"}, sandbox)')


def sandbox() -> str:
    """One sandbox, or a few beside each other."""
    life = Row(
        "Life",
        (
            Panel(
                "State",
                "The state it is in.",
                ((f"paddock_sandbox_status_state{{{BOX}}} == 1", "{{sandbox}} {{state}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Conditions",
                "1 true, 0 false; what is unknown is left out.",
                ((f"paddock_sandbox_status_condition{{{BOX}}}", "{{sandbox}} {{condition}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Up for",
                "Since its container last started.",
                ((f"time() - paddock_container_start_time_seconds{{{BOX}}}", "{{sandbox}}"),),
                unit="s",
                kind="stat",
                width=4,
            ),
            Panel(
                "Restarts",
                "Restarts and repairs of its life.",
                ((f"paddock_sandbox_status_restarts_total{{{BOX}}}", "{{sandbox}}"),),
                kind="stat",
                width=4,
                warn=1,
                bad=5,
            ),
            Panel(
                "Facts",
                "Image, pool and security level of what runs.",
                ((f"paddock_container_info{{{BOX}}}", ""),),
                kind="table",
                width=4,
            ),
        ),
    )
    compute = Row(
        "CPU and tasks",
        (
            Panel(
                "CPU",
                "Cores in use, and the limit.",
                (
                    (
                        f"sum by (namespace, sandbox) (rate(paddock_container_cpu_user_seconds_total{{{BOX}}}"
                        "[$__rate_interval]))",
                        "{{sandbox}} user",
                    ),
                    (
                        f"sum by (namespace, sandbox) (rate(paddock_container_cpu_system_seconds_total{{{BOX}}}"
                        "[$__rate_interval]))",
                        "{{sandbox}} system",
                    ),
                    (f"paddock_container_spec_cpu_limit_cores{{{BOX}}}", "{{sandbox}} limit"),
                ),
                unit="none",
            ),
            Panel(
                "Throttling",
                "Seconds a second for which it was held back.",
                (
                    (
                        f"rate(paddock_container_cpu_cfs_throttled_seconds_total{{{BOX}}}[$__rate_interval])",
                        "{{sandbox}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Tasks",
                "Processes and threads, and the limit.",
                (
                    (f"paddock_container_pids{{{BOX}}}", "{{sandbox}}"),
                    (f"paddock_container_pids_limit{{{BOX}}}", "{{sandbox}} limit"),
                ),
            ),
        ),
    )
    memory = Row(
        "Memory",
        (
            Panel(
                "Memory",
                "Working set (what counts against the limit and can't be given up), peak, and the limit.",
                (
                    (f"paddock_container_memory_working_set_bytes{{{BOX}}}", "{{sandbox}} working set"),
                    (f"paddock_container_memory_peak_bytes{{{BOX}}}", "{{sandbox}} peak"),
                    (f"paddock_container_spec_memory_limit_bytes{{{BOX}}}", "{{sandbox}} limit"),
                ),
                unit="bytes",
            ),
            Panel(
                "What it is made of",
                "Anonymous memory, and the page cache with tmpfs.",
                (
                    (f"paddock_container_memory_rss_bytes{{{BOX}}}", "{{sandbox}} anonymous"),
                    (f"paddock_container_memory_cache_bytes{{{BOX}}}", "{{sandbox}} cache and tmpfs"),
                ),
                unit="bytes",
                stacked=True,
            ),
            Panel(
                "At the limit",
                "Times the limit was reached, and processes killed for it, in five minutes.",
                (
                    (f"increase(paddock_container_memory_limit_hits_total{{{BOX}}}[5m])", "{{sandbox}} limit reached"),
                    (f"increase(paddock_container_oom_kills_total{{{BOX}}}[5m])", "{{sandbox}} killed"),
                ),
            ),
        ),
    )
    flow = Row(
        "Network and disk",
        (
            Panel(
                "Network",
                "Bytes a second; nothing for a sandbox without a network.",
                (
                    (
                        f"rate(paddock_container_network_receive_bytes_total{{{BOX}}}[$__rate_interval])",
                        "{{sandbox}} in",
                    ),
                    (
                        f"rate(paddock_container_network_transmit_bytes_total{{{BOX}}}[$__rate_interval])",
                        "{{sandbox}} out",
                    ),
                ),
                unit="Bps",
                width=12,
            ),
            Panel(
                "Disk",
                "Bytes a second to and from block devices; cgroup v1 does not count buffered writes.",
                (
                    (f"rate(paddock_container_fs_reads_bytes_total{{{BOX}}}[$__rate_interval])", "{{sandbox}} read"),
                    (
                        f"rate(paddock_container_fs_writes_bytes_total{{{BOX}}}[$__rate_interval])",
                        "{{sandbox}} written",
                    ),
                ),
                unit="Bps",
                width=12,
            ),
        ),
    )
    about = "What a sandbox uses, against its limits, and how it is."
    rows = (life, compute, memory, flow)
    return make("paddock-sandbox", "Paddock / Sandbox", about, rows, (NAMESPACE, SANDBOX))
