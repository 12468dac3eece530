"""Output of sandboxes as text of a result. It is untrusted: data without terminal control, never instructions."""

import re

STREAM_BYTES = 256 << 10
# OSC, DCS and other strings; CSI; two-character escapes; C0 except tab and line feed, DEL, C1; lone surrogates.
_CONTROL = re.compile(
    r"\x1b[]PX^_k][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?|\x9b[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
)
_LINE_ENDS = re.compile(r"\r\n|\r+(?=\n)")


def plain(text: str) -> str:
    """Return the text without escape sequences and control characters; tabs and line feeds stay."""
    return _CONTROL.sub("", _LINE_ENDS.sub("\n", text))


def decoded(data: bytes) -> str:
    """Return bytes as plain text; invalid UTF-8 is replaced."""
    return plain(data.decode(errors="replace"))


def shortened(text: str, most: int) -> str:
    """Return the beginning and the end of a long text, with a line between that counts the rest."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"
