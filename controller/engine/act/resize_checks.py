"""Resize of a live container: checks before and after new limits are set."""

from collections.abc import Iterator
from dataclasses import fields

from controller.engine.kernel.cgroups import Cgroups, Unreadable
from controller.engine.usage.cgroup import working_set_bytes
from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.observed import Container, OutOfBandSettings, State
from controller.kinds.planning.outcome import Outcome, Waiting
from controller.kinds.runtime.container import Limits

_LIVE = (State.RUNNING, State.PAUSED)
_RETRY_SECONDS = 5.0


def shrinks(container: Container, desired: Limits) -> bool:
    """Tell whether the memory limit would shrink."""
    held = container.limits
    return held is None or held.memory_bytes == 0 or desired.memory_bytes < held.memory_bytes


def too_small(cgroups: Cgroups, container: Container, desired: Limits) -> Outcome | None:
    """Return the outcome that delays a memory limit; None to go on. cgroup v2 would kill what does not fit."""
    if container.state not in _LIVE or not shrinks(container, desired):
        return None
    try:
        used = working_set_bytes(cgroups, container.id, container.pid)
    except Unreadable:
        return in_use(f"{container.name}: its memory use can't be read now; retrying")
    if used <= desired.memory_bytes:
        return None
    return in_use(
        f"{container.name} uses {used / (1 << 20):.1f}Mi, more than the new limit of "
        f"{format_bytes(desired.memory_bytes)}; the old limit stays until it uses less"
    )


def in_use(words: str) -> Outcome:
    """Return the outcome for a limit below the memory in use: retry later."""
    return Waiting(_RETRY_SECONDS, "MemoryInUse", words)


def differences(desired: Limits, found: Limits | None) -> Iterator[str]:
    """Describe each limit that differs from the desired one."""
    for each in fields(Limits):
        want, have = getattr(desired, each.name), getattr(found, each.name, None)
        # Shares of 0 were not sent, so any value is right.
        if have is not None and want != have and not (each.name == "cpu_shares" and not want):
            yield f"{each.name} is {have}, not {want}"


def remaining_drift(found: OutOfBandSettings) -> Iterator[str]:
    """Describe the drift that an update did not revert."""
    if found.swap_bytes:
        yield f"swap is {'unlimited' if found.swap_bytes < 0 else found.swap_bytes}, not 0"
    if found.restart_policy != "no":
        yield f"the restart policy is {found.restart_policy}, not no"
