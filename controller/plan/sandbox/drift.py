"""Drift: differences between a container and its desired configuration, and out-of-band changes (`docker update`).

Swap, the engine's own restart policy and CPU shares are reset in place, in a stopped container before its next start.
The engine cannot reset a CPU or memory-node set: the container is Degraded, and is created again at its next start.
"""

from collections.abc import Iterator
from dataclasses import replace

from pydantic.alias_generators import to_camel

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container, HostFacts
from controller.kinds.runtime.agent import volume_name
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import MEMORY_MIN_BYTES
from controller.plan.base.limits import PAGE_BYTES, limit_differences
from controller.plan.base.reconcile_context import ReconcileContext
from controller.policy.sandbox import Rendered

# Less is not worth an update at each start.
_UNCHARGED_BYTES = 1 << 20
_SHIM = "io.containerd."  # such as io.containerd.kata.v2
CGROUPS_LOST = "CgroupsLost"
LOST_MESSAGE = "its processes were moved out of its cgroup: nothing limits them, until it is restarted"


def charged_limits(desired: Limits, container: Container) -> Limits:
    """Return the limits that a container gets: less memory by what was in its folders in memory before it started.

    Those pages are charged to nobody, so with the whole limit it would have more than that.
    """
    uncharged = sum(mount.uncharged_bytes for mount in container.bound)
    if uncharged < _UNCHARGED_BYTES:
        return desired
    memory_bytes = max(desired.memory_bytes - uncharged // PAGE_BYTES * PAGE_BYTES, MEMORY_MIN_BYTES)
    return replace(desired, memory_bytes=min(memory_bytes, desired.memory_bytes))


def differences(desired: Limits, container: Container) -> Iterator[tuple[str, str, str]]:
    """Yield (field, found, wanted) for all that an update in place resets."""
    if container.limits is not None:
        yield from limit_differences(charged_limits(desired, container), container.limits)
    yield from _out_of_band_differences(container)


def network_differences(desired: tuple[str, ...], observed: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the networks to detach, and those to attach. Detaching comes first."""
    return tuple(network for network in observed if network not in desired), tuple(
        network for network in desired if network not in observed
    )


def needs_new_container(context: ReconcileContext, container: Container, rendered: Rendered) -> str:
    """Return why this container has to be replaced now, "" if it need not. Only a new spec generation does that."""
    if container.template_hash == rendered.template_hash or container.generation == context.obj.generation:
        return ""
    before, after = context.state.container.template_fields, rendered.template_fields
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if not before or not changed:
        return "spec.template changed"
    if changed == ["image"]:
        return f"spec.template.image changed from {container.image} to {rendered.config.image}"
    has_own_level = context.spec is not None and context.spec.security_level is not None
    return ", ".join(_field(name, has_own_level) for name in changed) + " changed"


def _field(name: str, has_own_level: bool) -> str:
    """Return the path of a field in the spec; `has_own_level`: the level is set by the sandbox itself."""
    if has_own_level and name == "security_level":
        return "spec.securityLevel"
    return f"spec.resources.limits.{name}" if name in ("gpus", "disk") else f"spec.template.{to_camel(name)}"


def is_outdated(container: Container, rendered: Rendered) -> bool:
    """Return True if a container still runs as an older Paddock, policy or default rendered it, or an older agent."""
    return container.config_hash != rendered.config_hash or _older_agent(container, rendered)


def _older_agent(container: Container, rendered: Rendered) -> bool:
    """Return True if the agent's image on this host is another one now. One that is gone makes nothing older."""
    present = volume_name(rendered.config.agent)
    return bool(present and container.agent) and container.agent != present


def _out_of_band_differences(container: Container) -> Iterator[tuple[str, str, str]]:
    """Yield (field, found, wanted) for each setting that an update resets."""
    settings = container.out_of_band
    if settings.swap_bytes:
        yield "swap", "unlimited" if settings.swap_bytes < 0 else format_bytes(settings.swap_bytes), "0"
    if settings.restart_policy != "no":
        yield "restartPolicy", settings.restart_policy, "no"


def lasting(container: Container | None) -> str:
    """Return the out-of-band settings that only a new container resets, as text; "" for none."""
    if container is None:
        return ""
    bindings = (("CPUs", container.out_of_band.cpus), ("memory nodes", container.out_of_band.memory_nodes))
    return " and ".join(f"{what} {which}" for what, which in bindings if which)


def lost_runtime(container: Container | None, facts: HostFacts) -> str:
    """Return the runtime of a container that the engine no longer has, and could not start it with; "" if it has it.

    Engines from 23 on start one that is named by its shim, or is their default, without its being registered.
    """
    if container is None or not facts.runtimes or container.runtime.startswith(_SHIM):
        return ""
    return "" if container.runtime in (*facts.runtimes, facts.default_runtime) else container.runtime


def degraded_condition(container: Container | None, runtime: str = "") -> Condition | None:
    """Return the condition of a container that lost its `runtime`, or is bound to CPUs or memory; None: neither."""
    if runtime:
        message = (
            f"the engine no longer has the runtime {runtime} that it was created with; register it again, or have it "
            "created with another: that happens at its next start (`paddock restart`)"
        )
        return Condition("Degraded", "True", "RuntimeGone", message)
    bindings = lasting(container)
    if not bindings:
        return None
    message = (
        f"somebody bound it to the {bindings} (`docker update`), which the engine cannot reset; "
        "suspend and resume it (`paddock set run-state`) to have it created again"
    )
    return Condition("Degraded", "True", "CpusetByHand", message)
