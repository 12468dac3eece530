"""Logs of a container, entry by entry as the engine keeps them, with nothing repeated and nothing lost in silence.

The engine keeps a line of more than 16 KiB as several entries of one time, and counts `tail` and writes timestamps by
entries. A log that it follows over a rotation begins again at the start of the new file, and leaves out whole files if
its reader is slow (seen: Engine 20.10). So each entry is read with its time: what was passed on is not repeated, and
reading begins anew where something may have been left out. What is in no file by then is lost, and the log says so.
"""

import calendar
import math
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from controller.engine.docker.errors import Fault
from controller.engine.docker.raw_http import HttpStream
from controller.engine.exec.byte_queue import ByteQueue
from controller.kinds.common.chunk import Chunk
from controller.kinds.common.log_lines import last_lines
from controller.ports import StreamError

_HEADER = struct.Struct(">BxxxL")
_NAMES = {0: "stdout", 1: "stdout", 2: "stderr"}
_TIME_BYTES = 31  # with a space: 2026-01-31T12:00:00.000000000Z
_REORDERED_SECONDS = 1.0  # entries of both streams may be out of order by less
_LATE_SECONDS = 0.25  # behind the program by so much, a whole file may have come and gone
_JUMP_SECONDS = 0.001  # no file is written in less
_AGAIN_SECONDS = 0.2  # before a stream that the engine ended is opened again
_WINDOW_GROWTH = 8
_HELD_LINES = 5_000  # of more last lines none is held in memory: the log is read twice
_COUNTS = 3  # of the lines of a log that is rotated meanwhile
_stream = attrgetter("stream")


class Entry(NamedTuple):
    """An entry of a log: a line, or a part of one. `time` is RFC 3339 in UTC, of a fixed width; "": not asked for."""

    stream: str
    time: str
    text: bytes

    @property
    def ends_line(self) -> bool:
        return self.text.endswith(b"\n")


@dataclass(frozen=True, slots=True)
class LogRequest:
    """A request for a log; `since` and `until` are Unix seconds."""

    follow: bool = False
    tail: int | None = None
    since: float | None = None
    until: float | None = None
    timestamps: bool = False


def entries(read: Callable[[], bytes], *, dated: bool = True) -> Iterator[list[Entry]]:
    """Yield the entries of each piece of the engine's stream. `read` returns available bytes, b"" at the end.

    `dated`: the engine was asked for their times.
    """
    received = b""
    while piece := read():
        received, at, batch = received + piece, 0, list[Entry]()
        while len(received) - at >= _HEADER.size:
            kind, size = _HEADER.unpack_from(received, at)
            if len(received) - at - _HEADER.size < size:
                break
            at += _HEADER.size
            data = received[at : at + size]
            at += size
            if kind not in _NAMES:
                raise StreamError(data.decode(errors="replace"))
            if dated:
                batch.append(Entry(_NAMES[kind], data[: _TIME_BYTES - 1].decode(), data[_TIME_BYTES:]))
            else:
                batch.append(Entry(_NAMES[kind], "", data))
        received = received[at:]
        if batch:
            yield batch


class Text:
    """Entries as text. With timestamps, each line begins with the time of its first entry."""

    def __init__(self, *, timestamps: bool) -> None:
        self._timestamps = timestamps
        self._parts: dict[str, str] = {}  # the time of each stream's line that has not ended
        self._in_line = False

    def chunks(self, batch: list[Entry]) -> list[Chunk]:
        """Return the output of entries, joined where the stream is the same."""
        if batch and not self._timestamps:
            self._in_line = not batch[-1].ends_line
            groups = (
                groupby(batch, _stream) if len(batch) > 1 else ((log_entry.stream, (log_entry,)) for log_entry in batch)
            )
            return [Chunk(stream, b"".join([log_entry.text for log_entry in group])) for stream, group in groups]
        chunks = list[Chunk]()
        for entry in batch:
            chunks.append(Chunk(entry.stream, self._prefix(entry) + entry.text))
            self._in_line = not entry.ends_line
        return chunks

    def _prefix(self, entry: Entry) -> bytes:
        goes_on = self._parts.pop(entry.stream, "") == entry.time != ""
        if not entry.ends_line:
            self._parts[entry.stream] = entry.time
        return b"" if goes_on else (b"\n" if self._in_line else b"") + entry.time.encode() + b" "

    def note(self, text: str) -> Chunk:
        """Return a line of Paddock's own."""
        chunk = Chunk("stdout", (b"\n" if self._in_line else b"") + f"[paddock: {text}]\n".encode())
        self._in_line = False
        return chunk


@dataclass(slots=True)
class _Mark:
    """The last entry of a stream that was passed on; `count`: entries of the same time."""

    time: str
    count: int
    ends_line: bool


@dataclass(slots=True)
class _Position:
    """Place in a log up to which everything was passed on."""

    marks: dict[str, _Mark] = field(default_factory=dict)
    newest: str = ""  # stream of the newest entry
    floor: str = ""  # a stream without a mark begins after this time
    _again: dict[str, int] = field(default_factory=dict)  # entries of a mark's time that were read once more

    def add(self, entry: Entry) -> None:
        mark = self.marks.get(entry.stream)
        count = mark.count + 1 if mark is not None and mark.time == entry.time else 1
        self.marks[entry.stream] = _Mark(entry.time, count, entry.ends_line)
        self.newest = entry.stream

    def since(self) -> str:
        """Return the engine's `since`, "" for all: a little earlier, so that the last entry is read again."""
        if not self.newest:
            return ""
        return f"{seconds_of(self.marks[self.newest].time) - _REORDERED_SECONDS:.6f}"

    def begin(self) -> None:
        """Begin to read again from `since`."""
        self._again = {}

    def passed(self, entry: Entry) -> bool:
        """Return True for an entry that was passed on before. The first that was not ends the reading again."""
        mark = self.marks.get(entry.stream)
        if mark is None:
            return entry.time < self.floor
        if entry.time == mark.time:
            self._again[entry.stream] = self._again.get(entry.stream, 0) + 1
            return self._again[entry.stream] <= mark.count
        return entry.time < mark.time

    def lost_since(self) -> str:
        """Return the time after which entries are lost, as the last one is not in the log any more; "": none are."""
        if not self.newest or self._again.get(self.newest):
            return ""
        return self.marks[self.newest].time

    def repeats(self, entry: Entry) -> bool:
        """Return True if an entry is older than the one before it: the engine began a file anew, or the clock was set.

        The further parts of a long line have its time.
        """
        mark = self.marks.get(entry.stream)
        return mark is not None and (entry.time < mark.time or (entry.time == mark.time and mark.ends_line))

    @property
    def newest_time(self) -> str:
        return self.marks[self.newest].time if self.newest else ""


class Answers:
    """The answers of which a log is read, one after another. Any thread may cut: no further one is read then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wire: HttpStream | None = None
        self._is_cut = False

    def next(self, wire: HttpStream) -> HttpStream:
        """Read this answer from now on."""
        with self._lock:
            former, self._wire = self._wire, wire
            if self._is_cut:
                wire.cut()
        if former is not None:
            former.release()
        return wire

    def read(self) -> bytes:
        """Return available bytes of the present answer."""
        return self._wire.read() if self._wire is not None else b""

    def cut(self) -> None:
        """End both directions, from any thread: a blocked read returns at once. A later answer is cut, too."""
        with self._lock:
            self._is_cut = True
            if self._wire is not None:
                self._wire.cut()

    def release(self) -> None:
        """Cut, and close the descriptor. For the reading thread only."""
        self.cut()
        if self._wire is not None:
            self._wire.release()


class LogReader:
    """Reads one log for a queue. `open_` sends a request.

    `ended_at` returns the time (Unix seconds) up to which the log is that of the run; None: the run goes on.
    """

    def __init__(
        self,
        request: LogRequest,
        open_: Callable[[Mapping[str, str]], HttpStream],
        ended_at: Callable[[], float | None],
        queue: ByteQueue,
    ) -> None:
        self._asked, self._open, self._ended_at, self._queue = request, open_, ended_at, queue
        self._text = Text(timestamps=request.timestamps)
        # A log that is only read through needs no times.
        self._dated = request.timestamps or request.follow or request.tail is not None

    def first(self) -> HttpStream:
        """Send the first request. Raises StreamError."""
        request = self._asked
        if request.tail is not None and request.tail > _HELD_LINES:
            return self._request(follow=False)
        if request.tail is not None and request.until is None:
            return self._window(request.tail + 1)
        return self._request(follow=request.follow)

    def chunks(self, wire: HttpStream) -> Iterator[Chunk]:
        """Yield the log; `wire` is the answer to the first request. Raises StreamError, and FOREIGN."""
        request, position = self._asked, _Position()
        if request.tail is not None and (request.until is None or request.tail > _HELD_LINES):
            tail = self._tail if request.tail <= _HELD_LINES else self._long_tail
            yield from tail(wire, request.tail, position)
            if request.follow:
                yield from self._follow(None, position)
        elif request.follow:
            yield from self._follow(wire, position)
        else:
            batches = entries(wire.read, dated=self._dated)
            all_chunks = (chunk for batch in batches for chunk in self._text.chunks(batch))
            yield from all_chunks if request.tail is None else last_lines(all_chunks, request.tail)

    def _request(
        self, *, follow: bool, tail: int | None = None, since: str = "", until: float | None = None
    ) -> HttpStream:
        request = self._asked
        until = request.until if until is None else until
        params = {
            "follow": str(int(follow)),
            "tail": "all" if tail is None else str(tail),
            "timestamps": str(int(self._dated)),
        }
        if since or request.since is not None:
            params["since"] = since or f"{request.since:.9f}"
        if until is not None and until < math.inf:
            params["until"] = f"{until:.9f}"
        return self._open(params)

    def _window(self, size: int) -> HttpStream:
        return self._request(follow=False, tail=size)

    def _tail(self, wire: HttpStream, count: int, position: _Position) -> Iterator[Chunk]:
        """Yield the last lines, out of as many last entries as that takes."""
        size = count + 1
        while True:
            window = [entry for batch in entries(wire.read) for entry in batch]
            is_complete = len(window) < size
            certain = window if is_complete else _whole_lines(window)
            lines = sum(entry.ends_line for entry in certain) + bool(certain and not certain[-1].ends_line)
            if is_complete or lines >= count:
                break
            size *= _WINDOW_GROWTH
            wire = self._window(size)
        for entry in window:
            position.add(entry)
        position.floor = window[0].time if window else ""
        yield from last_lines(iter(self._text.chunks(certain)), count)

    def _long_tail(self, wire: HttpStream, count: int, position: _Position) -> Iterator[Chunk]:
        """Yield the last lines: those of the log are counted, then it is read again from the first of them."""
        batches: Iterator[list[Entry]] = iter(())
        batch, lines = list[Entry](), 0
        for _ in range(_COUNTS):
            first, lines = _counted(entries(wire.read))
            batches = entries(self._request(follow=False).read)
            batch = next(batches, [])
            if not batch or batch[0].time == first:
                break
            wire = self._request(follow=False)  # it was rotated
        left_out = max(0, lines - count)
        position.floor = batch[0].time if batch else ""
        while batch:
            entries_to_show = list[Entry]()
            for entry in batch:
                position.add(entry)
                if left_out:
                    left_out -= entry.ends_line
                else:
                    entries_to_show.append(entry)
            yield from self._text.chunks(entries_to_show)
            batch = next(batches, [])

    def _follow(self, wire: HttpStream | None, position: _Position) -> Iterator[Chunk]:
        """Yield the entries after a position, and each new one until the container's run ends."""
        ended_at: float | None = None
        while not self._queue.has_ended:
            opened = _moment(time.time() - _REORDERED_SECONDS)
            wire = wire or self._reopened(position, ended_at)
            if wire is None:
                return
            again = yield from self._session(wire, position, opened)
            wire = None
            if again:
                continue
            if ended_at is not None:
                return
            ended_at = self._ended_at()
            if ended_at is None:  # it was the engine that ended the answer
                time.sleep(_AGAIN_SECONDS)

    def _reopened(self, position: _Position, ended_at: float | None) -> HttpStream | None:
        """Read on from a position. The last time, after the end, shows what the engine left out then."""
        try:
            return self._request(follow=ended_at is None, since=position.since(), until=ended_at)
        except StreamError as error:
            if is_gone(error) or (ended_at is not None and _is_conflict(error)):  # it is being removed
                return None
            raise

    def _session(self, wire: HttpStream, position: _Position, opened: str) -> Generator[Chunk, None, bool]:
        """Yield the new entries of one answer; return True if it must be read anew from the position."""
        position.begin()
        catching_up, late = True, False
        for batch in entries(wire.read):
            fresh, lost, again = list[Entry](), "", False
            # The engine may have fallen behind since the batch before: then the gap is before this one.
            late = late or (not catching_up and _is_late(batch[0].time))
            for entry in batch:
                if catching_up:
                    if position.passed(entry):
                        continue
                    catching_up, lost = False, position.lost_since()
                    if lost:
                        reason = "the log was rotated before it was read"
                        yield self._text.note(f"output from {lost} to {entry.time} is lost: {reason}")
                elif again := self._may_lack(entry, position, opened, late=late):
                    break
                position.add(entry)
                fresh.append(entry)
            late = late or self._queue.full or _is_late(position.newest_time)
            yield from self._text.chunks(fresh)
            late = late or self._queue.full
            if again:
                return True
        return False

    def _may_lack(self, entry: Entry, position: _Position, opened: str, *, late: bool) -> bool:
        """Return True if entries before this one may be missing, or if it was passed on."""
        if entry.time <= opened:  # complete: it was written before the answer began
            return False
        if position.repeats(entry):
            return seconds_of(position.newest_time) <= time.time()  # otherwise the clock was set back
        if not late:
            return False
        return seconds_of(entry.time) - seconds_of(position.newest_time) > _JUMP_SECONDS


def _counted(batches: Iterator[list[Entry]]) -> tuple[str, int]:
    """Return the time of the first entry, "" if there is none, and the number of lines."""
    first, lines, is_whole = "", 0, True
    for batch in batches:
        first = first or batch[0].time
        lines += sum(entry.ends_line for entry in batch)
        is_whole = batch[-1].ends_line
    return first, lines + (not is_whole)


def is_gone(error: StreamError) -> bool:
    """Return True if the container of a request was removed."""
    return isinstance(error.__cause__, Fault) and error.__cause__.is_gone


def _is_conflict(error: StreamError) -> bool:
    return isinstance(error.__cause__, Fault) and error.__cause__.status == 409


def _whole_lines(window: list[Entry]) -> list[Entry]:
    """Return the entries after the first of which it is certain that they begin a line."""
    first = window[0].time
    for index in range(1, len(window)):
        if window[index - 1].ends_line and window[index].time > first:
            return window[index:]
    return []


def _is_late(moment: str) -> bool:
    """Return True if an entry of that time is read late; "": none was read."""
    return bool(moment) and time.time() - seconds_of(moment) > _LATE_SECONDS


def seconds_of(moment: str) -> float:
    """Return the Unix seconds of an entry's time; 0 for an entry without one."""
    if not moment:
        return 0.0
    return calendar.timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S")) + float(moment[19:-1])


def _moment(seconds: float) -> str:
    """Return Unix seconds in the form of an entry's time."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
