"""Messages between the daemon and its processes, with descriptors."""

import os
import socket
import threading

import pytest

from controller.processes.channel import Channel, ChannelClosed, Message
from controller.processes.child import Child


def test_a_message_arrives_with_its_descriptors() -> None:
    ours, channel = map(Channel, socket.socketpair())
    out, into = os.pipe()
    ours.send({"type": "open", "number": 7}, [into])
    message, (descriptor,) = channel.receive()
    os.write(descriptor, b"through")
    assert (message, os.read(out, 100)) == ({"type": "open", "number": 7}, b"through")
    for number in (out, into, descriptor):
        os.close(number)
    ours.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    channel.close()


@pytest.mark.parametrize("damaged", [b"\0\0\0\2\1{}", b"\xff\xff\xff\xff\0", b"\0\0\0\1\0{", b"\0\0"])
def test_a_damaged_message_closes_the_channel(damaged: bytes) -> None:
    ours, sock = socket.socketpair()
    channel = Channel(ours)
    sock.sendall(damaged)
    sock.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    channel.close()


def test_a_message_that_fails_ends_the_process() -> None:
    event = threading.Event()

    def take(_child: Child, _message: Message) -> None:
        raise RuntimeError("can't start new thread")

    child = Child("tests.processes.talker", "talker", take, lambda _: event.set())
    try:
        assert event.wait(20)
    finally:
        child.stop()
