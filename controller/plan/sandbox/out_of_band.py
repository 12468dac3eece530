"""What somebody set on a container with `docker update` that no spec asks for, and what becomes of it.

Swap, the engine's own restart policy and CPU shares are taken back in place, of a stopped container before its next
start. A set of CPUs or memory nodes can't be taken back by the engine: the container shows it (Degraded) and is made
anew when it is started next.
"""

from collections.abc import Iterator

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container
from controller.kinds.runtime.container import Limits

# What the engine takes shares to be when nobody said anything.
DEFAULT_SHARES = 1024


def differences(container: Container) -> Iterator[tuple[str, str, str]]:
    """(field, found, wanted) for each setting that an update takes back."""
    found = container.by_hand
    if found.swap_bytes:
        yield "swap", "unlimited" if found.swap_bytes < 0 else format_bytes(found.swap_bytes), "0"
    if found.restart_policy != "no":
        yield "restartPolicy", found.restart_policy, "no"


def shares_differ(wanted: Limits, found: Limits) -> bool:
    """Whether the CPU shares are not those asked for; nothing asked for is the engine's default."""
    return (found.cpu_shares or DEFAULT_SHARES) != (wanted.cpu_shares or DEFAULT_SHARES)


def lasting(container: Container | None) -> str:
    """In words, what only a new container takes back; "" for nothing."""
    if container is None:
        return ""
    held = (("CPUs", container.by_hand.cpus), ("memory nodes", container.by_hand.memory_nodes))
    return " and ".join(f"{what} {which}" for what, which in held if which)


def degraded(container: Container | None) -> Condition | None:
    """The condition of a container that is held to CPUs or memory nodes; None: it is not."""
    held = lasting(container)
    if not held:
        return None
    words = (
        f"somebody held it to the {held} (`docker update`), which the engine cannot take back; "
        "suspend and resume it (`paddock set run-state`) to have it made anew"
    )
    return Condition("Degraded", "True", "CpusetByHand", words)
