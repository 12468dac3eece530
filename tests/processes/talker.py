"""A process that sends one message, and then waits for the end of its channel. Run by a test as a Child."""

import contextlib
import socket
import sys

from controller.processes.channel import Channel, ChannelClosed

if __name__ == "__main__":
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    channel.send({"type": "hello"})
    with contextlib.suppress(ChannelClosed):
        channel.receive()
