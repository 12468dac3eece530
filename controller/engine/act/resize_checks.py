"""Resize of a live container: checks before and after new limits are set."""

from collections.abc import Iterator
from dataclasses import fields

from controller.engine.kernel.cgroups import Cgroups, Unreadable
from controller.engine.usage.memory import working_set_bytes
from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.observed import Container, OutOfBandSettings, State
from controller.kinds.planning.outcome import Outcome, Waiting
from controller.kinds.runtime.container import Limits

_LIVE = (State.RUNNING, State.PAUSED)
_RETRY_SECONDS = 5.0


def shrinks(container: Container, desired: Limits) -> bool:
    """Tell whether the memory limit would shrink."""
    current = container.limits
    return current is None or current.memory_bytes == 0 or desired.memory_bytes < current.memory_bytes


def too_small(cgroups: Cgroups, container: Container, desired: Limits) -> Outcome | None:
    """Return the outcome that delays a memory limit; None to go on. cgroup v2 would kill what does not fit."""
    if container.state not in _LIVE or not shrinks(container, desired):
        return None
    try:
        used_bytes = working_set_bytes(cgroups, container.id, container.pid)
    except Unreadable:
        return in_use(f"{container.name}: its memory use can't be read now; retrying")
    if used_bytes <= desired.memory_bytes:
        return None
    return in_use(
        f"{container.name} uses {used_bytes / (1 << 20):.1f}Mi, more than the new limit of "
        f"{format_bytes(desired.memory_bytes)}; the old limit stays until it uses less"
    )


def in_use(message: str) -> Outcome:
    """Return the outcome for a limit below the memory in use: retry later."""
    return Waiting(_RETRY_SECONDS, "MemoryInUse", message)


def differences(desired: Limits, effective: Limits | None) -> Iterator[str]:
    """Describe each limit that differs from the desired one."""
    for field in fields(Limits):
        want, have = getattr(desired, field.name), getattr(effective, field.name, None)
        # Shares of 0 were not sent, so any value is right.
        if have is not None and want != have and not (field.name == "cpu_shares" and not want):
            yield f"{field.name} is {have}, not {want}"


def remaining_drift(settings: OutOfBandSettings) -> Iterator[str]:
    """Describe the drift that an update did not revert."""
    if settings.swap_bytes:
        yield f"swap is {'unlimited' if settings.swap_bytes < 0 else settings.swap_bytes}, not 0"
    if settings.restart_policy != "no":
        yield f"the restart policy is {settings.restart_policy}, not no"
