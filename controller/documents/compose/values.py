"""Values as Compose writes them: bytes (`512m` is 512 MiB), durations (`1m30s`), commands."""

import math
import re
import shlex

from controller.documents.compose.element import Element
from controller.kinds.common.quantity import format_bytes

MAX_COMMAND = 32 << 10  # splitting takes time that grows with the square of a word's length
_BYTES = re.compile(r"(?P<number>\d{1,15}(\.\d{1,6})?)\s*(?P<unit>[bkmgt]?)b?\Z", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BINARY = re.compile(r"\d{1,15}(\.\d{1,6})?[KMGT]i\Z")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(us|ms|s|m|h)")


def quantity(element: Element) -> str | None:
    """Return an amount of bytes as a spec writes it; a problem for anything else."""
    text = element.text()
    if text is None:
        return None
    if _BINARY.match(text):
        return text
    match = _BYTES.match(text)
    if match is None:
        element.refuse(f"`{text}` is not an amount of bytes; write 512m, 2g or 512Mi")
        return None
    return format_bytes(int(float(match["number"]) * _UNITS[match["unit"].lower()]))


def seconds(element: Element) -> int | None:
    """Return a duration in whole seconds, rounded up; a problem for anything else."""
    text = element.text()
    if text is None:
        return None
    amounts = _DURATION.findall(text)
    if not amounts or "".join(number + unit for number, unit in amounts) != text:
        element.refuse(f"`{text}` is not a duration; write 30s, 500ms or 1m30s")
        return None
    return math.ceil(sum(float(number) * _SECONDS[unit] for number, unit in amounts))


def number(element: Element) -> int | None:
    """Return a whole number; a problem for anything else."""
    text = element.text()
    if text is None:
        return None
    if not re.fullmatch(r"-?\d{1,12}", text):
        element.refuse(f"`{text}` is not a whole number")
        return None
    return int(text)


def arguments(element: Element) -> list[str] | None:
    """Return a command: a list as it is, a text split like a shell's, without running one. None: a problem."""
    if not element.is_text:
        elements = element.items()
        texts = [word.text() for word in elements]
        return [text for text in texts if text is not None] if None not in texts else None
    if len(element.node.value) > MAX_COMMAND:
        remedy = 'write it as a list: ["program", "argument"], or put it into a script'
        element.refuse(f"is longer than {MAX_COMMAND >> 10} KiB, too long to be split into arguments; {remedy}")
        return None
    try:
        return shlex.split(element.node.value)
    except ValueError as error:
        element.refuse(f'can\'t be split into arguments ({error}); write it as a list: ["program", "argument"]')
        return None
