"""The two patch formats, over plain JSON data. Pure; neither changes its arguments.

Merge patch: https://www.rfc-editor.org/rfc/rfc7386. JSON patch: https://www.rfc-editor.org/rfc/rfc6902, carried out by
python-jsonpath. Each operation is checked first: its pointers (RFC 6901, without the library's extensions), and the
bytes that it copies.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

MAX_OPERATIONS = 1000
# Each `copy` can double the object: a few dozen of them would fill any memory.
MAX_COPIED_BYTES = 1 << 20
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
# The document is kept under this name of a mapping. So its root is a field as any other, whatever replaces it.
_ROOT = ""


class BadPatch(ValueError):
    """The patch is malformed, or does not fit its target. The message names the operation and the reason."""


class Mismatch(ValueError):
    """A `test` operation found another value: the object has changed since the sender read it."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied: null removes a field, a list replaces the whole list."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def merge_patch_between(before: Any, after: Any) -> Any:
    """Return the merge patch that turns `before` into `after`; {} when they are equal."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return deepcopy(after)
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            patch[name] = deepcopy(value)
        elif before[name] != value:
            patch[name] = merge_patch_between(before[name], value)
    return patch


def json_patch(target: Any, operations: Any) -> Any:
    """Return the target after all of these operations. Raises BadPatch or Mismatch."""
    if not isinstance(operations, list):
        raise BadPatch("a JSON patch is a list of operations, such as [{op: replace, path: /spec/..., value: ...}]")
    if len(operations) > MAX_OPERATIONS:
        raise BadPatch(f"{len(operations)} operations; at most {MAX_OPERATIONS} are taken at a time")
    document, copied = {_ROOT: deepcopy(target)}, 0
    for number, operation in enumerate(operations, 1):
        if not isinstance(operation, Mapping) or operation.get("op") not in _OPERATIONS:
            raise BadPatch(f"operation {number}: `op` must be one of {', '.join(_OPERATIONS)}")
        try:
            copied += _copied_bytes(document, operation)
            if copied > MAX_COPIED_BYTES:
                raise BadPatch(f"the patch copies more than {MAX_COPIED_BYTES >> 20} MiB")
            _carry_out(document, operation)
        except BadPatch as error:
            raise BadPatch(f"operation {number} ({operation['op']}): {error}") from error
        except Mismatch as error:
            raise Mismatch(f"operation {number} (test): {error}") from error
    return document[_ROOT]


def _carry_out(document: dict[str, Any], operation: Mapping[str, Any]) -> None:
    """Change the document as one operation says, once its pointers are checked."""
    name, path = operation["op"], _pointer(operation, "path")
    if name in ("add", "replace", "test") and "value" not in operation:
        raise BadPatch("`value` is missing")
    if name == "test":
        _test(document, path, operation["value"])
    elif name == "add":
        _check_target(document, path)
        _apply(document, op="add", path=_text(path), value=deepcopy(operation["value"]))
    elif name == "replace":
        _replace(document, path, deepcopy(operation["value"]))
    elif name == "remove":
        _remove(document, path)
    elif name == "copy":
        value = deepcopy(_find(document, _pointer(operation, "from")))
        _check_target(document, path)
        _apply(document, op="add", path=_text(path), value=value)
    else:
        source = _pointer(operation, "from")
        if path[: len(source)] == source and path != source:
            raise BadPatch(f"{_pointer_text(source)} can't be moved into itself")
        value = _remove(document, source)
        _check_target(document, path)
        _apply(document, op="add", path=_text(path), value=value)


def _apply(document: dict[str, Any], **operation: Any) -> None:
    # Imported here: it takes a MiB, and few daemons are ever sent such a patch.
    from jsonpath import JSONPatch
    from jsonpath.exceptions import JSONPatchError, JSONPointerError

    try:
        JSONPatch([operation], unicode_escape=False).apply(document)
    except (JSONPatchError, JSONPointerError) as error:
        raise BadPatch(str(error)) from error


def _replace(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    holder = _find(document, path[:-1])
    if isinstance(holder, dict) and path[-1] not in holder:
        raise BadPatch(f"there is nothing at {_pointer_text(path)}; use `add`")
    _check_target(document, path)
    _find(document, path)
    _apply(document, op="replace", path=_text(path), value=value)


def _remove(document: dict[str, Any], path: Sequence[str]) -> Any:
    """Remove the value at that path and return it."""
    if path == [_ROOT]:
        raise BadPatch("the whole object can't be removed; delete it")
    removed = _find(document, path)
    _apply(document, op="remove", path=_text(path))
    return removed


def _test(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    try:
        current = _find(document, path)
    except BadPatch as error:
        raise Mismatch(str(error)) from error
    if not _equal(current, value):
        raise Mismatch(f"{_pointer_text(path)} does not have the tested value")


def _pointer(operation: Mapping[str, Any], name: str) -> list[str]:
    """Return the steps of a pointer from the mapping that holds the document."""
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise BadPatch(f"`{name}` must be a pointer such as /spec/template/image")
    return [_ROOT, *(step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:])]


def _text(steps: Sequence[str]) -> str:
    return "/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)


def _pointer_text(steps: Sequence[str]) -> str:
    """Return the pointer as its sender writes it."""
    return _text(steps[1:])


def _find(document: Any, steps: Sequence[str]) -> Any:
    """Return the value at these steps. Raises BadPatch with the first step that leads nowhere."""
    node = document
    for at, step in enumerate(steps, 1):
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list):
            if not _INDEX.fullmatch(step) or int(step) >= len(node):
                raise BadPatch(f"there is no item {_pointer_text(steps[:at])}; the list has {len(node)}")
            node = node[int(step)]
        else:
            raise BadPatch(f"there is nothing at {_pointer_text(steps[:at])}")
    return node


def _check_target(document: Any, steps: Sequence[str]) -> None:
    """Raise BadPatch unless a value can be put there: a field of a mapping, an item of a list, or its end."""
    holder, last = _find(document, steps[:-1]), steps[-1]
    if not isinstance(holder, dict | list):
        raise BadPatch(f"{_pointer_text(steps[:-1])} is neither a mapping nor a list")
    if isinstance(holder, list) and last != "-" and not (_INDEX.fullmatch(last) and int(last) <= len(holder)):
        raise BadPatch(f"there is no item {_pointer_text(steps)}; the list has {len(holder)}")


def _copied_bytes(document: Any, operation: Mapping[str, Any]) -> int:
    return len(json.dumps(_find(document, _pointer(operation, "from")))) if operation["op"] == "copy" else 0


def _equal(first: Any, second: Any) -> bool:
    """Compare two values as JSON: 1 equals 1.0, true does not equal 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)
