"""Code in contexts of a sandbox, on this terminal: output as it comes, values, pictures where the terminal can."""

import base64
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from controller.cli.text.output import note, say
from controller.cli.text.terminal import is_terminal
from controller.cli.text.terminal_filter import Output
from paddock._client.connection import Connection, segment
from paddock._client.errors import ClientError, Refused
from paddock._execution import LANGUAGES

_EXIT_CODES = {"ok": 0, "error": 1, "timeout": 124, "interrupted": 130, "died": 1}
_KITTY_PIECE = 4096
_PICTURES_ITERM = ("iTerm.app", "WezTerm", "vscode")


@dataclass(slots=True)
class CodePlace:
    """A context of a sandbox: a name, or the default one of a language."""

    connection: Connection
    namespace: str
    sandbox: str
    context: str
    raw: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Return the path of the sandbox's contexts."""
        return f"namespaces/{segment(self.namespace)}/sandboxes/{segment(self.sandbox)}/contexts"

    @property
    def one(self) -> str:
        """Return the path of this one."""
        return f"{self.path}/{segment(self.context)}"

    def run(self, code: str, timeout: float | None = None) -> int:
        """Run code and show its events; return what a command would exit with. Ctrl-C interrupts the code."""
        body: dict[str, Any] = {"code": code, "env": dict(self.variables), "timeoutSeconds": timeout}
        default = self.context in LANGUAGES
        path = f"{self.path}/execute" if default else f"{self.one}/execute"
        if default:
            body["language"] = self.context
        done: Mapping[str, Any] = {}
        with (
            self._interrupts(),
            Output(sys.stdout.buffer, raw=self.raw, screen=False) as stdout,
            Output(sys.stderr.buffer, raw=self.raw, screen=False) as stderr,
            self.connection.lines(path, {}, seconds=math.inf, json=body) as lines,
        ):
            for line in lines:
                event = json.loads(line)
                if event["type"] == "done":
                    done = event
                else:
                    _show(event, stdout, stderr)
        if not done:
            raise ClientError("the daemon ended its answer before the code's end; the code was interrupted")
        if done["stateLost"]:
            note("the interpreter has ended: its variables are gone; the next code begins anew")
        ended = next((done[name] for name in ("code", "exitCode") if done.get(name) is not None), None)
        if ended is None or done["status"] in ("timeout", "interrupted"):
            return _EXIT_CODES[done["status"]]
        return int(ended)

    def complete(self, code: str) -> tuple[int, list[str]]:
        """Return how code may go on by the context's names: how many last characters the matches replace, and these."""
        answer = self.connection.request("POST", f"{self.one}/complete", json={"code": code})
        return answer["replaced"], answer["matches"]

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Pass Ctrl-C on to the code; the third one ends this process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        pressed = 0

        def handle(_number: int, _frame: object) -> None:
            nonlocal pressed
            pressed += 1
            if pressed > 2:
                raise KeyboardInterrupt
            threading.Thread(target=self._interrupt, daemon=True).start()

        earlier = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, earlier)

    def _interrupt(self) -> None:
        from paddock._client.connection import connect

        try:
            with closing(connect(self.connection.server)) as other:  # this process's own waits for the code
                other.request("POST", f"{self.one}/interrupt")
        except ClientError as error:
            note(f"error: the code could not be interrupted: {error}")


def language_of(place: CodePlace) -> str:
    """Return the language of a context. Raises Refused if there is none of that name."""
    if place.context in LANGUAGES:
        return place.context
    try:
        return str(place.connection.request("GET", place.one)["language"])
    except Refused as error:
        if error.reason == "NotFound":
            known = ", ".join(LANGUAGES)
            raise Refused(f"{error}; a default context is one of {known}", error.reason, error.code) from error
        raise


def _show(event: Mapping[str, Any], stdout: Output, stderr: Output) -> None:
    kind = event["type"]
    if kind in ("stdout", "stderr"):
        (stdout if kind == "stdout" else stderr).write(event["text"].encode("utf-8", "replace"))
    elif kind == "result":
        _show_result(event["data"], stdout)
    elif kind == "error" and event["name"] != "ExitCode":
        text = event["traceback"] or f"{event['name']}: {event['value']}"
        stderr.write(f"{text}\n".encode("utf-8", "replace"))
    elif kind == "notice":
        note(event["text"])
    elif kind == "started" and event["lost"]:
        note(f"a new interpreter: {event['lost']}")
    elif kind == "started" and event["fresh"] and event["reason"]:
        note(event["reason"])
    elif kind == "failed":
        raise ClientError(str(event["message"]))


def _show_result(data: Mapping[str, Any], stdout: Output) -> None:
    picture = data.get("image/png")
    if isinstance(picture, str) and is_terminal() and (sequence := picture_sequence(picture, os.environ)):
        sys.stdout.buffer.write(sequence)
        sys.stdout.buffer.flush()
        return
    text = data.get("text/plain")
    if isinstance(text, str):
        stdout.write(f"{text}\n".encode("utf-8", "replace"))


def picture_sequence(data: str, environment: Mapping[str, str]) -> bytes:
    """Return what shows a PNG (in base64) on this terminal; b"" if it is not known to show pictures.

    The picture is checked to be base64: nothing else of the sandbox gets into the sequence.
    """
    try:
        size = len(base64.b64decode(data, validate=True))
    except ValueError:
        return b""
    if environment.get("KITTY_WINDOW_ID") or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        pieces = [data[at : at + _KITTY_PIECE] for at in range(0, len(data), _KITTY_PIECE)]
        marked = [
            f"\x1b_G{'a=T,f=100,' if not at else ''}m={int(at < len(pieces) - 1)};{piece}\x1b\\"
            for at, piece in enumerate(pieces)
        ]
        return "".join(marked).encode() + b"\n"
    if environment.get("TERM_PROGRAM") in _PICTURES_ITERM:
        return f"\x1b]1337;File=inline=1;size={size}:{data}\x07\n".encode()
    return b""


def read_cells(language: str, prompt: bool) -> Iterator[str]:
    """Yield what is typed, a cell at a time: a line, or lines until an empty one where Python expects more."""
    while True:
        try:
            line = input(f"{language}> " if prompt else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            say("")
            continue
        if line.strip() in ("exit", "quit", "exit()", "quit()"):
            return
        lines = [line]
        while language == "python" and _wants_more(lines):
            try:
                lines.append(input("... " if prompt else ""))
            except EOFError:
                break
            except KeyboardInterrupt:
                say("")
                lines = [""]
                break
        if "\n".join(lines).strip():
            yield "\n".join(lines)


def _wants_more(lines: list[str]) -> bool:
    """Return True if Python can't end here: a block that is open ends with an empty line."""
    import codeop

    source = "\n".join(lines)
    if source.lstrip()[:1] in ("%", "!") or source.rstrip().endswith("?"):
        return source.lstrip().startswith("%%") and bool(lines[-1].strip())
    try:
        return codeop.compile_command(source) is None
    except (SyntaxError, ValueError, OverflowError):
        return False
