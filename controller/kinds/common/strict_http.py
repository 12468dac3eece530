"""h11 made strict: bare LF, folded headers and two body lengths are refused before the application.

A body is taken out of the received bytes in one copy. h11 makes two, which large transfers notice.
"""

import h11
from h11._receivebuffer import ReceiveBuffer

from controller.kinds.common.http_head import fault, head_in

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
