"""Decoding of spec files: bytes to text. Imports nothing heavy, because the CLI uses it at its start."""

from controller.kinds.common.problem import Problem

MAX_BYTES = 10 << 20
_BOMS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))


def decode(file: str, data: bytes) -> str | Problem:
    """Return the text of a spec file, or the reason why it is none."""
    if len(data) > MAX_BYTES:
        return Problem(file, 0, 0, "", too_large(len(data)))
    for mark, name in _BOMS:
        if data.startswith(mark):
            return Problem(file, 1, 1, "", f"the file is {name}; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _place(data, error.start)
        return Problem(file, line, column, "", f"the file is not text in UTF-8 (byte 0x{data[error.start]:02x} here)")
    if "\0" in text:
        line, column = _place(data, data.index(b"\0"))
        return Problem(file, line, column, "", "the file is binary (a zero byte here); a spec is YAML or JSON text")
    return text


def too_large(count: int) -> str:
    """Return why a file of that many bytes is not read; "" if it is."""
    return f"the file is {count / (1 << 20):.1f} MiB; at most {MAX_BYTES >> 20} MiB are read: split it"


def _place(data: bytes, offset: int) -> tuple[int, int]:
    before = data[:offset]
    return before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1
