"""What a machine that is critically short of something takes back first: boxes that nobody uses, and may be suspended.

What runs and is used stays: its limits were promised to it. Idle is what its own spec lets be suspended (an
idleTimeoutSeconds, onIdle: Suspend) and was not used for some minutes; the next exec starts it, once there is room.
"""

from controller.kinds.sandbox import SandboxSpec, idle_timeout_seconds
from controller.plan.common.reconcile_context import Case

REASON = "Evicted"
IDLE_SECONDS = 300


def timeout_seconds(spec: SandboxSpec | None, short_of: tuple[str, ...]) -> int | None:
    """After how many seconds without use it is stopped, while the host lacks this critically; None: never."""
    timeout = idle_timeout_seconds(spec)
    if timeout is None or spec is None or not short_of or spec.lifecycle.on_idle != "Suspend":
        return timeout
    return min(timeout, IDLE_SECONDS)


def short_of(case: Case) -> tuple[str, ...]:
    """What the host lacks for which it is stopped now, earlier than its own spec says; empty when it is not."""
    sooner = timeout_seconds(case.spec, case.short_of) != idle_timeout_seconds(case.spec)
    return case.short_of if sooner else ()
