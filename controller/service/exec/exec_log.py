"""Head and tail of a command's output, in files that survive a restart of the daemon."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_NAME = "log."
_MARK = b"\n[... %d bytes left out ...]\n"


class ExecLog:
    """Files named by the offset of their first byte: the head, and at most two for the tail.

    Head and tail get half of the limit each. Nothing is synced: a power cut ends the command, too. A full disk ends
    the log, not the command; `trouble` gives the reason.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._head_bytes, self._tail_bytes = limit_bytes - limit_bytes // 2, limit_bytes // 2
        self._lock = threading.Lock()
        self._open: BinaryIO | None = None
        self._free = 0  # bytes free in the open file
        self._offsets: list[int] = []
        self._total = 0
        self.trouble = ""

    def add(self, data: bytes) -> None:
        """Append data; drop the oldest bytes of the tail. Never raises."""
        with self._lock:
            if self.trouble:
                return
            try:
                self._add(data)
            except OSError as error:
                self.trouble = f"the rest of its output could not be kept: {(error.strerror or str(error)).lower()}"

    def close(self) -> None:
        """Close the open file."""
        with self._lock:
            self._shut()

    @property
    def omitted_bytes(self) -> int:
        """Return the number of bytes that were not kept."""
        with self._lock:
            return self._read()[1]

    def content(self) -> bytes:
        """Return head and tail, with a line between them that counts the omitted bytes."""
        with self._lock:
            head_and_tail, omitted = self._read()
        return (_MARK % omitted if omitted else b"").join(head_and_tail)

    def _add(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining:
            if not self._free or self._open is None:
                self._open_next_file()
            assert self._open is not None
            count = self._open.write(remaining[: self._free])
            self._free -= count
            self._total += count
            remaining = remaining[count:]

    def _open_next_file(self) -> None:
        self._shut()
        if len(self._offsets) > 2:
            self._path(self._offsets.pop(1)).unlink(missing_ok=True)
        self._free = self._tail_bytes if self._offsets else self._head_bytes
        self._open = self._path(self._total).open("wb", buffering=0)
        self._offsets.append(self._total)

    def _shut(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _read(self) -> tuple[Sequence[bytes], int]:
        """Return head and tail, and the number of bytes missing between them."""
        pieces: dict[int, bytes] = {}
        for path in self._folder.glob(f"{_NAME}*"):
            with suppress(OSError, ValueError):
                pieces[int(path.name.removeprefix(_NAME))] = path.read_bytes()
        head = pieces.pop(0, b"")
        if not pieces:
            return (head, b""), 0
        last = max(pieces)
        end = last + len(pieces[last])
        tail = b"".join(pieces[offset] for offset in sorted(pieces))[-self._tail_bytes :]
        return (head, tail), end - len(head) - len(tail)

    def _path(self, offset: int) -> Path:
        return self._folder / f"{_NAME}{offset}"
