"""GPUs as Compose asks for them: `gpus:` of a service, and `deploy.resources.reservations.devices`."""

from controller.documents.compose.element import Element, list_node, scalar
from controller.documents.compose.values import number
from controller.documents.yaml_tree import Node

_COUNT = "GPUs are reserved by number; write `count: 1`, or particular ones in `device_ids:`"
_Gpus = tuple[Node | None, Node | None]


def read_gpus(element: Element, *, needs_capability: bool = False) -> _Gpus:
    """Return the number of GPUs, or the list of particular ones; problems for requests that no sandbox can have."""
    if element.node.items is None:
        element.refuse(_COUNT)
        return None, None
    requests = element.items()
    if len(requests) > 1:
        requests[1].refuse("one request is understood; put all devices into one")
    return _request(requests[0], needs_capability) if requests else (None, None)


def _request(element: Element, needs_capability: bool) -> _Gpus:
    element.check_keys(
        "capabilities", "count", "device_ids", "driver", options="drivers get no options here; remove it"
    )
    capabilities, driver = element.child("capabilities"), element.child("driver")
    capability_names = {capability.text() for capability in capabilities.texts()} if capabilities is not None else set()
    if (needs_capability or capability_names) and "gpu" not in capability_names:
        (capabilities or element).refuse("only GPUs are devices of a sandbox; write `capabilities: [gpu]`")
    if driver is not None and driver.text() != "nvidia":
        driver.refuse("the engine chooses the driver; remove it, or write nvidia")
    count, ids = element.child("count"), element.child("device_ids")
    if (count is None) == (ids is None):
        (count or element).refuse(_COUNT if count is None else "`device_ids:` is set, too; keep one")
        return None, None
    if ids is not None:
        return None, list_node([scalar(device_id.text(), device_id.node) for device_id in ids.texts()], ids.node)
    assert count is not None
    if count.node.value == "all":
        count.refuse(_COUNT)
        return None, None
    gpu_count = number(count)
    return (scalar(gpu_count, count.node) if gpu_count is not None else None), None
