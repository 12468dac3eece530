"""GPUs as Compose asks for them: `gpus:` of a service, and `deploy.resources.reservations.devices`."""

from controller.documents.compose.part import Part, listed, scalar
from controller.documents.compose.values import number
from controller.documents.yaml_tree import Node

_COUNT = "GPUs are reserved by number; write `count: 1`, or particular ones in `device_ids:`"
_Gpus = tuple[Node | None, Node | None]


def read_gpus(part: Part, *, needs_capability: bool = False) -> _Gpus:
    """Return the number of GPUs, or the list of particular ones; problems for requests that no sandbox can have."""
    if part.node.items is None:
        part.refuse(_COUNT)
        return None, None
    requests = part.items()
    if len(requests) > 1:
        requests[1].refuse("one request is understood; put all devices into one")
    return _request(requests[0], needs_capability) if requests else (None, None)


def _request(part: Part, needs_capability: bool) -> _Gpus:
    part.known("capabilities", "count", "device_ids", "driver", options="drivers get no options here; remove it")
    capabilities, driver = part.child("capabilities"), part.child("driver")
    asked = {each.text() for each in capabilities.texts()} if capabilities is not None else set()
    if (needs_capability or asked) and "gpu" not in asked:
        (capabilities or part).refuse("only GPUs are devices of a sandbox; write `capabilities: [gpu]`")
    if driver is not None and driver.text() != "nvidia":
        driver.refuse("the engine chooses the driver; remove it, or write nvidia")
    count, ids = part.child("count"), part.child("device_ids")
    if (count is None) == (ids is None):
        (count or part).refuse(_COUNT if count is None else "`device_ids:` is set, too; keep one")
        return None, None
    if ids is not None:
        return None, listed([scalar(each.text(), each.node) for each in ids.texts()], ids.node)
    assert count is not None
    if count.node.value == "all":
        count.refuse(_COUNT)
        return None, None
    found = number(count)
    return (scalar(found, count.node) if found is not None else None), None
