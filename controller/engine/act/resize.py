"""New limits for a live container: whether they may be set now, and whether they were."""

from collections.abc import Iterator
from dataclasses import fields

from controller.engine.kernel.cgroups import Cgroups, Unreadable
from controller.engine.usage.cgroup import working_set_bytes
from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.observed import ByHand, Container, State
from controller.kinds.planning.outcome import Outcome, Waiting
from controller.kinds.runtime.container import Limits

_LIVE = (State.RUNNING, State.PAUSED)
_RETRY_SECONDS = 5.0


def shrinks(container: Container, wanted: Limits) -> bool:
    """Whether memory would be taken away."""
    held = container.limits
    return held is None or held.memory_bytes == 0 or wanted.memory_bytes < held.memory_bytes


def too_small(cgroups: Cgroups, container: Container, wanted: Limits) -> Outcome | None:
    """Why the memory limit must wait; None: go on. cgroup v2 would let the kernel kill what does not fit."""
    if container.state not in _LIVE or not shrinks(container, wanted):
        return None
    try:
        used = working_set_bytes(cgroups, container.id, container.pid)
    except Unreadable:
        return in_use(f"how much memory {container.name} uses can't be read now")
    if used <= wanted.memory_bytes:
        return None
    return in_use(
        f"{container.name} uses {used / (1 << 20):.1f}Mi, more than the new limit of "
        f"{format_bytes(wanted.memory_bytes)}; the old limit stays until it uses less"
    )


def in_use(words: str) -> Outcome:
    """Memory that is used can't be taken: look again later."""
    return Waiting(_RETRY_SECONDS, "MemoryInUse", words)


def differences(wanted: Limits, found: Limits | None) -> Iterator[str]:
    """In words, what is not as it was asked for."""
    for each in fields(Limits):
        want, have = getattr(wanted, each.name), getattr(found, each.name, None)
        # Shares of 0 were not sent: whatever holds is right.
        if have is not None and want != have and not (each.name == "cpu_shares" and not want):
            yield f"{each.name} is {have}, not {want}"


def still_by_hand(found: ByHand) -> Iterator[str]:
    """In words, what somebody set past Paddock and an update should have taken back."""
    if found.swap_bytes:
        yield f"swap is {'unlimited' if found.swap_bytes < 0 else found.swap_bytes}, not 0"
    if found.restart_policy != "no":
        yield f"the restart policy is {found.restart_policy}, not no"
