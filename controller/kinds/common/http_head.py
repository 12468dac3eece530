"""Strict checks of an HTTP request's head, made before a lenient parser reads it. They prevent request smuggling.

Pure; for every listener. https://www.rfc-editor.org/rfc/rfc9112 (2.2, 5.2 and 6.3)
"""

import re

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
