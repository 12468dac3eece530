"""Messages between the daemon and its processes, with descriptors."""

import os
import socket

import pytest

from controller.processes.channel import Channel, ChannelClosed


def test_a_message_arrives_with_its_descriptors() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    out, into = os.pipe()
    ours.send({"type": "open", "number": 7}, [into])
    message, (descriptor,) = theirs.receive()
    os.write(descriptor, b"through")
    assert (message, os.read(out, 100)) == ({"type": "open", "number": 7}, b"through")
    for each in (out, into, descriptor):
        os.close(each)
    ours.close()
    with pytest.raises(ChannelClosed):
        theirs.receive()
    theirs.close()


@pytest.mark.parametrize("damaged", [b"\0\0\0\2\1{}", b"\xff\xff\xff\xff\0", b"\0\0\0\1\0{", b"\0\0"])
def test_a_damaged_message_closes_the_channel(damaged: bytes) -> None:
    ours, sock = socket.socketpair()
    channel = Channel(ours)
    sock.sendall(damaged)
    sock.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    channel.close()
