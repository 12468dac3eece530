"""The client of agents: an answer that stops anywhere ends for its reader, and the whole one is read."""

import contextlib
import socket
from functools import partial

import pytest

from controller.engine.exec import agent
from controller.engine.exec.agent import AgentConnections
from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.agent_call import AgentRequest
from controller.ports import AgentAnswer, AgentError, PortForwarder, StreamError
from tests.byte_by_byte import DEADLINE_SECONDS, begin, outcome, sent, stops

SANDBOX = Container("c" * 64, "box", "uid", State.RUNNING, object_name="box", pid=7)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2;x=1\r\ncd\r\n0\r\n\r\n"
FRAMES = b"\1\0\0\0\0\0\0\2hi", b"\2\0\0\0\0\0\0\1!", b"\3\0\0\0\0\0\0\0017"
OUTPUT = CHUNKED.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(x), x) for x in FRAMES)


class OnePort(PortForwarder):
    """One connection; what came on it is known."""

    def __init__(self, data: bytes) -> None:
        self.ours, self.theirs = sent(data)
        self.connected = False

    def connect(self, container: Container, port: int) -> socket.socket:
        if self.connected:
            raise StreamError("nothing listens")
        self.connected = True
        return self.ours

    def listen(self, container: Container, port: int) -> socket.socket:
        raise NotImplementedError

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def read(call: AgentAnswer) -> list[object]:
    return [call.head(), *iter(call.read, b"")]


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_a_call_ends_wherever_its_answer_stops(answer: bytes) -> None:
    for data, stop in stops(answer):
        with contextlib.closing(OnePort(data)) as port, contextlib.closing(AgentConnections(port)) as agents:
            request = AgentRequest("GET", "/healthz", {}, b"")
            if stop == "deadline":  # on a loaded machine it passes before all is sent
                ask = partial(agents.ask, SANDBOX, 1, request, seconds=DEADLINE_SECONDS)
                reading = begin(lambda ask=ask: read(ask()))  # type: ignore[misc]
            else:
                call = agents.ask(SANDBOX, 1, request, seconds=None)
                reading = begin(partial(read, call))
                if stop == "cut":
                    call.close()
                else:
                    port.theirs.shutdown(socket.SHUT_WR)
            error = outcome(reading)
            assert isinstance(error, AgentError), (data, stop, error)
            assert error.kind == ("TimedOut" if stop == "deadline" else "NoAnswer"), (data, stop, error)


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_a_whole_answer_is_read_byte_by_byte(answer: bytes) -> None:
    with contextlib.closing(OnePort(answer)) as port, contextlib.closing(AgentConnections(port)) as agents:
        call = agents.ask(SANDBOX, 1, AgentRequest("GET", "/healthz", {}, b""), seconds=20.0)
        assert call.head()[0] == 200
        assert b"".join(iter(call.read, b"")) == b"abcd"


def test_a_closed_answer_is_no_whole_one() -> None:
    with contextlib.closing(OnePort(PLAIN)) as port, contextlib.closing(AgentConnections(port)) as agents:
        call = agents.ask(SANDBOX, 1, AgentRequest("GET", "/healthz", {}, b""), seconds=20.0)
        assert (call.head()[0], call.read()) == (200, b"a")
        call.close()
        with pytest.raises(AgentError, match="before it was complete"):
            call.read()


def test_a_whole_answer_stays_whole_once_closed() -> None:
    with contextlib.closing(OnePort(CHUNKED)) as port, contextlib.closing(AgentConnections(port)) as agents:
        call = agents.ask(SANDBOX, 1, AgentRequest("GET", "/healthz", {}, b""), seconds=20.0)
        assert b"".join(read(call)[1:]) == b"abcd"  # type: ignore[arg-type]
        call.close()
        assert call.read() == b""


def test_a_command_ends_wherever_its_output_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    content = CONTINUE + OUTPUT
    monkeypatch.setattr(agent, "_DRAIN_SECONDS", DEADLINE_SECONDS)
    for data, stop in stops(content, complete=True):
        with contextlib.closing(OnePort(data)) as port, contextlib.closing(AgentConnections(port)) as agents:
            if stop != "deadline":
                port.theirs.shutdown(socket.SHUT_WR)
            limit = DEADLINE_SECONDS if stop == "deadline" else None
            startswith = data.startswith(CONTINUE + OUTPUT.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
            for name in ("_HELLO_SECONDS", "_START_SECONDS"):
                monkeypatch.setattr(agent, name, 20.0 if startswith else DEADLINE_SECONDS)

            def run(agents: AgentConnections = agents, limit: float | None = limit, stop: str = stop) -> list[Chunk]:
                stream = agents.exec(SANDBOX, 1, ["true"], env={}, timeout_seconds=limit)
                if stop == "cut":
                    stream.close()
                return list(stream)

            result = outcome(begin(run))
            if stop == "deadline" and startswith:
                assert isinstance(result, list), (data, stop, result)
                assert [chunk.stream for chunk in result[-2:]] == ["timeout", "exit"], (data, stop, result)
            else:
                assert isinstance(result, AgentError | StreamError), (data, stop, result)


def test_output_in_small_frames_is_read_to_its_end() -> None:
    count = 5_000
    frames = b"\1\0\0\0\0\0\0\1A\2\0\0\0\0\0\0\1B" * (count // 2) + FRAMES[-1]
    pieces = [frames[at : at + 100] for at in range(0, len(frames), 100)]
    head, _, _ = OUTPUT.partition(b"\r\n\r\n")
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    port = OnePort(CONTINUE)
    with contextlib.closing(port), contextlib.closing(AgentConnections(port)) as agents:
        feeding = begin(lambda: port.theirs.sendall(head + b"\r\n\r\n" + body))
        chunks = outcome(begin(lambda: list(agents.exec(SANDBOX, 1, ["true"], env={}))))
        assert outcome(feeding) is None
    assert isinstance(chunks, list)
    assert sum(len(chunk.data) for chunk in chunks if chunk.stream == "stdout") == count // 2
    assert chunks[-1] == Chunk("exit", b"7")
