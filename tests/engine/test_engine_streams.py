"""Relay thread of a stream: a reader that disconnects is reported to the command, even if the connection breaks."""

import threading
from typing import cast

import pytest

from controller.engine.docker.raw_http import HttpStream
from controller.engine.exec.byte_queue import ByteQueue
from controller.engine.exec.streams import _relay
from controller.ports import StreamError


class Breaking:
    """A connection that says nothing, and breaks when it is cut, as one does that the other side had written to."""

    def __init__(self) -> None:
        self.gone, self.released = threading.Event(), threading.Event()

    def read(self) -> bytes:
        assert self.gone.wait(30)
        raise ConnectionResetError("reset by peer")

    def cut(self) -> None:
        self.gone.set()

    def release(self) -> None:
        self.released.set()


def pumped() -> tuple[Breaking, ByteQueue, threading.Event]:
    wire, queue, left = Breaking(), ByteQueue(), threading.Event()
    _relay(cast(HttpStream, wire), queue, max_wait_seconds=None, last=tuple, left=left.set)
    return wire, queue, left


def test_a_disconnect_is_reported_despite_a_broken_connection() -> None:
    wire, queue, left = pumped()
    queue.clear()
    wire.cut()
    assert wire.released.wait(30)
    assert left.is_set()


def test_a_connected_reader_gets_the_error() -> None:
    wire, queue, left = pumped()
    wire.cut()
    with pytest.raises(StreamError, match="the stream broke: reset by peer"):
        queue.get()
    assert wire.released.wait(30)
    assert not left.is_set()
