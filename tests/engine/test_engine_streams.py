"""Relay thread of a stream: a reader that disconnects is reported to the command, even if the connection breaks."""

import http.client
import socket
import threading
from typing import cast

import pytest

from controller.engine.docker.raw_http import HttpStream
from controller.engine.exec.byte_queue import ByteQueue
from controller.engine.exec.streams import _relay, frames
from controller.kinds.common.chunk import Chunk
from controller.ports import StreamError
from tests.byte_by_byte import DEADLINE_SECONDS, begin, outcome, sent, stops


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
    wire, queue, event = Breaking(), ByteQueue(), threading.Event()
    _relay(cast("HttpStream", wire), queue, max_wait_seconds=None, last=tuple, on_abandon=event.set)
    return wire, queue, event


def test_a_disconnect_is_reported_despite_a_broken_connection() -> None:
    wire, queue, event = pumped()
    queue.clear()
    wire.cut()
    assert wire.released.wait(30)
    assert event.is_set()


def test_a_connected_reader_gets_the_error() -> None:
    wire, queue, event = pumped()
    wire.cut()
    with pytest.raises(StreamError, match="the stream broke: reset by peer"):
        queue.get()
    assert wire.released.wait(30)
    assert not event.is_set()


HEAD = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"
FRAMED = b"\1\0\0\0\0\0\0\2hi" + b"\2\0\0\0\0\0\0\0" + b"\2\0\0\0\0\0\0\1!"


def test_output_of_the_engine_ends_wherever_it_stops() -> None:
    for data, stop in stops(FRAMED, complete=True):
        ours, connection = sent(HEAD + data)
        response = http.client.HTTPResponse(ours)
        response.begin()
        wire = HttpStream(ours, response)
        with connection:
            if stop == "deadline":
                wire.wait_at_most(DEADLINE_SECONDS)
            reading = begin(lambda wire=wire: list(frames(wire.read)))  # type: ignore[misc]
            if stop == "cut":
                wire.cut()
            elif stop == "close":
                connection.shutdown(socket.SHUT_WR)
            result = outcome(reading)
            wire.release()
            if stop == "deadline":
                assert isinstance(result, TimeoutError), (data, result)
            else:
                assert isinstance(result, list), (data, stop, result)
                if stop == "close" and data == FRAMED:
                    text = b"".join(chunk.data for chunk in result if chunk.stream == "stdout")
                    assert (text, result[-1]) == (b"hi", Chunk("stderr", b"!"))
