"""Messages for people in the answers of SFTP, as these pass by: OpenSSH's clients show "Failure" in their place."""

import struct

_HEAD, _FIELDS, _U32 = struct.Struct(">IB"), struct.Struct(">II"), struct.Struct(">I")
_STATUS = 101
FOR_PEOPLE = b"en-x-paddock"
"""The language tag of a status whose message is to be shown."""
_MOST_BYTES = 4096  # of a status; a longer one is passed on unread
_MOST_MESSAGES = 8  # of one channel


class Messages:
    """Reader of one channel's answers, in pieces as they arrive. Each message is returned once."""

    def __init__(self) -> None:
        self._packet, self._left_over = b"", 0
        self._shown: set[str] = set()

    def feed(self, data: bytes) -> list[str]:
        """Return the messages that are complete by now."""
        at, messages = 0, []
        while at < len(data):
            if self._left_over:  # of a packet that is none of ours
                step = min(self._left_over, len(data) - at)
                at, self._left_over = at + step, self._left_over - step
                continue
            length = self._length() or _HEAD.size
            piece = data[at : at + length - len(self._packet)]
            self._packet, at = self._packet + piece, at + len(piece)
            if len(self._packet) < _HEAD.size:
                break
            size, kind = _HEAD.unpack_from(self._packet)
            if kind != _STATUS or size > _MOST_BYTES:
                self._left_over, self._packet = max(0, size - 1), b""
            elif len(self._packet) >= self._length():
                messages += self._message()
                self._packet = b""
        return messages

    def _length(self) -> int:
        """Return the length of the packet; 0: not known yet."""
        if len(self._packet) < _HEAD.size:
            return 0
        return _U32.size + int(_HEAD.unpack_from(self._packet)[0])

    def _message(self) -> list[str]:
        try:
            at = _HEAD.size + _FIELDS.size
            fields = []
            for _ in range(2):
                (size,) = _U32.unpack_from(self._packet, at)
                fields.append(self._packet[at + _U32.size : at + _U32.size + size])
                at += _U32.size + size
        except struct.error:  # none that our worker sends
            return []
        text = " ".join(fields[0].decode("utf-8", "replace").split())
        if fields[1] != FOR_PEOPLE or text in self._shown or len(self._shown) >= _MOST_MESSAGES:
            return []
        self._shown.add(text)
        return [text if text.isprintable() else ascii(text)]
