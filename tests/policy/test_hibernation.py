"""The ability of a host to hibernate: every active swap counts."""

import pytest

from controller.kinds.observed.swap import HostSwap, SwapDevice, SwapKind
from controller.policy.host.hibernation import judge

GIB = 1 << 30


def swap(*kinds: SwapKind, used_bytes: int = 0) -> HostSwap:
    return HostSwap(tuple(SwapDevice(f"/dev/{kind}", kind, GIB, used_bytes) for kind in kinds))


@pytest.mark.parametrize(
    ("host", "reason", "available"),
    [
        (swap(), "NoSwap", False),
        (swap("Memory"), "CompressedMemory", True),
        (swap("Encrypted"), "EncryptedSwap", True),
        (swap("Memory", "Encrypted"), "EncryptedSwap", True),
        (swap("Plain"), "PlainDisk", False),
        (swap("Memory", "Plain"), "PlainDisk", False),  # pages of a full zram go to the next
        (swap("Memory", used_bytes=GIB), "SwapFull", False),
        (HostSwap(trouble="no memory cgroup"), "NotPossible", False),
    ],
)
def test_every_active_swap_is_judged(host: HostSwap, reason: str, available: bool) -> None:
    ability = judge(host, None, to_plain_disk=False)
    assert (ability.reason, ability.available) == (reason, available)


def test_a_plain_disk_may_be_allowed() -> None:
    ability = judge(swap("Memory", "Plain"), None, to_plain_disk=True)
    assert (ability.reason, ability.available, ability.free_bytes) == ("PlainSwap", True, 2 * GIB)


def test_sandboxes_use_no_more_than_their_part() -> None:
    assert judge(swap("Memory"), 0, to_plain_disk=False).reason == "Disabled"
    assert judge(swap("Memory"), 64 << 20, to_plain_disk=False).free_bytes == 64 << 20
    assert judge(swap("Memory"), 64 << 20, to_plain_disk=False, used_bytes=60 << 20).reason == "SwapFull"
