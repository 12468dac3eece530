"""Sections A and M: usage of each running container, and its collection."""

from controller.metrics.catalogue.family import Family, counter, gauge

CONTAINER = ("namespace", "sandbox", "container")
HEALTH = ("starting", "healthy", "unhealthy", "none")
SOURCES = ("cgroup2", "cgroup1")

# `detail` marks rarely used families: by default at most 60 series per sandbox are exported.

FAMILIES: tuple[Family, ...] = (
    counter(
        "paddock_container_cpu_usage_seconds_total",
        "Cumulative CPU time consumed by the container.",
        CONTAINER,
        unit="seconds",
    ),
    counter("paddock_container_cpu_user_seconds_total", "Cumulative user-mode CPU time.", CONTAINER, unit="seconds"),
    counter(
        "paddock_container_cpu_system_seconds_total", "Cumulative kernel-mode CPU time.", CONTAINER, unit="seconds"
    ),
    counter(
        "paddock_container_cpu_cfs_periods_total",
        "CFS enforcement periods elapsed; present only when a CPU limit is set.",
        CONTAINER,
    ),
    counter(
        "paddock_container_cpu_cfs_throttled_periods_total",
        "CFS periods in which the container was throttled.",
        CONTAINER,
    ),
    counter(
        "paddock_container_cpu_cfs_throttled_seconds_total",
        "Total time the container was throttled.",
        CONTAINER,
        unit="seconds",
    ),
    gauge(
        "paddock_container_spec_cpu_limit_cores",
        "CPU limit in force on the container; absent when unlimited.",
        CONTAINER,
        unit="cores",
    ),
    gauge("paddock_container_spec_cpu_shares", "Relative CPU weight (docker cpu-shares).", CONTAINER, detail=True),
    gauge(
        "paddock_container_memory_usage_bytes",
        "Memory charged to the container, page cache included.",
        CONTAINER,
        unit="bytes",
    ),
    gauge(
        "paddock_container_memory_working_set_bytes",
        "Usage minus inactive file cache, never below 0; what `docker stats` and the kubelet show.",
        CONTAINER,
        unit="bytes",
    ),
    gauge("paddock_container_memory_rss_bytes", "Anonymous memory.", CONTAINER, unit="bytes"),
    gauge("paddock_container_memory_cache_bytes", "Page cache, tmpfs included.", CONTAINER, unit="bytes"),
    gauge("paddock_container_memory_kernel_bytes", "Kernel memory charged.", CONTAINER, unit="bytes", detail=True),
    gauge("paddock_container_memory_swap_bytes", "Swap in use.", CONTAINER, unit="bytes", detail=True),
    gauge(
        "paddock_container_memory_peak_bytes",
        "Highest usage since the container last started.",
        CONTAINER,
        unit="bytes",
    ),
    counter("paddock_container_memory_major_page_faults_total", "Page faults that needed I/O.", CONTAINER, detail=True),
    counter(
        "paddock_container_memory_limit_hits_total", "Times usage reached the limit and reclaim was tried.", CONTAINER
    ),
    counter(
        "paddock_container_oom_kills_total",
        "Processes killed by the kernel for exceeding the memory limit since the container last started, pid 1 or not.",
        CONTAINER,
    ),
    gauge(
        "paddock_container_spec_memory_limit_bytes",
        "Memory limit in force; absent when unlimited.",
        CONTAINER,
        unit="bytes",
    ),
    gauge(
        "paddock_container_spec_memory_swap_limit_bytes",
        "Swap allowed on top of memory; absent when unlimited.",
        CONTAINER,
        unit="bytes",
        detail=True,
    ),
    counter(
        "paddock_container_network_receive_bytes_total",
        "Bytes received on the container's own interfaces.",
        CONTAINER,
        unit="bytes",
    ),
    counter("paddock_container_network_transmit_bytes_total", "Bytes sent.", CONTAINER, unit="bytes"),
    counter("paddock_container_network_receive_packets_total", "Packets received.", CONTAINER, detail=True),
    counter("paddock_container_network_transmit_packets_total", "Packets sent.", CONTAINER, detail=True),
    counter("paddock_container_network_receive_errors_total", "Receive errors.", CONTAINER, detail=True),
    counter("paddock_container_network_transmit_errors_total", "Transmit errors.", CONTAINER, detail=True),
    counter(
        "paddock_container_network_receive_packets_dropped_total", "Received packets dropped.", CONTAINER, detail=True
    ),
    counter(
        "paddock_container_network_transmit_packets_dropped_total", "Sent packets dropped.", CONTAINER, detail=True
    ),
    counter("paddock_container_fs_reads_bytes_total", "Bytes read from block devices.", CONTAINER, unit="bytes"),
    counter(
        "paddock_container_fs_writes_bytes_total",
        "Bytes written to block devices; on cgroup v1 buffered writes are not counted.",
        CONTAINER,
        unit="bytes",
    ),
    counter("paddock_container_fs_reads_total", "Read requests completed.", CONTAINER, detail=True),
    counter("paddock_container_fs_writes_total", "Write requests completed.", CONTAINER, detail=True),
    gauge(
        "paddock_container_fs_usage_bytes",
        "Size of the container's writable layer on disk; measured in the background.",
        CONTAINER,
        unit="bytes",
    ),
    gauge(
        "paddock_container_fs_limit_bytes",
        "Limit of the writable layer; absent when none.",
        CONTAINER,
        unit="bytes",
        detail=True,
    ),
    gauge(
        "paddock_container_fs_usage_measured_timestamp_seconds",
        "When fs_usage_bytes was last measured.",
        CONTAINER,
        unit="seconds",
        detail=True,
    ),
    gauge(
        "paddock_container_log_bytes",
        "Size of the container's log on the host, rotated files included.",
        CONTAINER,
        unit="bytes",
        detail=True,
    ),
    counter(
        "paddock_container_pressure_cpu_waiting_seconds_total",
        "Time at least one task waited for CPU (PSI some).",
        CONTAINER,
        unit="seconds",
        detail=True,
    ),
    counter(
        "paddock_container_pressure_cpu_stalled_seconds_total",
        "Time no task could run for lack of CPU (PSI full).",
        CONTAINER,
        unit="seconds",
        detail=True,
    ),
    counter(
        "paddock_container_pressure_memory_waiting_seconds_total",
        "Time at least one task stalled on memory (PSI some).",
        CONTAINER,
        unit="seconds",
        detail=True,
    ),
    counter(
        "paddock_container_pressure_memory_stalled_seconds_total",
        "Time all tasks stalled on memory (PSI full).",
        CONTAINER,
        unit="seconds",
        detail=True,
    ),
    counter(
        "paddock_container_pressure_io_waiting_seconds_total",
        "Time at least one task stalled on I/O (PSI some).",
        CONTAINER,
        unit="seconds",
        detail=True,
    ),
    counter(
        "paddock_container_pressure_io_stalled_seconds_total",
        "Time all tasks stalled on I/O (PSI full).",
        CONTAINER,
        unit="seconds",
        detail=True,
    ),
    gauge("paddock_container_pids", "Tasks (processes and threads) in the container.", CONTAINER),
    gauge("paddock_container_pids_peak", "Highest task count since start.", CONTAINER, detail=True),
    gauge("paddock_container_pids_limit", "Task limit in force; absent when unlimited.", CONTAINER),
    counter("paddock_container_pids_limit_hits_total", "Forks refused because of the limit.", CONTAINER, detail=True),
    gauge(
        "paddock_container_start_time_seconds",
        "Unix time the container last started; uptime = time() - this.",
        CONTAINER,
        unit="seconds",
    ),
    counter(
        "paddock_container_restarts_total",
        "Restarts and repairs by Paddock over the sandbox's life, as paddock_sandbox_status_restarts_total.",
        CONTAINER,
        detail=True,
    ),
    gauge(
        "paddock_container_health_status",
        f"1 for the health that its probes tell, 0 for the others ({', '.join(HEALTH)}).",
        (*CONTAINER, "status"),
        values={"status": HEALTH},
        detail=True,
    ),
    gauge(
        "paddock_container_info",
        "Always 1; labels to join on.",
        (
            "namespace",
            "sandbox",
            "container",
            "container_id",
            "image",
            "image_id",
            "runtime",
            "network",
            "security_level",
            "pool",
        ),
    ),
    gauge("paddock_stats_scrape_duration_seconds", "Time the last container-stats collection took.", unit="seconds"),
    gauge(
        "paddock_stats_scrape_errors",
        "Containers that could not be read in the last collection.",
        ("source",),
        values={"source": SOURCES},
    ),
    gauge(
        "paddock_stats_containers",
        "Containers read in the last collection (cgroup2, cgroup1).",
        ("source",),
        values={"source": SOURCES},
    ),
)
