"""Container config of the network canary: as narrow as a sandbox can be, from the image of every host with networks.

Pure.
"""

from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.policy.levels.levels import SHARED_USER
from controller.policy.levels.seccomp import MINIMAL
from controller.policy.network.egress import IMAGE


def canary() -> ContainerConfig:
    """Return the config of a shell that waits forever."""
    return ContainerConfig(
        image=IMAGE,
        name="pdk-canary",
        limits=Limits(cpu_millicores=100, memory_bytes=16 << 20, pids=16),
        hostname="canary",
        command=("/bin/sh", "-c", "read _"),
        user=SHARED_USER,
        seccomp=MINIMAL,
    )
