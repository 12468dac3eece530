"""GPUs that a spec names, out of those that the operator lists for sandboxes. Pure."""

from collections.abc import Iterator

from controller.kinds.sandbox import Resources, Template
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal

_AT = "resources.gpuDeviceIds"


def requested_devices(resources: Resources, template: Template) -> tuple[str, ...]:
    """Return the devices that a sandbox names: its own, else its template's, unless it asks for a number instead."""
    if resources.gpu_device_ids is None and resources.limits.gpus is not None:
        return ()
    return tuple(sorted(set(resources.gpu_device_ids or template.resources.gpu_device_ids or ())))


def refusals(resources: Resources, policy: Policy) -> Iterator[Refusal]:
    """Yield a refusal for devices that no sandbox of this host can have."""
    ids, listed = resources.gpu_device_ids or (), ", ".join(policy.gpu_devices)
    if ids and not listed and not policy.elsewhere:
        message = "no GPU of this host is listed for sandboxes; the operator lists them (setting gpu_devices)"
        yield Refusal(_AT, message)
        return
    for index, device in enumerate(ids):
        if device not in policy.gpu_devices and not policy.elsewhere:
            yield Refusal(f"{_AT}[{index}]", f"`{device}` is not one of the listed GPUs; choose from {listed}")
        elif device in ids[:index]:
            yield Refusal(f"{_AT}[{index}]", f"`{device}` is named twice; keep one")
    if ids and resources.limits.gpus not in (None, len(ids)):
        message = f"{resources.limits.gpus} GPUs are asked for, and {len(ids)} named; leave one of them out"
        yield Refusal("resources.limits.gpus", message)
