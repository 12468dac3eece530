"""Immutable mappings that know what changed from one to the next.

A pass compares mappings of all sandboxes with those of the pass before. These know the keys that were written between
the two, so that one change among 10,000 objects is found without looking at the others.
"""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar, overload

_T = TypeVar("_T")
_D = TypeVar("_D")
_I = TypeVar("_I", contravariant=True)  # noqa: PLC0105
_KEPT = 200  # steps that are remembered: more than one pass ever takes in


class _Line:
    """Steps that led from one mapping to the next; shared by all of them. Their owner alone adds steps."""

    __slots__ = ("made", "next_position", "positions", "steps", "version")

    def __init__(self, keys: Iterable[str]) -> None:
        self.version = 0
        self.made: dict[Any, tuple[Any, Any]] = {}  # by kind: what was derived last, and the mapping it is of
        self.steps: dict[int, frozenset[str]] = {}  # keys written or removed, by the version they led to
        self.positions = {key: position for position, key in enumerate(keys)}
        self.next_position = len(self.positions)

    def add(self, step: frozenset[str]) -> int:
        self.steps[self.version + 1] = step
        self.version += 1
        self.steps.pop(self.version - _KEPT, None)
        return self.version


class Derived(Protocol[_I]):
    """Data made of a whole mapping, immutable, which can follow the mapping's changes."""

    def with_changes(self, changes: Iterable[tuple[str, _I | None, _I | None]]) -> Self:
        """Return the data of the next mapping; each change is a key, and its value before and after (None: none)."""
        ...


class TrackedMap(Mapping[str, _T]):
    """Immutable mapping. `updated` returns the next one; `changed_keys` tells two of them apart at once."""

    __slots__ = ("_line", "_values", "_version")

    def __init__(self, values: Mapping[str, _T] = MappingProxyType({})) -> None:
        self._values: dict[str, _T] = dict(values)
        self._line, self._version = _Line(self._values), 0

    def updated(self, values: Mapping[str, _T], removed: Iterable[str] = ()) -> "TrackedMap[_T]":
        """Return the mapping with these values and without the `removed` keys; itself if that changes nothing.

        Only the identity of values counts.
        """
        mine, out = self._values, set(removed)
        changed = {
            key: content
            for key, content in values.items()
            if key not in out and (key not in mine or mine[key] is not content)
        }
        without = [key for key in out if key in mine]
        if not changed and not without:
            return self
        fresh = mine.copy()
        fresh.update(changed)
        for key in without:
            fresh.pop(key, None)
        line = self._line
        if line.version != self._version:  # another one follows this one already
            return TrackedMap(fresh)
        for key in changed:
            if key not in mine:
                line.positions[key], line.next_position = line.next_position, line.next_position + 1
        for key in without:
            line.positions.pop(key, None)
        next_map: TrackedMap[_T] = TrackedMap.__new__(TrackedMap)
        next_map._values, next_map._line = fresh, line
        next_map._version = line.add(frozenset((*changed, *without)))
        return next_map

    def since(self, before: "TrackedMap[Any]") -> frozenset[str] | None:
        """Return the keys written since `before`; None if that is not known."""
        if before._line is not self._line or before._version > self._version:
            return None
        steps = [self._line.steps.get(version) for version in range(before._version + 1, self._version + 1)]
        known_steps = [step for step in steps if step is not None]
        return frozenset().union(*known_steps) if len(known_steps) == len(steps) else None

    def in_order(self, keys: Iterable[str]) -> list[str]:
        """Return these keys in the order of this line; those that it does not hold any more come first."""
        positions = self._line.positions
        return sorted(keys, key=lambda key: positions.get(key, -1))

    def __getitem__(self, key: str) -> _T:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, Mapping) and self._values == dict(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TrackedMap({self._values!r})"

    @overload
    def get(self, key: str, /) -> _T | None: ...
    @overload
    def get(self, key: str, /, default: _T | _D) -> _T | _D: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        return self._values.get(key, default)

    def keys(self) -> KeysView[str]:
        return self._values.keys()

    def values(self) -> ValuesView[_T]:
        return self._values.values()

    def items(self) -> ItemsView[str, _T]:
        return self._values.items()


def tracked(values: Mapping[str, _T]) -> TrackedMap[_T]:
    """Return the values as a TrackedMap; the same one if they are."""
    return values if isinstance(values, TrackedMap) else TrackedMap(values)


def changed_keys(before: Mapping[str, object], now: Mapping[str, object]) -> set[str]:
    """Return the keys whose values are not the same Python objects any more, of those gone too."""
    if before is now:
        return set()
    if isinstance(before, TrackedMap) and isinstance(now, TrackedMap):
        changed = now.since(before)
        if changed is not None:
            return {key for key in changed if before.get(key) is not now.get(key)}
    return {key for key, content in now.items() if before.get(key) is not content} | (before.keys() - now.keys())


_M = TypeVar("_M", bound=Derived[Any])


def derived(now: Mapping[str, Any], empty: _M) -> _M:
    """Return what a mapping has in this form: from the changes since it was last asked for, else from all of it.

    `empty` is that of an empty mapping; its class is the form. Thread-safe: nothing that was returned ever changes.
    """
    if not isinstance(now, TrackedMap):
        return empty.with_changes((key, None, content) for key, content in now.items())
    line, kind = now._line, type(empty)
    derivation: tuple[TrackedMap[Any], _M] | None = line.made.get(kind)
    if derivation is not None and derivation[0] is now:
        return derivation[1]
    changed = now.since(derivation[0]) if derivation is not None else None
    if derivation is None or changed is None:
        derivative: _M = empty.with_changes((key, None, content) for key, content in now.items())
    else:
        before = derivation[0]
        derivative = derivation[1].with_changes((key, before.get(key), now.get(key)) for key in now.in_order(changed))
    line.made[kind] = now, derivative
    return derivative
