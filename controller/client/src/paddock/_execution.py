"""Outcome of code in a context: its results by MIME type, its output and its error; the same for both clients."""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock._client.errors import ClientError
from paddock._models import CommandResult, KeptStreams

LANGUAGES = ("python", "javascript", "bash")
_DATA, _CHART = "application/vnd.paddock.data+json", "application/vnd.paddock.chart+json"
_EXIT_CODES = {"ok": 0, "error": 1, "timeout": 124, "interrupted": 130, "died": 1}
# Foreign markup is shown in a frame of its own: no scripts, no forms, no origin, and nothing is fetched.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
_FRAME_PIXELS = 320


@dataclass(frozen=True, slots=True)
class Result:
    """One result: a value, a chart, a table. `data` has it by MIME type; bytes are in base64.

    `main`: it is the value of the last expression. It comes from within the sandbox: markup in it is not trusted, and
    notebooks show it in a frame without scripts and network.
    """

    data: Mapping[str, Any]
    main: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """Plain text."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """HTML, not trusted."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """Markdown."""
        return self._text("text/markdown")

    @property
    def svg(self) -> str | None:
        """SVG, not trusted."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> bytes | None:
        """A PNG picture."""
        return self._bytes("image/png")

    @property
    def jpeg(self) -> bytes | None:
        """A JPEG picture."""
        return self._bytes("image/jpeg")

    @property
    def pdf(self) -> bytes | None:
        """A PDF document."""
        return self._bytes("application/pdf")

    @property
    def latex(self) -> str | None:
        """LaTeX."""
        return self._text("text/latex")

    @property
    def javascript(self) -> str | None:
        """JavaScript, not trusted."""
        return self._text("application/javascript")

    @property
    def json(self) -> Any:
        """A JSON value; None without one."""
        return self.data.get("application/json")

    @property
    def table(self) -> Mapping[str, Any] | None:
        """Columns of a data frame as lists, dates as ISO 8601; None of anything else, or of one that is large."""
        columns = self.data.get(_DATA)
        return columns if isinstance(columns, dict) else None

    @property
    def chart(self) -> Mapping[str, Any] | None:
        """Data of a matplotlib chart, where the image has e2b-charts."""
        chart_data = self.data.get(_CHART)
        return chart_data if isinstance(chart_data, dict) else None

    @property
    def formats(self) -> list[str]:
        """MIME types that it has."""
        return list(self.data)

    def __repr__(self) -> str:
        return self.text or f"<Result {', '.join(self.data)}>"

    def _repr_png_(self) -> bytes | None:
        return self.png

    def _repr_jpeg_(self) -> bytes | None:
        return self.jpeg

    def _repr_html_(self) -> str | None:
        markup = self.html or self.svg
        return frame(markup) if markup else None

    def _text(self, mime: str) -> str | None:
        text = self.data.get(mime)
        return text if isinstance(text, str) else None

    def _bytes(self, mime: str) -> bytes | None:
        encoded = self.data.get(mime)
        return base64.b64decode(encoded) if isinstance(encoded, str) else None


def frame(markup: str) -> str:
    """Return a frame that shows foreign markup, without scripts and without the network."""
    page = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">{markup}'
    style = f"width:100%;height:{_FRAME_PIXELS}px;border:0;background:#fff"
    return f'<iframe sandbox="" referrerpolicy="no-referrer" style="{style}" srcdoc="{html.escape(page)}"></iframe>'


@dataclass(frozen=True, slots=True)
class Logs:
    """Printed output."""

    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionError:
    """An error of the code: `traceback` has the lines of the code alone. ContextDied: the interpreter has ended."""

    name: str
    value: str
    traceback: str = ""

    def __str__(self) -> str:
        return self.traceback or f"{self.name}: {self.value}"


@dataclass(frozen=True, slots=True)
class Execution(CommandResult):
    """Result of code. `results` are its values, charts and tables; `logs` what it printed; `error` its error, or None.

    `stateful`: it ran in a context, whose variables stay for the next call. `state_lost`: it ended the interpreter, and
    the next call begins with a new one; `lost` then says why the state before is gone. `notices` say what was left out.
    `exit_code` is 0, 1 for an error, 124 at the time limit, 130 after an interrupt.
    """

    results: Sequence[Result] = ()
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    stateful: bool = False
    state_lost: bool = False
    lost: str = ""
    context: str = ""
    count: int = 0
    notices: Sequence[str] = ()

    def _repr_html_(self) -> str:
        parts = [f"<pre>{html.escape(text)}</pre>" for text in (self.logs.stdout, self.logs.stderr) if text]
        for result in self.results:
            if markup := result.html or result.svg:
                parts.append(frame(markup))
            elif result.png is not None:
                parts.append(f'<img src="data:image/png;base64,{base64.b64encode(result.png).decode()}">')
            else:
                parts.append(f"<pre>{html.escape(result.text or ', '.join(result.formats))}</pre>")
        if self.error is not None:
            parts.append(f"<pre>{html.escape(str(self.error))}</pre>")
        return "\n".join(parts)


def of_command(done: CommandResult) -> Execution:
    """Return the result of code that ran in a new interpreter."""
    results = (Result({"text/plain": done.value}, main=True),) if done.value is not None else ()
    return Execution(
        done.exit_code,
        done.stdout,
        stderr=done.stderr,
        duration_seconds=done.duration_seconds,
        truncated=done.truncated,
        timed_out=done.timed_out,
        value=done.value,
        results=results,
        logs=Logs(done.stdout, done.stderr),
    )


class Collector:
    """Events of one execution in, its result out."""

    def __init__(self, max_output_bytes: int) -> None:
        self._kept = KeptStreams(max_output_bytes)
        self._results: list[Result] = []
        self._displayed: dict[str, int] = {}
        self._clears = False
        self._notices: list[str] = []
        self._started: Mapping[str, Any] = {}
        self._error: ExecutionError | None = None
        self._done: Mapping[str, Any] | None = None

    def take(self, line: str) -> Result | ExecutionError | tuple[str, str] | None:
        """Take an event; return what a callback may want: a result, an error, or a stream and its text."""
        event = json.loads(line)
        kind = event["type"]
        if kind in ("stdout", "stderr"):
            self._kept.add(kind, event["text"].encode("utf-8", "replace"))
            return kind, event["text"]
        if kind == "result":
            return self._result(event)
        if kind == "error":
            self._error = ExecutionError(event["name"], event["value"], event["traceback"])
            return self._error
        if kind == "started":
            self._started = event
        elif kind == "notice":
            self._notices.append(event["text"])
        elif kind == "clear":
            self._clear(wait=event["wait"])
        elif kind == "done":
            self._done = event
        elif kind == "failed":
            raise ClientError(str(event["message"]))
        return None

    def _clear(self, *, wait: bool) -> None:
        self._clears = wait
        if not wait:
            self._results.clear()
            self._displayed.clear()

    def _result(self, event: Mapping[str, Any]) -> Result:
        if self._clears:
            self._clear(wait=False)
        result = Result(event["data"], event["main"], event["metadata"])
        display = event["display"]
        if event["update"] and display in self._displayed:
            self._results[self._displayed[display]] = result
        else:
            if display:
                self._displayed[display] = len(self._results)
            self._results.append(result)
        return result

    def execution(self) -> Execution:
        """Return the result of what has ended. Raises ClientError if it did not."""
        if self._done is None:
            raise ClientError("the daemon ended its answer before the code's end; the code was interrupted")
        done, status = self._done, self._done["status"]
        code = done["code"] if done.get("code") is not None else done["exitCode"]
        if code is None or status in ("timeout", "interrupted"):
            code = _EXIT_CODES[status]
        outcome = self._kept.result(code, timed_out=status == "timeout")
        error = self._error
        trace = f"{error}\n" if error is not None and not (error.name == "ExitCode" and outcome.stderr) else ""
        main = [result.text for result in self._results if result.main]
        return Execution(
            code,
            outcome.stdout,
            stderr=outcome.stderr + trace,
            duration_seconds=done["seconds"],
            truncated=outcome.truncated or bool(self._notices),
            timed_out=outcome.timed_out,
            value=main[-1] if main else None,
            results=tuple(self._results),
            logs=Logs(outcome.stdout, outcome.stderr),
            error=error,
            stateful=True,
            state_lost=done["stateLost"],
            lost=self._started.get("lost", ""),
            context=self._started.get("context", ""),
            count=done["count"],
            notices=tuple(self._notices),
        )


def language_of_context(name: str) -> str | None:
    """Return the language of contexts that a name stands for; None: they have none of it."""
    language = {"node": "javascript", "js": "javascript", "py": "python", "python3": "python"}.get(
        name.lower(), name.lower()
    )
    return language if language in LANGUAGES else None
