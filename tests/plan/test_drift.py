"""Limits that a container is to have, given what is in its folders in memory already; runtimes that the engine lost."""

import pytest

from controller.kinds.observed.observed import Container, HostFacts, State
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import BoundMount
from controller.plan.sandbox.drift import charged_limits, differences, lost_runtime

MIB = 1 << 20
WANTED = Limits(500, 512 * MIB, 64)


def container(uncharged_mib: float, memory_mib: int) -> Container:
    bound = (BoundMount("/tmp", "tmpfs", kind="tmpfs", uncharged_bytes=int(uncharged_mib * MIB)),)
    return Container("c", "box", "u", State.RUNNING, bound=bound, limits=Limits(500, memory_mib * MIB, 64))


@pytest.mark.parametrize(("uncharged", "memory"), [(0, 512), (0.5, 512), (48, 464), (511, 6)])
def test_restored_files_lower_the_memory_limit(uncharged: float, memory: int) -> None:
    assert charged_limits(WANTED, container(uncharged, 512)).memory_bytes == memory * MIB
    assert list(differences(WANTED, container(uncharged, memory))) == []
    assert [field for field, _, _ in differences(WANTED, container(uncharged, 500))] == ["memory"]


@pytest.mark.parametrize(
    ("runtime", "lost"),
    [("runc", ""), ("crun", "crun"), ("kata", ""), ("io.containerd.kata.v2", ""), ("io.containerd.runc.v2", "")],
)
def test_an_unregistered_default_or_shim_is_not_lost(runtime: str, lost: str) -> None:
    host = HostFacts(cpus=2, default_runtime="kata", runtimes=("runc",))
    assert lost_runtime(Container("c", "box", "u", State.RUNNING, runtime=runtime), host) == lost
