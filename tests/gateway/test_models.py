"""A stage's connection to the gateway: it ends at its time and on request, wherever the answer stops."""

import contextlib
import json
import socket
import time

import pytest

from controller.gateway import exchange
from controller.gateway.config import Target
from controller.gateway.models import GatewayModels
from controller.gateway.usage import UsageReader
from controller.ports import ModelError, ModelMessage, ModelRequest
from tests.byte_by_byte import DEADLINE_SECONDS, OneByteSocket, begin, outcome, sent, stops

ASKED = ModelRequest("default", "p", "m", (ModelMessage("user", "hi"),), "be brief", (), 100, run="r")
BODY = json.dumps({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


class OneConnection:
    """The supervisor of a gateway to which there is one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def connect(self, *_: object) -> tuple[socket.socket, Target]:
        return self._sock, Target("id", "default", "p", "OpenAI", ("m",), "http://p")


def reaching(sock: OneByteSocket) -> GatewayModels:
    gateway_models = GatewayModels()
    gateway_models.supervisor = OneConnection(sock)
    return gateway_models


def test_a_request_ends_wherever_its_answer_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_LOOK_SECONDS", DEADLINE_SECONDS)
    for data, stop in stops(ANSWER):
        ours, connection = sent(data)
        with ours, connection:
            seconds = DEADLINE_SECONDS if stop == "deadline" else 60.0
            if stop == "close":
                connection.shutdown(socket.SHUT_WR)
            asking = begin(
                lambda ours=ours, seconds=seconds, stop=stop: reaching(ours).complete(  # type: ignore[misc]
                    ASKED, seconds=seconds, stopped=lambda: stop == "cut"
                )
            )
            error = outcome(asking)
            assert isinstance(error, ModelError), (data, stop, error)
            reasons = {"deadline": "not answer in time", "cut": "stopped on request", "close": "broke off"}
            assert reasons[stop] in str(error), (data, stop, error)


@pytest.mark.parametrize("stop", ["deadline", "cut"])
def test_a_dripping_answer_ends_at_its_time_and_on_request(stop: str) -> None:
    ours, connection = sent(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    with ours, connection:
        until = time.monotonic() + 0.2

        def drip() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection.sendall(b" ")

        begin(drip)
        stopped = (lambda: time.monotonic() > until) if stop == "cut" else (lambda: False)
        seconds = 0.2 if stop == "deadline" else 60.0
        error = outcome(begin(lambda: reaching(ours).complete(ASKED, seconds=seconds, stopped=stopped)))
        assert isinstance(error, ModelError)
        assert ("in time" if stop == "deadline" else "on request") in str(error)


def test_a_long_line_in_small_parts_is_read_once() -> None:
    reader = UsageReader("text/event-stream", 0)

    def feed() -> None:
        for _ in range(1 << 19):
            reader.feed(b"xx")
        reader.feed(b'x\ndata: {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}\n')

    assert outcome(begin(feed)) is None
    assert reader.tokens() == (3, 4)
