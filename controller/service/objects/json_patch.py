"""The two patch formats, over plain JSON data. Pure; neither changes what it is given.

https://www.rfc-editor.org/rfc/rfc7386 (merge) and https://www.rfc-editor.org/rfc/rfc6902 (operations, with the
pointers of RFC 6901).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

MAX_OPERATIONS = 1000
# Each `copy` can double the object: a few dozen of them would fill any memory.
MAX_COPIED_BYTES = 1 << 20
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class BadPatch(ValueError):
    """The patch itself is wrong, or does not fit what it is applied to; says which operation and why."""


class Mismatch(ValueError):
    """A `test` operation found another value: the object is not as the sender took it to be."""


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with a merge patch laid over it: null takes a field away, a list replaces the whole list."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    made = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merge_patch(made.get(name), value)
    return made


def merge_patch_between(before: Any, after: Any) -> Any:
    """The merge patch that makes `after` of `before`; {} when they are the same."""
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
    """The target after these operations, all of them. Raises BadPatch or Mismatch."""
    if not isinstance(operations, list):
        raise BadPatch("a JSON patch is a list of operations, such as [{op: replace, path: /spec/..., value: ...}]")
    if len(operations) > MAX_OPERATIONS:
        raise BadPatch(f"{len(operations)} operations; at most {MAX_OPERATIONS} are taken at a time")
    made, copied = deepcopy(target), 0
    for at, each in enumerate(operations):
        where = f"operation {at + 1}"
        if not isinstance(each, Mapping) or each.get("op") not in _OPERATIONS:
            raise BadPatch(f"{where}: `op` must be one of {', '.join(_OPERATIONS)}")
        try:
            copied += _copied_bytes(made, each)
            if copied > MAX_COPIED_BYTES:
                raise BadPatch(f"the patch copies more than {MAX_COPIED_BYTES >> 20} MiB")
            made = _OPERATIONS[each["op"]](made, each)
        except BadPatch as error:
            raise BadPatch(f"{where} ({each['op']}): {error}") from error
        except Mismatch as error:
            raise Mismatch(f"{where} (test): {error}") from error
    return made


def _pointer(operation: Mapping[str, Any], name: str = "path") -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise BadPatch(f"`{name}` must be a pointer such as /spec/template/image")
    return [each.replace("~1", "/").replace("~0", "~") for each in text.split("/")[1:]]


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise BadPatch("`value` is missing")
    return deepcopy(operation["value"])


def _shown(steps: Sequence[str]) -> str:
    return "/" + "/".join(each.replace("~", "~0").replace("/", "~1") for each in steps)


def _index(holder: list[Any], step: str, steps: Sequence[str], *, end: int) -> int:
    if not _INDEX.fullmatch(step) or int(step) >= end:
        raise BadPatch(f"there is no item {_shown(steps)}; the list has {len(holder)}")
    return int(step)


def _get(target: Any, steps: Sequence[str]) -> Any:
    for at, step in enumerate(steps):
        if isinstance(target, dict) and step in target:
            target = target[step]
        elif isinstance(target, list):
            target = target[_index(target, step, steps[: at + 1], end=len(target))]
        else:
            raise BadPatch(f"there is nothing at {_shown(steps[: at + 1])}")
    return target


def _put(target: Any, steps: Sequence[str], value: Any, *, new: bool) -> Any:
    """Set a field or insert an item (`new`), or replace one that is there."""
    if not steps:
        return value
    holder, last = _get(target, steps[:-1]), steps[-1]
    if isinstance(holder, list):
        if new and last == "-":
            holder.append(value)
        elif new:
            holder.insert(_index(holder, last, steps, end=len(holder) + 1), value)
        else:
            holder[_index(holder, last, steps, end=len(holder))] = value
    elif isinstance(holder, dict):
        if not new and last not in holder:
            raise BadPatch(f"there is nothing at {_shown(steps)}; use `add`")
        holder[last] = value
    else:
        raise BadPatch(f"{_shown(steps[:-1])} is no mapping and no list")
    return target


def _take(target: Any, steps: Sequence[str]) -> Any:
    """Remove what is there, and give it."""
    if not steps:
        raise BadPatch("the whole object can't be taken away; delete it")
    found = _get(target, steps)
    holder = _get(target, steps[:-1])
    holder.pop(int(steps[-1]) if isinstance(holder, list) else steps[-1])
    return found


def _add(target: Any, operation: Mapping[str, Any]) -> Any:
    return _put(target, _pointer(operation), _value(operation), new=True)


def _remove(target: Any, operation: Mapping[str, Any]) -> Any:
    _take(target, _pointer(operation))
    return target


def _replace(target: Any, operation: Mapping[str, Any]) -> Any:
    return _put(target, _pointer(operation), _value(operation), new=False)


def _move(target: Any, operation: Mapping[str, Any]) -> Any:
    source, goal = _pointer(operation, "from"), _pointer(operation)
    if goal[: len(source)] == source and goal != source:
        raise BadPatch(f"{_shown(source)} can't be moved into itself")
    return _put(target, goal, _take(target, source), new=True)


def _copy(target: Any, operation: Mapping[str, Any]) -> Any:
    return _put(target, _pointer(operation), deepcopy(_get(target, _pointer(operation, "from"))), new=True)


def _copied_bytes(target: Any, operation: Mapping[str, Any]) -> int:
    return len(json.dumps(_get(target, _pointer(operation, "from")))) if operation["op"] == "copy" else 0


def _test(target: Any, operation: Mapping[str, Any]) -> Any:
    steps, wanted = _pointer(operation), _value(operation)
    try:
        found = _get(target, steps)
    except BadPatch as error:
        raise Mismatch(str(error)) from error
    if not _equal(found, wanted):
        raise Mismatch(f"{_shown(steps)} is not as tested")
    return target


def _equal(one: Any, other: Any) -> bool:
    """JSON's equality: 1 and 1.0 are the same, true and 1 are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_OPERATIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
