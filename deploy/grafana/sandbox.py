"""Dashboard of one sandbox: state, usage and limits."""

from deploy.grafana.panels import CORES, NAMESPACE, Panel, Row, Variable, make

OF_SANDBOX = 'namespace=~"$namespace", sandbox=~"$sandbox"'
SANDBOX = Variable("sandbox", 'label_values(paddock_sandbox_info{namespace=~"$namespace"}, sandbox)', all_first=False)
WHO = (("namespace", "Namespace"), ("sandbox", "Sandbox"))


def sandbox() -> str:
    """Build the dashboard of one or a few sandboxes."""
    about = "State of a sandbox, and its usage against its limits."
    rows = (_life(), _compute(), _memory(), _flow())
    return make("paddock-sandbox", "Paddock / Sandbox", about, rows, (NAMESPACE, SANDBOX))


def _life() -> Row:
    return Row(
        "Lifecycle",
        (
            Panel(
                "State",
                "Current state.",
                ((f"paddock_sandbox_status_state{{{OF_SANDBOX}}} == 1", "{{sandbox}}: {{state}}"),),
                kind="stat",
                width=6,
                height=9,
                names="only",
                empty="No sandbox is chosen, or there is none",
            ),
            Panel(
                "Uptime",
                "Time since its container last started.",
                ((f"time() - paddock_container_start_time_seconds{{{OF_SANDBOX}}}", "{{sandbox}}"),),
                unit="s",
                kind="stat",
                width=5,
                height=9,
                empty="It does not run",
            ),
            Panel(
                "Restarts",
                "Restarts and repairs since it was created.",
                ((f"paddock_sandbox_status_restarts_total{{{OF_SANDBOX}}}", "{{sandbox}}"),),
                kind="stat",
                width=5,
                height=9,
                warn=1,
                bad=5,
                empty="No sandbox is chosen, or there is none",
            ),
            Panel(
                "Conditions",
                "Conditions with status True or False.",
                ((f"paddock_sandbox_status_condition{{{OF_SANDBOX}}}", ""),),
                kind="table",
                width=8,
                height=9,
                columns=(("sandbox", "Sandbox"), ("condition", "Condition"), ("Value", "Status")),
                words=(("1", "True", "text"), ("0", "False", "text")),
                empty="No sandbox is chosen, or there is none",
            ),
            Panel(
                "Details",
                "Image, security level, network and pool of the running container.",
                ((f"paddock_container_info{{{OF_SANDBOX}}}", ""),),
                kind="table",
                width=24,
                height=5,
                columns=(
                    *WHO,
                    ("container", "Container"),
                    ("image", "Image"),
                    ("security_level", "Security level"),
                    ("network", "Network"),
                    ("pool", "Pool"),
                    ("runtime", "Runtime"),
                ),
                empty="It does not run",
            ),
        ),
    )


def _compute() -> Row:
    periods = "paddock_container_cpu_cfs_periods_total"
    return Row(
        "CPU and PIDs",
        (
            Panel(
                "CPU",
                "Cores in use, and the limit.",
                (
                    (
                        f"sum by (namespace, sandbox) (rate(paddock_container_cpu_user_seconds_total{{{OF_SANDBOX}}}"
                        "[$__rate_interval]))",
                        "{{sandbox}} user",
                    ),
                    (
                        f"sum by (namespace, sandbox) (rate(paddock_container_cpu_system_seconds_total{{{OF_SANDBOX}}}"
                        "[$__rate_interval]))",
                        "{{sandbox}} system",
                    ),
                    (f"paddock_container_spec_cpu_limit_cores{{{OF_SANDBOX}}}", "{{sandbox}} limit"),
                ),
                unit=CORES,
                decimals=3,
                empty="It does not run",
            ),
            Panel(
                "Throttling",
                "Share of CPU periods in which it was throttled.",
                (
                    (
                        f"rate(paddock_container_cpu_cfs_throttled_periods_total{{{OF_SANDBOX}}}[$__rate_interval])"
                        f" / rate({periods}{{{OF_SANDBOX}}}[$__rate_interval])",
                        "{{sandbox}}",
                    ),
                ),
                unit="percentunit",
                most=1,
                warn=0.25,
                bad=0.5,
                empty="It has no CPU limit, or does not run",
            ),
            Panel(
                "PIDs",
                "Processes and threads, and the limit.",
                (
                    (f"paddock_container_pids{{{OF_SANDBOX}}}", "{{sandbox}}"),
                    (f"paddock_container_pids_limit{{{OF_SANDBOX}}}", "{{sandbox}} limit"),
                ),
                decimals=0,
                empty="It does not run",
            ),
        ),
    )


def _memory() -> Row:
    return Row(
        "Memory",
        (
            Panel(
                "Memory",
                "Working set (memory that can't be reclaimed), peak, and the limit.",
                (
                    (f"paddock_container_memory_working_set_bytes{{{OF_SANDBOX}}}", "{{sandbox}} working set"),
                    (f"paddock_container_memory_peak_bytes{{{OF_SANDBOX}}}", "{{sandbox}} peak"),
                    (f"paddock_container_spec_memory_limit_bytes{{{OF_SANDBOX}}}", "{{sandbox}} limit"),
                ),
                unit="bytes",
                empty="It does not run",
            ),
            Panel(
                "Memory by type",
                "Areas on each other: anonymous memory, page cache including tmpfs, and swap while it is hibernated.",
                (
                    (f"paddock_container_memory_rss_bytes{{{OF_SANDBOX}}}", "{{sandbox}} anonymous"),
                    (f"paddock_container_memory_cache_bytes{{{OF_SANDBOX}}}", "{{sandbox}} cache and tmpfs"),
                    (f"paddock_sandbox_hibernated_swapped_bytes{{{OF_SANDBOX}}}", "{{sandbox}} swap (hibernated)"),
                ),
                unit="bytes",
                stacked=True,
                empty="It does not run",
            ),
            Panel(
                "Memory limit hits",
                "Times the limit was reached, and OOM kills, in five minutes.",
                (
                    (
                        f"increase(paddock_container_memory_limit_hits_total{{{OF_SANDBOX}}}[5m])",
                        "{{sandbox}} limit reached",
                    ),
                    (f"increase(paddock_container_oom_kills_total{{{OF_SANDBOX}}}[5m])", "{{sandbox}} OOM kills"),
                ),
                decimals=0,
                empty="It does not run",
            ),
        ),
    )


def _flow() -> Row:
    return Row(
        "Network and disk",
        (
            Panel(
                "Network",
                "Bytes per second; none for a sandbox without a network.",
                (
                    (
                        f"rate(paddock_container_network_receive_bytes_total{{{OF_SANDBOX}}}[$__rate_interval])",
                        "{{sandbox}} in",
                    ),
                    (
                        f"rate(paddock_container_network_transmit_bytes_total{{{OF_SANDBOX}}}[$__rate_interval])",
                        "{{sandbox}} out",
                    ),
                ),
                unit="binBps",
                empty="It has no network, or does not run",
            ),
            Panel(
                "Disk I/O",
                "Bytes per second from and to block devices; cgroup v1 does not count buffered writes.",
                (
                    (
                        f"rate(paddock_container_fs_reads_bytes_total{{{OF_SANDBOX}}}[$__rate_interval])",
                        "{{sandbox}} read",
                    ),
                    (
                        f"rate(paddock_container_fs_writes_bytes_total{{{OF_SANDBOX}}}[$__rate_interval])",
                        "{{sandbox}} written",
                    ),
                ),
                unit="binBps",
                empty="It does not run, or cgroup v1 on kernel 6.10 or newer counts nothing",
            ),
            Panel(
                "Writable layer",
                "Size of the writable layer, and the disk reserved for it.",
                (
                    (f"paddock_container_fs_usage_bytes{{{OF_SANDBOX}}}", "{{sandbox}}"),
                    (f"paddock_sandbox_spec_fs_limit_bytes{{{OF_SANDBOX}}}", "{{sandbox}} limit"),
                ),
                unit="bytes",
                empty="Not measured yet: about a minute after the first start",
            ),
        ),
    )
