"""Sandbox: what does this one use, and why is it as it is."""

from deploy.grafana.panels import CORES, NAMESPACE, Panel, Row, Variable, make

BOX = 'namespace=~"$namespace", sandbox=~"$sandbox"'
SANDBOX = Variable("sandbox", 'label_values(paddock_sandbox_info{namespace=~"$namespace"}, sandbox)', all_first=False)
WHO = (("namespace", "Namespace"), ("sandbox", "Sandbox"))


def sandbox() -> str:
    """One sandbox, or a few beside each other."""
    about = "What a sandbox uses, against its limits, and how it is."
    rows = (_life(), _compute(), _memory(), _flow())
    return make("paddock-sandbox", "Paddock / Sandbox", about, rows, (NAMESPACE, SANDBOX))


def _life() -> Row:
    return Row(
        "Life",
        (
            Panel(
                "State",
                "The state it is in.",
                ((f"paddock_sandbox_status_state{{{BOX}}} == 1", "{{sandbox}}: {{state}}"),),
                kind="stat",
                width=6,
                height=9,
                names="only",
            ),
            Panel(
                "Up for",
                "Since its container last started.",
                ((f"time() - paddock_container_start_time_seconds{{{BOX}}}", "{{sandbox}}"),),
                unit="s",
                kind="stat",
                width=5,
                height=9,
            ),
            Panel(
                "Restarts",
                "Restarts and repairs of its life.",
                ((f"paddock_sandbox_status_restarts_total{{{BOX}}}", "{{sandbox}}"),),
                kind="stat",
                width=5,
                height=9,
                warn=1,
                bad=5,
            ),
            Panel(
                "Conditions",
                "Each that is known to be true or false.",
                ((f"paddock_sandbox_status_condition{{{BOX}}}", ""),),
                kind="table",
                width=8,
                height=9,
                columns=(("sandbox", "Sandbox"), ("condition", "Condition"), ("Value", "Is")),
                words=(("1", "True", "text"), ("0", "False", "text")),
            ),
            Panel(
                "Facts",
                "Image, pool and security level of what runs.",
                ((f"paddock_container_info{{{BOX}}}", ""),),
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
            ),
        ),
    )


def _compute() -> Row:
    periods = "paddock_container_cpu_cfs_periods_total"
    return Row(
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
                unit=CORES,
                decimals=3,
            ),
            Panel(
                "Throttling",
                "Share of the CPU periods in which it was held back.",
                (
                    (
                        f"rate(paddock_container_cpu_cfs_throttled_periods_total{{{BOX}}}[$__rate_interval])"
                        f" / rate({periods}{{{BOX}}}[$__rate_interval])",
                        "{{sandbox}}",
                    ),
                ),
                unit="percentunit",
                most=1,
                warn=0.25,
                bad=0.5,
            ),
            Panel(
                "Tasks",
                "Processes and threads, and the limit.",
                (
                    (f"paddock_container_pids{{{BOX}}}", "{{sandbox}}"),
                    (f"paddock_container_pids_limit{{{BOX}}}", "{{sandbox}} limit"),
                ),
                decimals=0,
            ),
        ),
    )


def _memory() -> Row:
    return Row(
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
                decimals=0,
            ),
        ),
    )


def _flow() -> Row:
    return Row(
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
                unit="binBps",
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
                unit="binBps",
            ),
            Panel(
                "Written layer",
                "What its own layer takes of the disk, and what is reserved for it.",
                (
                    (f"paddock_container_fs_usage_bytes{{{BOX}}}", "{{sandbox}}"),
                    (f"paddock_sandbox_spec_fs_limit_bytes{{{BOX}}}", "{{sandbox}} limit"),
                ),
                unit="bytes",
            ),
        ),
    )
