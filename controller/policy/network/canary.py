"""The canary's container: as narrow as a box can be, of the image that every host with networks has. Pure."""

from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.policy.levels.seccomp import MINIMAL
from controller.policy.network.egress import IMAGE

_USER = "20000:20000"


def canary() -> ContainerConfig:
    """A shell that waits for what never comes."""
    return ContainerConfig(
        image=IMAGE,
        name="pdk-canary",
        limits=Limits(cpu_millicores=100, memory_bytes=16 << 20, pids=16),
        hostname="canary",
        command=("/bin/sh", "-c", "read _"),
        user=_USER,
        seccomp=MINIMAL,
    )
