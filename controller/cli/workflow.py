"""A workflow run on the command line: its progress as a build shows it, its logs, its artifacts."""

import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli.errors import CliError
from controller.cli.output import note, on_terminal, say
from controller.cli.safe_text import one_line, plain
from paddock._client.workflows import ENDED, WorkflowRuns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.cli.terminal_filter import Output

_PAUSE_SECONDS = 0.2
_SHOWN_LINES = 5  # of the output of a stage that runs
_MARKS = {"Succeeded": "ok", "Failed": "FAILED", "Skipped": "skipped", "Cancelled": "cancelled"}
_OVER = (*_MARKS,)
Run = Mapping[str, Any]


def run_name(workflow: str) -> str:
    """Return a new name for a run of a workflow."""
    return f"{workflow[:44].rstrip('-')}-{secrets.token_hex(3)}"


def parameters_of(given: Sequence[str]) -> list[dict[str, str]]:
    """Return parameters from NAME=VALUE words. Raises CliError."""
    wrong = [each for each in given if not each.partition("=")[0] or "=" not in each]
    if wrong:
        raise CliError(f"-p {wrong[0]}: not a parameter; write -p NAME=VALUE")
    return [{"name": name, "value": value} for name, _, value in (each.partition("=") for each in given)]


def follow(runs: WorkflowRuns, name: str, seconds: float | None) -> Run:
    """Show the progress of a run on stderr until it has ended, and return it. Raises CliError after `seconds`."""
    until = None if seconds is None else time.monotonic() + seconds
    with _display() as show:
        while True:
            run = runs.get(name)
            show(run, lambda stage: runs.log(name, stage))
            if run.get("status", {}).get("phase") in ENDED:
                return run
            if until is not None and time.monotonic() >= until:
                raise CliError(f"workflowrun {name} has not ended; `paddock workflow logs -f {name}` follows it")
            time.sleep(_PAUSE_SECONDS)


def follow_logs(runs: WorkflowRuns, name: str, stage: str, out: "Output", *, to_end: bool) -> None:
    """Write the output of a stage, or of all in the order of their starts; `to_end`: until the run has ended."""
    written: dict[tuple[str, int], int] = {}
    finished: set[tuple[str, int]] = set()
    while True:
        run = runs.get(name)
        status = run.get("status", {})
        stages = [each for each in status.get("stages", ()) if each["attempt"] and (not stage or each["name"] == stage)]
        for each in sorted(stages, key=lambda found: found.get("startTime", "")):
            key = (each["name"], each["attempt"])
            if key in finished:
                continue
            if key not in written and not stage:
                out.write(f"== {each['name']}\n".encode())
            data = runs.log(name, each["name"], attempt=each["attempt"], offset=written.get(key, 0))
            out.write(data)
            written[key] = written.get(key, 0) + len(data)
            if each["state"] in _OVER:
                finished.add(key)
        if not to_end or status.get("phase") in ENDED:
            return
        time.sleep(_PAUSE_SECONDS)


def download_all(runs: WorkflowRuns, name: str, folder: Path, only: Sequence[str] = ()) -> None:
    """Unpack the artifacts of a run, each into a folder of its name."""
    found = [each for each in runs.artifacts(name) if not only or each["name"] in only]
    missing = [each for each in only if each not in [known["name"] for known in found]]
    if missing:
        known = ", ".join(each["name"] for each in runs.artifacts(name)) or "none"
        raise CliError(f"workflowrun {name} has no artifact {missing[0]}; it has {known}")
    for each in found:
        count = runs.download(name, each["name"], folder / each["name"])
        say(f"{folder / each['name']}: {count} files, {each['size']} bytes")


@contextmanager
def _display() -> "Iterator[Callable[[Run, Callable[[str], bytes]], None]]":
    if on_terminal():
        with _live() as show:
            yield show
    else:
        yield _Lines().show


class _Lines:
    """A line for each stage that begins or ends."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, int]] = {}

    def show(self, run: Run, _log: Callable[[str], bytes]) -> None:
        for each in run.get("status", {}).get("stages", ()):
            state = each["state"], each["attempt"]
            if each["state"] != "Waiting" and self._told.get(each["name"]) != state:
                self._told[each["name"]] = state
                note(plain(_stage_line(each)))


@contextmanager
def _live() -> "Iterator[Callable[[Run, Callable[[str], bytes]], None]]":
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), refresh_per_second=8) as live:

        def show(run: Run, log: Callable[[str], bytes]) -> None:
            lines = [_head(run)]
            for each in run.get("status", {}).get("stages", ()):
                lines.append(f"  {_stage_line(each)}")
                if each["state"] == "Running":
                    last = log(each["name"]).decode("utf-8", "replace").splitlines()[-_SHOWN_LINES:]
                    lines += [f"      | {one_line(line)[:160]}" for line in last]
            live.update(Text("\n".join(plain(each) for each in lines)))

        yield show


def _head(run: Run) -> str:
    status = run.get("status", {})
    message = f": {status['message']}" if status.get("message") else ""
    return f"{run['metadata']['name']} {status.get('phase', 'Pending')} {_seconds(status)}{message}"


def _stage_line(stage: Mapping[str, Any]) -> str:
    word = _MARKS.get(stage["state"], stage["state"].lower())
    again = f" (attempt {stage['attempt']})" if stage["attempt"] > 1 else ""
    message = f"  {stage['message']}" if stage.get("message") else ""
    return f"{stage['name']:<20} {word:<9} {_seconds(stage)}{again}{message}".rstrip()


def _seconds(part: Mapping[str, Any]) -> str:
    if not part.get("startTime"):
        return ""
    end = datetime.fromisoformat(part["completionTime"]).timestamp() if part.get("completionTime") else time.time()
    return f"{max(0.0, end - datetime.fromisoformat(part['startTime']).timestamp()):.1f}s"


def exit_code(run: Run) -> int:
    """Return 0 for a run that succeeded, 1 for others; their reason goes to stderr."""
    status = run.get("status", {})
    if status.get("phase") == "Succeeded":
        return 0
    sys.stdout.flush()
    condition: Mapping[str, str] = next(iter(status.get("conditions", ())), {})
    note(plain(f"workflowrun {run['metadata']['name']}: {condition.get('reason')}: {condition.get('message', '')}"))
    return 1
