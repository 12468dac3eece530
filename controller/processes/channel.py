"""Messages between the daemon and a process of its own, over a socket pair; sockets travel with them (SCM_RIGHTS)."""

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = struct.Struct(">IB")
_MOST_BYTES = 64 << 20
_MOST_SOCKETS = 4

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of the socket pair. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._lock = sock, threading.Lock()

    def send(self, message: Mapping[str, Any], sockets: Sequence[int] = ()) -> None:
        """Send a message, with file descriptors. Blocks. Raises ChannelClosed."""
        body = json.dumps(message, separators=(",", ":")).encode()
        with self._lock:
            try:
                # The head is a write of its own, so that descriptors are received with all of it.
                socket.send_fds(self._sock, [_HEAD.pack(len(body), len(sockets))], sockets)
                self._sock.sendall(body)
            except OSError as error:
                raise ChannelClosed(str(error)) from error

    def receive(self) -> tuple[Message, list[int]]:
        """Return the next message, and the file descriptors with it, which are the caller's. Raises ChannelClosed."""
        descriptors: list[int] = []
        try:
            head, descriptors, _, _ = socket.recv_fds(self._sock, _HEAD.size, _MOST_SOCKETS, socket.MSG_CMSG_CLOEXEC)
            head += self._exactly(_HEAD.size - len(head)) if head else b""
            if not head:
                raise ChannelClosed("end")
            size, count = _HEAD.unpack(head)
            if size > _MOST_BYTES or count != len(descriptors):
                raise ChannelClosed("a damaged message")
            message: Message = json.loads(self._exactly(size))
        except (OSError, ValueError, ChannelClosed) as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise error if isinstance(error, ChannelClosed) else ChannelClosed(str(error)) from error
        return message, descriptors

    def close(self) -> None:
        """Close it; a blocked `receive` ends."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = self._sock.recv(min(size - len(parts), 1 << 20))
            if not data:
                raise ChannelClosed("end")
            parts += data
        return bytes(parts)
