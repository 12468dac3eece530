"""The head of an HTTP request, judged before a parser that forgives: two that forgive differently can be set at odds.

Pure; for every listener. https://www.rfc-editor.org/rfc/rfc9112 (2.2, 5.2 and 6.3)
"""

import re

_BROKEN_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED = re.compile(rb"\n[ \t]")
_END = b"\r\n\r\n"


def head_in(data: bytes) -> bytes:
    """The head that the data begins with; all of it where the head has no end yet."""
    end = data.find(_END)
    return data[: end + len(_END)] if end >= 0 else data


def fault(head: bytes) -> str:
    """Why a head (or a part of it, from its beginning) is refused; empty when it is not."""
    if _BROKEN_LINE.search(head.removesuffix(b"\r")):
        return "a line of its head ends in a bare LF or CR; end each in CRLF"
    if _FOLDED.search(head):
        return "a header goes on in the next line; write it in one"
    names = {line.partition(b":")[0].strip().lower() for line in head.split(b"\r\n")}
    if {b"content-length", b"transfer-encoding"} <= names:
        return "it has both Content-Length and Transfer-Encoding; send one of them"
    return ""
