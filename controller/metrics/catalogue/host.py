"""Sections D and F: the engine and its host."""

from controller.kinds.observed.observed import State
from controller.metrics.catalogue.family import Family, gauge

CONTAINER_STATES = tuple(str(state) for state in State)

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_host_cpu_cores", "CPUs of the Docker host.", unit="cores"),
    gauge("paddock_host_memory_bytes", "Memory of the Docker host.", unit="bytes"),
    gauge("paddock_host_docker_root_size_bytes", "Size of the filesystem holding the Docker root.", unit="bytes"),
    gauge("paddock_host_docker_root_avail_bytes", "Free space there.", unit="bytes"),
    gauge("paddock_host_docker_root_inodes_free", "Free inodes there."),
    gauge("paddock_host_swap_size_bytes", "Size of all active swap of the host; absent without any.", unit="bytes"),
    gauge("paddock_host_swap_free_bytes", "Free swap of the host; absent without any.", unit="bytes"),
    gauge("paddock_docker_up", "1 when the last ping within 2 intervals answered."),
    gauge(
        "paddock_docker_info",
        "Always 1.",
        ("server_version", "api_version", "storage_driver", "cgroup_version", "cgroup_driver", "default_runtime"),
    ),
    gauge(
        "paddock_docker_containers",
        "Containers by Docker state (created, running, paused, restarting, removing, exited, dead).",
        ("state", "managed"),
        values={"state": CONTAINER_STATES, "managed": ("true",)},
    ),
)
