"""Server-side three-way merge of the last applied, the new and the live configuration. Pure.

Laws (tests/service/test_merge.py): applying the same again changes nothing. Only fields that this file once applied are
removed, and fields that others set stay. A field given as null is removed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

KEYS = ("name", "mountPath", "containerPort")
_ABSENT: Any = object()


def merge(last: Mapping[str, Any], new: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """Return the live mapping with `new` merged in, without the fields of `last` that `new` no longer has."""
    merged = {key: value for key, value in live.items() if key in new or key not in last}
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _value(last.get(key), value, live.get(key))
    return merged


def without_older_defaults(live: Mapping[str, Any], older: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the live mapping without the defaults of an older version that nobody has changed since."""
    merged = dict(live)
    for key, value in older.items():
        if isinstance(value, Mapping) and isinstance(live.get(key), Mapping):
            merged[key] = without_older_defaults(live[key], value)
        elif key in live and live[key] == value:
            del merged[key]
    return merged


def _value(last: Any, new: Any, live: Any) -> Any:
    if isinstance(new, Mapping):
        return merge(_mapping(last), new, _mapping(live))
    if isinstance(new, list):
        return _list(_items(last), new, _items(live))
    return new


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else []


def _list(last: Sequence[Any], new: Sequence[Any], live: Sequence[Any]) -> list[Any]:
    """Merge lists whose items have a key item by item; replace every other list whole."""
    key = _key(last, new, live)
    if not key:
        return [_clean(element) for element in new]
    before, live_by_key = _by(key, last), _by(key, live)
    order = _order(
        list(_by(key, new)), [key_value for key_value in live_by_key if key_value not in before], list(live_by_key)
    )
    new_by_key = _by(key, new)
    return [
        _item(before.get(key_value), new_by_key.get(key_value, _ABSENT), live_by_key.get(key_value))
        for key_value in order
    ]


def _item(last: Any, new: Any, live: Any) -> Any:
    return live if new is _ABSENT else _value(last, new, live)


def _clean(value: Any) -> Any:
    """Return a value without the nulls inside it."""
    if isinstance(value, Mapping):
        return {key: _clean(element) for key, element in value.items() if element is not None}
    return [_clean(element) for element in value] if isinstance(value, list) else value


def _key(*lists: Sequence[Any]) -> str:
    """Return the key that every item of all lists has, unique in each list; empty if there is none."""
    for key in KEYS:
        values = [[element.get(key) if isinstance(element, Mapping) else None for element in items] for items in lists]
        if all(None not in key_values and len(set(map(repr, key_values))) == len(key_values) for key_values in values):
            return key
    return ""


def _by(key: str, items: Sequence[Any]) -> dict[Any, Any]:
    return {element[key]: element for element in items}


def _order(new_keys: list[Any], other_keys: list[Any], live: list[Any]) -> list[Any]:
    """Return the given order, with each other item after the one that precedes it in the live list."""
    result = list(new_keys)
    for live_key in other_keys:
        if live_key in new_keys:
            continue
        ahead = [before for before in live[: live.index(live_key)] if before in result]
        result.insert(result.index(ahead[-1]) + 1 if ahead else 0, live_key)
    return result
