"""Long results, held as a few byte strings instead of thousands of objects; decoded on access.

Python's allocator gives an arena back to the host once nothing in it is in use, which after thousands of small objects
is never: a list of events beside some others would stay in the daemon's size for good.
"""

import marshal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from sqlalchemy import CursorResult

from controller.kinds.meta import Event, StoredObject
from controller.store import rows

_PIECE = 250  # rows


def events_of(result: CursorResult[Any]) -> Sequence[Event]:
    """Return the events of rows, newest last; rows come newest first."""
    names = tuple(result.keys())
    packed_events = _Events(names, [marshal.dumps([tuple(row) for row in some]) for some in result.partitions(_PIECE)])
    return packed_events if len(packed_events) > _PIECE else list(packed_events)


class DecodedRows(Sequence[StoredObject]):
    """Objects of rows, decoded on each access: of a list whose objects did not change, none has to be."""

    def __init__(self, table_rows: Sequence[Mapping[Any, Any]], *, lean: bool = False) -> None:
        """Lean objects lack the document of the last `apply`, and share equal specs."""
        self._rows, self._lean = table_rows, lean

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[StoredObject]:
        specs: dict[str, Any] | None = {} if self._lean else None
        for begin in range(0, len(self._rows), _PIECE):
            yield from rows.objects_from_rows(self._rows[begin : begin + _PIECE], specs)

    @overload
    def __getitem__(self, at: int) -> StoredObject: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[StoredObject]: ...

    def __getitem__(self, at: int | slice) -> StoredObject | Sequence[StoredObject]:
        if isinstance(at, slice):
            return DecodedRows(self._rows[at], lean=self._lean)
        return next(rows.objects_from_rows([self._rows[at]], {} if self._lean else None))


class _Events(Sequence[Event]):
    """`pieces` have _PIECE rows each, except the last, newest first."""

    def __init__(self, names: Sequence[str], pieces: Sequence[bytes]) -> None:
        self._names, self._pieces = names, pieces
        self._length = sum(len(self._rows(piece)) for piece in pieces[-1:]) + _PIECE * len(pieces[:-1])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Event]:
        return (self._event(row) for piece in reversed(self._pieces) for row in reversed(self._rows(piece)))

    @overload
    def __getitem__(self, at: int) -> Event: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...

    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        if isinstance(at, slice):
            return list(self)[at]
        piece, row = divmod(self._length - 1 - range(self._length)[at], _PIECE)
        return self._event(self._rows(self._pieces[piece])[row])

    def _rows(self, piece: bytes) -> list[tuple[Any, ...]]:
        row_values: list[tuple[Any, ...]] = marshal.loads(piece)  # noqa: S302 - ours, of a moment ago
        return row_values

    def _event(self, row: tuple[Any, ...]) -> Event:
        return rows.event_from_row(dict(zip(self._names, row, strict=True)))
