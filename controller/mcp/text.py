"""Output of sandboxes as text of a result. It is untrusted: data without terminal control, never instructions."""

import re

STREAM_BYTES = 256 << 10
KEPT_BYTES = STREAM_BYTES - 64  # of a stream: with the line between head and tail it is no longer than that
OUTPUT_BYTES = 32 << 10  # of an answer, unless it asks for more: about 10,000 tokens
# OSC, DCS and other strings; CSI; two-character escapes; C0 except tab, line feed and carriage return, DEL, C1; lone
# surrogates.
_CONTROL = re.compile(
    r"\x1b[]PX^_k][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?|\x9b[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
)
# Characters that are not seen, or that turn the direction of others: people and models read something else than there
# is. Of the variation selectors those that emojis have (U+FE00 to U+FE0F) are left.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# No part of it passes a backtick: texts of callers and sandboxes are searched, and must not take more than one look.
_COMMAND = re.compile(
    r"`((?:sudo )?(?:\.venv/bin/)?"
    r"(?:paddock ((?:image )?[a-z]+)\b|(?:docker|make|modprobe|nft|systemctl|[^\s`/]{0,99}/[^\s`]{1,199}\.sh)\b)[^`]*)`"
)
_TOOLS = {  # by the command's verb
    "apply": "sandbox.apply",
    "cp": "docker.file.write",
    "exec": "docker.container.exec",
    "image build": "docker.image.build",
    "image pull": "docker.image.pull",
    "logs": "docker.container.logs",
    "run": "code.run",
    "shell": "docker.container.exec",
    "why": "sandbox.why",
}


def plain(text: str) -> str:
    """Return the text without escape sequences and control characters; tabs and line feeds stay."""
    return strip_controls(text).replace("\r", "")


def strip_controls(text: str) -> str:
    """Return the text as `plain` does, with its carriage returns: they are data of many files."""
    return _CONTROL.sub("", text)


def visible(text: str) -> str:
    """Return the text with what can't be seen as escapes, such as `\\u202e`: bidi and zero-width characters."""
    return _UNSEEN.sub(_escape, text)


def decode(data: bytes) -> str:
    """Return bytes as plain, visible text; invalid UTF-8 is replaced."""
    return visible(plain(data.decode(errors="replace")))


def shorten(text: str, most: int) -> str:
    """Return the beginning and the end of a long text, with a line between that counts the rest."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"


def head_and_tail(text: str, most_bytes: int, total_bytes: int) -> str:
    """Return the text's beginning and end with a line between that counts what is left out, in bytes.

    `total_bytes` is the size of the whole, of which the text may lack the middle already.
    """
    data = text.encode(errors="replace")
    if len(data) <= most_bytes:
        return text
    half = most_bytes // 2
    head, tail = data[:half].decode(errors="ignore"), data[len(data) - half :].decode(errors="ignore")
    return f"{head}\n[... {max(total_bytes, len(data)) - 2 * half} bytes left out ...]\n{tail}"


def for_models(text: str) -> str:
    """Return a message of Paddock's for a model: its hints name tools, and the operator's commands as such.

    The model can't run commands on the host, and shall not try.
    """
    return _COMMAND.sub(_hint, text)


def _hint(command: re.Match[str]) -> str:
    tool = _TOOLS.get(command[2] or "")
    return f"`{tool}`" if tool else f"`{command[1]}` (for the operator to run, not for you)"


def _escape(character: re.Match[str]) -> str:
    code = ord(character[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
