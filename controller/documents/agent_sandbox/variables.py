"""Variables of a container, and their uses in its command line: `$(NAME)`, which Kubernetes replaces. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from controller.documents.agent_sandbox.report import Json, Subject

_HIDDEN_VALUES = (
    "values are plain; write an operator's secret as a file (`secrets: [{name, mountPath}]`), or have the proxy add it"
    " to requests (`credentials: [{host, secretRef}]`)"
)
_USE = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[^()]+)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return the text with each `$(NAME)` replaced by its value, if it has one, and `$$` by a dollar."""
    return _USE.sub(lambda use: "$" if use["dollar"] else values.get(use["name"], use[0]), text)


def variables_of(subject: Subject, container: Json, path: str, of_pod: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a container's variables by their names; the last one of a name counts.

    `of_pod` are the values of fields of the pod that are known, by their paths.
    """
    values: dict[str, str] = {}
    for number, variable in enumerate(subject.tables(container, "env", path)):
        at = f"{path}.env[{number}]"
        subject.check(variable, at, ("name", "value", "valueFrom"))
        source = subject.table(variable, "valueFrom", at)
        field_path = str(subject.table(source, "fieldRef", f"{at}.valueFrom").get("fieldPath"))
        if source and field_path in of_pod:
            values[str(variable.get("name"))] = of_pod[field_path]
            subject.note(f"{at}.valueFrom", f"written as its value here: `{of_pod[field_path]}`")
        elif source:
            kind = next(iter(source))
            remedy = _HIDDEN_VALUES if kind == "secretKeyRef" else "values are plain; write its value"
            subject.fault(f"{at}.valueFrom", f"{kind}: {remedy}")
        else:
            values[str(variable.get("name", ""))] = expand(_text(variable.get("value")), values)
    return values


def _text(value: Any) -> str:
    """Return a value as the text of a variable."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
