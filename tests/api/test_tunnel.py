"""A forwarded port without frames, as clients on this host have it: the same bytes, ends and limits as with frames."""

import hashlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from paddock._client.errors import ClientError
from paddock._client.port_forward import PortConnection
from tests.api.test_port_forward import echo, freed, listening
from tests.api.test_port_forward import running_api as running_api
from tests.api.test_stalls import ask
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.raw_client import Paddock, Sandbox

MIB = 1 << 20
CARRYING = "port-forward"  # the name of the threads that do
RAW = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart/portforward?port=80&as=raw"


@pytest.fixture
def sandbox(running_api: ApiStack) -> Iterator[Sandbox]:
    with Paddock(f"unix://{running_api.socket}") as paddock:
        yield paddock.sandbox("quickstart")


def exactly(sock: socket.socket, count: int) -> bytes:
    observed = b""
    while len(observed) < count and (data := sock.recv(count - len(observed))):
        observed += data
    return observed


def read_out(sock: socket.socket) -> None:
    while sock.recv(MIB):
        pass


def handshaken(api: ApiStack) -> socket.socket:
    """A connection whose next byte is the first of what is carried."""
    answer = ask(api, RAW, 15)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += answer.recv(1)
    assert b"\r\nsec-websocket-protocol: raw.portforward.paddock\r\n" in head.lower()
    return answer


def test_tunnel_pieces_and_half_close(running_api: ApiStack) -> None:
    with listening(running_api, echo), handshaken(running_api) as link:
        for byte in b"\x00\x00\x00\x03a":
            link.sendall(bytes([byte]))
        assert exactly(link, 5) == b"\x00\x00\x00\x01a"
        link.sendall(b"bc" + b"\x00\x00\x00\x00")
        assert b"".join(iter(lambda: link.recv(100), b"")).endswith(b"c\x00\x00\x00\x00")
    freed(running_api)


def test_a_tunnel_ends_wherever_its_client_closes(running_api: ApiStack) -> None:
    content = b"\x00\x00\x00\x03abc\x00\x00\x00\x01d\x00\x00\x00\x00"
    for count in range(len(content) + 1):
        heard: list[bytes] = []
        with listening(running_api, lambda sock, heard=heard: heard.extend(iter(lambda: sock.recv(100), b""))):  # type: ignore[misc]
            with handshaken(running_api) as link:
                for byte in content[:count]:
                    link.sendall(bytes([byte]))
            freed(running_api)
        assert b"abcd".startswith(b"".join(heard)), content[:count]


def test_a_hundred_mebibytes_each_way_are_the_same(running_api: ApiStack, sandbox: Sandbox) -> None:
    piece = os.urandom(MIB)
    with (
        listening(running_api, echo),
        sandbox.forward(80) as forward,
        socket.create_connection(("127.0.0.1", forward.port)) as link,
    ):

        def send() -> None:
            for _ in range(100):
                link.sendall(piece)
            link.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send)
        sending.start()
        sha256 = hashlib.sha256()
        while data := link.recv(MIB):
            sha256.update(data)
        sending.join()
    assert sha256.hexdigest() == hashlib.sha256(piece * 100).hexdigest()
    freed(running_api)


def test_sandbox_half_close_keeps_other_direction(running_api: ApiStack, sandbox: Sandbox) -> None:
    heard: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        sock.sendall(b"bye")
        sock.shutdown(socket.SHUT_WR)
        while data := sock.recv(100):
            heard.append(data)

    with listening(running_api, serve), sandbox.connect(80) as link:
        assert (link.receive(), link.receive()) == (b"bye", b"")
        link.send(b"still ")
        link.send(b"")
        link.send(b"here")
        link.end()
        freed(running_api)
    assert b"".join(heard) == b"still here"


def test_late_client_gets_data_sent_before_the_end(running_api: ApiStack, sandbox: Sandbox) -> None:
    with listening(running_api, echo), sandbox.connect(80) as link:
        link.send(b"x" * 1000)
        link.end()
        freed(running_api)
        assert b"".join(iter(link.receive, b"")) == b"x" * 1000


def ended_and_read(link: PortConnection) -> bytes:
    """Either side may notice the disconnect first."""
    link.end()
    return link.receive()


def test_reset_is_not_taken_for_a_clean_end(running_api: ApiStack, sandbox: Sandbox) -> None:
    def serve(sock: socket.socket) -> None:
        sock.sendall(b"half")
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset

    with listening(running_api, serve):
        with sandbox.connect(80) as link:
            assert link.receive() == b"half"
            link.send(b"x")
            with pytest.raises(ClientError, match="broke"):
                ended_and_read(link)
        with sandbox.forward(80) as forward, socket.create_connection(("127.0.0.1", forward.port)) as local:
            assert exactly(local, 4) == b"half"
            local.sendall(b"x")
            with pytest.raises(ConnectionResetError):
                local.recv(1)
        freed(running_api)


@pytest.mark.parametrize("raw", [True, False])
def test_half_of_an_answer_does_not_look_whole_to_one_that_still_sends(
    running_api: ApiStack, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, raw: bool
) -> None:
    """Its sending may be what meets the reset, and a socket tells of that but once."""

    def serve(sock: socket.socket) -> None:
        sock.sendall(b"half")
        exactly(sock, MIB)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset

    def send(link: PortConnection) -> None:
        with suppress(ClientError):
            while True:
                link.send(b"x" * 10_000)

    monkeypatch.setattr("paddock._client.port_forward.can_splice", lambda: raw)
    with listening(running_api, serve):
        for _ in range(20):
            with sandbox.connect(80) as link:
                sending = threading.Thread(target=send, args=(link,))
                sending.start()
                with pytest.raises(ClientError):
                    assert b"".join(iter(link.receive, b"")) == b"", "a good end"
                link.break_off()
                sending.join()
    freed(running_api)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("endless", [False, True])
def test_closing_a_forwarding_is_no_good_end_for_what_goes_on(
    running_api: ApiStack, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, raw: bool, endless: bool
) -> None:
    """Also while the local program reads nothing and its sender waits."""
    ready = threading.Event()

    def serve(sock: socket.socket) -> None:
        sock.sendall(b"0123456789")
        with suppress(OSError):
            while endless and select.select([], [sock], [], 0.3)[1]:  # until every buffer on the way is full
                sock.send(b"x" * MIB, socket.MSG_DONTWAIT)
            ready.set()
            while sock.recv(1):
                pass

    monkeypatch.setattr("paddock._client.port_forward.can_splice", lambda: raw)
    with listening(running_api, serve):
        with sandbox.forward(80) as forward:
            local = socket.create_connection(("127.0.0.1", forward.port))
            assert exactly(local, 10) == b"0123456789"
            assert ready.wait(60)
            assert forward.open == 1
        wait_for(
            "nothing carries it", lambda: not [thread for thread in threading.enumerate() if thread.name == CARRYING]
        )
        with local, pytest.raises(ConnectionResetError):
            read_out(local)
        freed(running_api)


@pytest.mark.parametrize("said", [b"", b"\x00\x00", b"\x00\x00\x01\x00half", b"\x00\x00\x00\x00"])
def test_disconnect_ends_connection_in_sandbox(running_api: ApiStack, said: bytes) -> None:
    event = threading.Event()

    def serve(sock: socket.socket) -> None:
        sock.sendall(b"x")
        while sock.recv(100):
            pass
        event.set()

    with listening(running_api, serve), handshaken(running_api) as link:
        assert exactly(link, 5) == b"\x00\x00\x00\x01x"
        link.sendall(said)
        link.close()
        assert event.wait(60)
        freed(running_api)


def test_urgent_byte_does_not_block(running_api: ApiStack, sandbox: Sandbox) -> None:
    def serve(sock: socket.socket) -> None:
        sock.send(b"!", socket.MSG_OOB)
        sock.sendall(b"box")
        assert exactly(sock, 4) == b"here"
        sock.sendall(b"heard")

    with (
        listening(running_api, serve),
        sandbox.forward(80) as forward,
        socket.create_connection(("127.0.0.1", forward.port)) as link,
    ):
        assert exactly(link, 3) == b"box"
        link.send(b"!", socket.MSG_OOB)
        link.sendall(b"here")
        assert exactly(link, 5) == b"heard"
    freed(running_api)


def test_connections_over_tunnel_limit_use_frames(running_api: ApiStack, sandbox: Sandbox) -> None:
    with listening(running_api, echo), ExitStack() as stack:
        links: list[PortConnection] = [stack.enter_context(sandbox.connect(80)) for _ in range(40)]
        for number, link in enumerate(links):
            link.send(b"%d" % number)
        assert [link.receive() for link in links] == [b"%d" % number for number in range(40)]
        assert {link.raw for link in links} == {True, False}
    freed(running_api)
    with listening(running_api, echo), sandbox.connect(80) as link:
        assert link.raw, "there is room again"
