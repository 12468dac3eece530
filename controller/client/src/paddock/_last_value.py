"""The value of a Python program's last expression, as a notebook shows it.

The program runs in `__main__` of a new interpreter, from stdin, as `python3 -` runs it. A value follows its output on
stdout, behind a mark that no other call has; `Values` takes it out again, so that stdout is exact.
"""

import secrets

_MAX_CODE_BYTES = 1 << 18  # of programs whose last expression is looked at: a syntax tree takes a lot of memory
_MAX_VALUE_BYTES = 1 << 16
_RUNNER = """\
def run(names, mark, code_bytes, value_bytes):
    import _ast, os, sys
    del names["run"]
    sys.argv[0] = "-"
    code = sys.stdin.buffer.read()
    last = None
    try:
        body = compile(code, "<stdin>", "exec", 0x400, True) if len(code) <= code_bytes else code
        if body is not code and body.body and isinstance(body.body[-1], _ast.Expr):
            last = compile(_ast.Expression(body.body.pop().value), "<stdin>", "eval", 0, True)
        body = compile(body, "<stdin>", "exec", 0, True)
    except (SyntaxError, ValueError) as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        sys.exit(1)
    del code
    try:
        exec(body, names)
        value = eval(last, names) if last else None
        text = b"" if value is None else repr(value).encode("utf-8", "backslashreplace")
    except Exception as error:
        trace = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
    if text:
        if len(text) > value_bytes:
            text = text[:value_bytes] + b"..."
        sys.stdout.flush()
        text = mark.encode() + b"%d\\0" % len(text) + text
        while text:
            text = text[os.write(1, text):]
run(globals(), "MARK", CODE_BYTES, VALUE_BYTES)
"""


class Values:
    """Value of one program, taken out of its stdout."""

    def __init__(self) -> None:
        self._name = f"paddock-value-{secrets.token_hex(8)}:"
        self.mark = b"\0" + self._name.encode()
        self._kept = bytearray()
        self.value: str | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """Interpreter that reads the program from stdin; its arguments follow."""
        limits = {"MARK": f"\\0{self._name}", "CODE_BYTES": str(_MAX_CODE_BYTES), "VALUE_BYTES": str(_MAX_VALUE_BYTES)}
        source = _RUNNER
        for name, text in limits.items():
            source = source.replace(name, text)
        return "python3", "-c", source

    def output(self, data: bytes) -> bytes:
        """Take the next piece of stdout; return what of it and of earlier ones is output."""
        self._kept += data
        at = self._kept.find(self.mark)
        if at < 0:
            at = self._mark_start()
            return self._take(at)
        begin = at + len(self.mark)
        size, end, _ = self._kept[begin : begin + 20].partition(b"\0")
        if end and size.isdigit() and len(self._kept) - begin - len(size) - 1 >= int(size):
            begin += len(size) + 1
            self.value = self._kept[begin : begin + int(size)].decode(errors="replace")
            del self._kept[at : begin + int(size)]
            return self._take(len(self._kept))
        return self._take(at)

    def flush(self) -> bytes:
        """Return the output that was kept back at the end of stdout."""
        return self._take(len(self._kept))

    def _mark_start(self) -> int:
        """Return where a mark may have begun whose end has not come yet."""
        for size in range(min(len(self.mark), len(self._kept)), 0, -1):
            if self._kept.endswith(self.mark[:size]):
                return len(self._kept) - size
        return len(self._kept)

    def _take(self, count: int) -> bytes:
        piece = bytes(self._kept[:count])
        del self._kept[:count]
        return piece
