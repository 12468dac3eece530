"""h11, which forgives bare LF, folded headers and two lengths of a body, made to refuse them before the application."""

import h11
from h11._receivebuffer import ReceiveBuffer

from controller.kinds.common.http_head import fault, head_in


class _Strict(ReceiveBuffer):
    """What has come. Only heads, and the trailers of chunked bodies, are taken from it as lines."""

    fault = ""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """As the base class's. Raises h11.LocalProtocolError, which h11 makes its client's error."""
        head = head_in(bytes(self))
        # An empty line alone is the end of a chunked body; what follows it is judged when it is its turn.
        if not head.startswith(b"\r\n"):
            self.fault = fault(head)
        if self.fault:
            raise h11.LocalProtocolError(self.fault)
        return super().maybe_extract_lines()


class StrictConnection(h11.Connection):
    """A server's side of one connection."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self._receive_buffer: _Strict = _Strict()

    @property
    def fault(self) -> str:
        """Why the last head was refused; empty when it was not, or by h11 itself."""
        return self._receive_buffer.fault
