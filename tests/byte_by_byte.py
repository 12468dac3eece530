"""Answers that stop at each of their bytes: silent until a deadline, cut by their reader, or closed by their sender.

A reader gets one byte a time, so that each of its loops goes round with part of what it waits for.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

Stop = Literal["deadline", "cut", "close"]
STOPS: tuple[Stop, ...] = ("deadline", "cut", "close")
DEADLINE_SECONDS = 0.02
_ENDS_SECONDS = 90.0
T = TypeVar("T")


class OneByteSocket(socket.socket):
    """A socket that receives a byte a time."""

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        return super().recv(min(bufsize, 1), flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        return super().recv_into(buffer, min(nbytes or len(buffer), 1), flags)


def stops(answer: bytes, *, complete: bool = False) -> Iterator[tuple[bytes, Stop]]:
    """Yield each beginning of the answer with each way to stop; `complete`: the whole answer, too."""
    for count in range(len(answer) + complete):
        for stop in STOPS:
            yield answer[:count], stop


def sent(data: bytes) -> tuple[OneByteSocket, socket.socket]:
    """Return a connection on which this came, and its other side."""
    ours, connection = socket.socketpair()
    connection.sendall(data)
    return OneByteSocket(fileno=ours.detach()), connection


def begin(do: Callable[[], T]) -> "Future[T]":
    """Start a reader on a thread of its own, which may spin for ever without keeping the test run."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(do())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def outcome(reading: "Future[T]") -> T | Exception:
    """Return what the reader returned or raised. Raises TimeoutError if it does not end."""
    error = reading.exception(_ENDS_SECONDS)
    if error is None:
        return reading.result()
    assert isinstance(error, Exception)
    return error
