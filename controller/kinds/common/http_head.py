"""Strict HTTP: bare LF, folded headers and two body lengths are refused before a parser, and so before the application.

They prevent request smuggling; for every listener. https://www.rfc-editor.org/rfc/rfc9112 (2.2, 5.2 and 6.3)
"""

import re

import h11
from h11._receivebuffer import ReceiveBuffer

_BROKEN_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED = re.compile(rb"\n[ \t]")
_END = b"\r\n\r\n"
LOCAL_NAMES = ("paddock", "localhost", "127.0.0.1", "[::1]")


def head_in(data: bytes) -> bytes:
    """Return the head at the beginning of the data; all data if the head has no end yet."""
    end = data.find(_END)
    return data[: end + len(_END)] if end >= 0 else data


def fault(head: bytes) -> str:
    """Return the reason to refuse a head (or its beginning); "" if there is none."""
    if _BROKEN_LINE.search(head.removesuffix(b"\r")):
        return "a line of its head ends in a bare LF or CR; end each in CRLF"
    if _FOLDED.search(head):
        return "a header continues on the next line; write it in one"
    names = {line.partition(b":")[0].strip().lower() for line in head.split(b"\r\n")}
    if {b"content-length", b"transfer-encoding"} <= names:
        return "it has both Content-Length and Transfer-Encoding; send one of them"
    return ""


def is_local(host: str) -> bool:
    """Return True if a Host header names this host: only then did no web page choose the name that led here."""
    name, _, port = host.rpartition(":")
    return (name if port.isascii() and port.isdigit() else host).lower() in LOCAL_NAMES


_HEAD_BYTES = 16 << 10  # h11's own limit


class _Strict(ReceiveBuffer):
    """The received bytes. Only heads, and trailers of chunked bodies, are taken from it as lines."""

    fault = ""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """As the base class. Raises h11.LocalProtocolError, which h11 turns into an error of the client."""
        head = head_in(bytes(self))
        # An empty line alone is the end of a chunked body; what follows is checked later.
        if not head.startswith(b"\r\n"):
            self.fault = fault(head)
        if self.fault:
            raise h11.LocalProtocolError(self.fault)
        return super().maybe_extract_lines()

    def maybe_extract_at_most(self, count: int) -> bytearray | None:
        """As the base class, without its second copy."""
        return self._extract(count) if self._data else None


class StrictConnection(h11.Connection):
    """The server side of one connection."""

    def __init__(self, head_bytes: int = _HEAD_BYTES) -> None:
        """Take heads of up to so many bytes."""
        super().__init__(h11.SERVER, max_incomplete_event_size=head_bytes)
        self._receive_buffer: _Strict = _Strict()

    @property
    def fault(self) -> str:
        """Fault of the last head; empty when h11 itself refused it, or nothing did."""
        return self._receive_buffer.fault
