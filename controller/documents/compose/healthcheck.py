"""`healthcheck:` of a Compose service as a readiness probe. The image's own check is never run."""

from controller.documents.compose.element import Element, list_node, mapping_node, scalar
from controller.documents.compose.values import number, seconds
from controller.documents.yaml_tree import Node

_LONGEST_PERIOD = 2  # seconds: others may wait for its first success


def read_healthcheck(element: Element | None) -> Node | None:
    """Return the probe; None for none, or for a problem.

    It ends with its first success, so it is tried more often than `interval` says, and for as long as
    `interval` times `retries`.
    """
    if element is None:
        return None
    element.check_keys("test", "interval", "timeout", "retries", "disable", "start_period", "start_interval")
    off, test = element.child("disable"), element.child("test")
    if off is not None and off.flag():
        return None
    if test is None:
        element.refuse("needs `test:`; the image's own health check is never run")
        return None
    command = _test(test)
    interval, timeout, retries = (element.child(name) for name in ("interval", "timeout", "retries"))
    for name in ("start_period", "start_interval"):
        if (timing := element.child(name)) is not None:
            seconds(timing)  # failures before the first success never count
    wait = (seconds(interval) if interval is not None else None) or 30
    limit = (seconds(timeout) if timeout is not None else None) or 30
    count = (number(retries) if retries is not None else None) or 3
    period = min(wait, _LONGEST_PERIOD)
    if command is None:
        return None
    fields = {
        "exec": mapping_node({"command": command}, test.node),
        "periodSeconds": scalar(period, (interval or element).node),
        "timeoutSeconds": scalar(limit, (timeout or element).node),
        "failureThreshold": scalar(min(count * wait // period, _MOST_FAILURES), (retries or element).node),
    }
    return mapping_node(fields, element.node)


_MOST_FAILURES = 100


def _test(element: Element) -> Node | None:
    """Return the command of a health check; None for none, or for a problem."""
    if element.is_text:
        return _shell(element, element.node.text)
    texts = [argument.text() for argument in element.items()]
    if None in texts or texts == ["NONE"]:
        return None
    if len(texts) == 2 and texts[0] == "CMD-SHELL":
        return _shell(element, texts[1] or "")
    if len(texts) > 1 and texts[0] == "CMD":
        return list_node([scalar(argument, element.node) for argument in texts[1:]], element.node)
    element.refuse('must be ["CMD", PROGRAM, ...], ["CMD-SHELL", LINE] or ["NONE"]')
    return None


def _shell(element: Element, line: str) -> Node:
    return list_node([scalar(argument, element.node) for argument in ("/bin/sh", "-c", line)], element.node)
