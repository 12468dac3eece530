"""A workflow run on the command line: its progress as a build shows it, its logs, its artifacts."""

import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli.calls.workflows import ENDED, WorkflowRuns
from controller.cli.errors import CliError
from controller.cli.safe_text import one_line, plain
from controller.cli.text.output import note, on_terminal, say
from controller.kinds.common.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.cli.text.terminal_filter import Output

_PAUSE_SECONDS = 0.2
_SHOWN_LINES = 5  # of the output of a stage that runs
_MARKS = {"Succeeded": "ok", "Failed": "FAILED", "Skipped": "skipped", "Cancelled": "cancelled"}
_OVER = (*_MARKS,)
_STYLES = {
    "Waiting": "not bold dim",
    "Running": "not bold yellow",
    "Succeeded": "not bold green",
    "Failed": "bold red",
    "Skipped": "not bold dim",
    "Cancelled": "not bold magenta",
}
_FAILURE_LINES = 20  # of the output of a stage that failed
Run = Mapping[str, Any]
Log = Callable[[str], bytes]


def run_name(workflow: str) -> str:
    """Return a new name for a run of a workflow."""
    return f"{workflow[:44].rstrip('-')}-{secrets.token_hex(3)}"


def parameters_of(assignments: Sequence[str]) -> list[dict[str, str]]:
    """Return parameters from NAME=VALUE words. Raises CliError."""
    wrong = [assignment for assignment in assignments if not assignment.partition("=")[0] or "=" not in assignment]
    if wrong:
        raise CliError(f"-p {wrong[0]}: not a parameter; write -p NAME=VALUE")
    return [
        {"name": name, "value": value} for name, _, value in (assignment.partition("=") for assignment in assignments)
    ]


def follow(runs: WorkflowRuns, name: str, seconds: float | None) -> Run:
    """Show the progress of a run on stderr until it has ended, and return it. Raises CliError after `seconds`."""
    until = None if seconds is None else time.monotonic() + seconds
    with _display() as show:
        while True:
            run = runs.get(name)
            show(run, lambda stage: runs.log(name, stage))
            if run.get("status", {}).get("phase") in ENDED:
                break
            if until is not None and time.monotonic() >= until:
                raise CliError(f"workflowrun {name} has not ended; `paddock workflow logs -f {name}` follows it")
            time.sleep(_PAUSE_SECONDS)
    _show_failures(runs, run, name)
    return run


def _show_failures(runs: WorkflowRuns, run: Run, name: str) -> None:
    """Show the last output of the stages that failed: it is what one looks for."""
    for stage in _stages(run):
        if stage["state"] != "Failed":
            continue
        if lines := _last(runs.log(name, stage["name"]), _FAILURE_LINES):
            note(f"--- last output of {stage['name']} ---")
            for line in lines:
                note(line)


def cancel_run(runs: WorkflowRuns, name: str) -> None:
    """Cancel a run. Raises CliError for one that was cancelled too late, and Refused for one that had ended before."""
    phase = runs.cancel(name).get("status", {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        raise CliError(f"workflowrun {name} has already ended ({phase}), and there is nothing to cancel")


def follow_logs(runs: WorkflowRuns, name: str, stage: str, out: "Output", *, to_end: bool) -> None:
    """Write the output of a stage, or of all in the order of their starts; `to_end`: until the run has ended.

    Raises CliError for a stage that the run has not.
    """
    lengths: dict[tuple[str, int], int] = {}
    finished: set[tuple[str, int]] = set()
    while True:
        run = runs.get(name)
        status = run.get("status", {})
        stage_names = [known_stage["name"] for known_stage in status.get("stages", ())]
        if stage and stage not in stage_names:
            raise CliError(f"workflowrun {name} has no stage {stage}; it has {', '.join(stage_names)}")
        stages = [
            run_stage
            for run_stage in status.get("stages", ())
            if run_stage["attempt"] and (not stage or run_stage["name"] == stage)
        ]
        for run_stage in sorted(stages, key=lambda run_stage: run_stage.get("startTime", "")):
            key = (run_stage["name"], run_stage["attempt"])
            if key in finished:
                continue
            if key not in lengths and not stage:
                out.write(f"== {run_stage['name']}\n".encode())
            data = runs.log(name, run_stage["name"], attempt=run_stage["attempt"], offset=lengths.get(key, 0))
            out.write(data)
            lengths[key] = lengths.get(key, 0) + len(data)
            if run_stage["state"] in _OVER:
                finished.add(key)
        if not to_end or status.get("phase") in ENDED:
            return
        time.sleep(_PAUSE_SECONDS)


def download_all(runs: WorkflowRuns, name: str, folder: Path, only: Sequence[str] = ()) -> None:
    """Unpack the artifacts of a run, each into a folder of its name."""
    artifacts = [artifact for artifact in runs.artifacts(name) if not only or artifact["name"] in only]
    missing = [
        artifact_name for artifact_name in only if artifact_name not in [artifact["name"] for artifact in artifacts]
    ]
    if missing:
        known_names = ", ".join(artifact["name"] for artifact in runs.artifacts(name)) or "none"
        raise CliError(f"workflowrun {name} has no artifact {missing[0]}; it has {known_names}")
    for artifact in artifacts:
        count = runs.download(name, artifact["name"], folder / artifact["name"])
        say(f"{folder / artifact['name']}: {counted(count, 'file')}, {counted(file_bytes(artifact), 'byte')}")


def file_bytes(artifact: Mapping[str, Any]) -> int:
    """Return the bytes of an artifact's files; its `size` is that of the archive with them."""
    return sum(file["size"] for file in artifact["files"])


@contextmanager
def _display() -> "Iterator[Callable[[Run, Log], None]]":
    if on_terminal():
        with _live() as show:
            yield show
    else:
        yield _Lines().show


class _Lines:
    """A line for each stage that begins or ends."""

    def __init__(self) -> None:
        self._printed: dict[str, tuple[str, int]] = {}

    def show(self, run: Run, _log: Log) -> None:
        stages = _stages(run)
        for stage in stages:
            state = stage["state"], stage["attempt"]
            has_begun = stage["state"] != "Waiting" or stage["attempt"]
            if has_begun and self._printed.get(stage["name"]) != state:
                self._printed[stage["name"]] = state
                note(plain(_stage_line(stage, _width(stages))))


@contextmanager
def _live() -> "Iterator[Callable[[Run, Log], None]]":
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True, highlight=False), refresh_per_second=8) as live:

        def show(run: Run, log: Log) -> None:
            text, stages = Text(plain(_head(run)), style="bold"), _stages(run)
            for stage in stages:
                text.append(f"\n  {plain(_stage_line(stage, _width(stages)))}", style=_STYLES[stage["state"]])
                if stage["state"] == "Running":
                    for line in _last(log(stage["name"]), _SHOWN_LINES):
                        text.append(f"\n      | {line}", style="not bold dim")
            live.update(text)

        yield show


def _stages(run: Run) -> Sequence[Mapping[str, Any]]:
    stages: Sequence[Mapping[str, Any]] = run.get("status", {}).get("stages", ())
    return stages


def _last(log: bytes, count: int) -> list[str]:
    return [one_line(line)[:160] for line in log.decode("utf-8", "replace").splitlines()[-count:]]


def _width(stages: Sequence[Mapping[str, Any]]) -> int:
    return max((len(stage["name"]) for stage in stages), default=0)


def _head(run: Run) -> str:
    status = run.get("status", {})
    message = f": {status['message']}" if status.get("message") and status.get("phase") not in ENDED else ""
    return f"{run['metadata']['name']} {status.get('phase', 'Pending')} {_seconds(status)}{message}"


def _stage_line(stage: Mapping[str, Any], width: int) -> str:
    word = _MARKS.get(stage["state"], stage["state"].lower())
    if stage["state"] == "Waiting" and stage["attempt"]:
        again = f" (attempt {stage['attempt']} failed: {stage.get('message') or stage.get('reason', '')})"
        return f"{stage['name']:<{width}}  {'retrying':<9} {_seconds(stage)}{again}".rstrip()
    again = f" (attempt {stage['attempt']})" if stage["attempt"] > 1 else ""
    message = f"  {stage['message']}" if stage.get("message") else ""
    return f"{stage['name']:<{width}}  {word:<9} {_seconds(stage)}{again}{message}".rstrip()


def _seconds(span: Mapping[str, Any]) -> str:
    if not span.get("startTime"):
        return ""
    end = datetime.fromisoformat(span["completionTime"]).timestamp() if span.get("completionTime") else time.time()
    return f"{max(0.0, end - datetime.fromisoformat(span['startTime']).timestamp()):.1f}s"


def exit_code(run: Run) -> int:
    """Return 0 for a run that succeeded, 1 for others; their reason goes to stderr."""
    status = run.get("status", {})
    if status.get("phase") == "Succeeded":
        return 0
    sys.stdout.flush()
    condition: Mapping[str, str] = next(iter(status.get("conditions", ())), {})
    note(plain(f"workflowrun {run['metadata']['name']}: {condition.get('reason')}: {condition.get('message', '')}"))
    return 1
