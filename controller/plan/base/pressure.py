"""Host pressure: new starts wait, warm members are removed first, and idle sandboxes are evicted early.

Restarts within limits already held go on. A sandbox in use is never stopped: its limits are guaranteed. Only
a sandbox whose spec lets it be suspended when idle (idleTimeoutSeconds, onIdle: Suspend), and that was unused for some
minutes, is evicted; the next exec starts it, once there is capacity.
"""

from collections.abc import Iterable, Iterator

from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.pressure import Pressure
from controller.kinds.planning.instance_record import Instance
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec, idle_timeout_seconds
from controller.plan.base.reconcile_context import ReconcileContext

REASON = "HostPressure"
IDLE_SECONDS = 300


def pauses(pressure: Pressure, reserved: Limits, requested: Limits) -> str:
    """Return the message of a start that has to wait; empty when it need not, or nothing is started."""
    if not pressure.low or reserved.pids or not requested.pids:
        return ""
    return f"{pressure.message()}: nothing new is started until it has recovered"


def retirement_events(pool: ObjectRef, retired: Iterable[Instance], pressure: Pressure, now: float) -> Iterator[Event]:
    """Yield an event for each warm member that is removed because of host pressure."""
    for member in retired if pressure.low else ():
        yield Event(pool, "Warning", "Evicted", f"{member.state.container.hostname}: {pressure.message()}", now)


def timeout_seconds(spec: SandboxSpec | None, short_of: tuple[str, ...]) -> int | None:
    """Return the seconds without use until it is stopped, given the host's critical shortage; None: never."""
    timeout = idle_timeout_seconds(spec)
    if timeout is None or spec is None or not short_of or spec.lifecycle.on_idle == "Delete":
        return timeout
    return min(timeout, IDLE_SECONDS)


def short_of(context: ReconcileContext) -> tuple[str, ...]:
    """Return the resources whose shortage stops it earlier than its own spec; empty if none does."""
    sooner = timeout_seconds(context.spec, context.short_of) != idle_timeout_seconds(context.spec)
    return context.short_of if sooner else ()
