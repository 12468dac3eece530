"""Values that the client returns, the same for `Paddock` and `AsyncPaddock`."""

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock._client.errors import ClientError, TimedOut

Object = Mapping[str, Any]
# Reasons of Ready=False that only a person ends: another spec, or something that the host lacks.
HOPELESS = frozenset(
    {
        *("NotSecured", "InvalidConfig", "NoDeviceDriver", "NoSeccompProfile", "LimitsNotApplied"),
        *("ImageMissing", "ImagePullFailed", "ImageBuildFailed", "ImageRefused"),
        *("AgentImageMissing", "EgressImageMissing"),
        *("TemplateNotFound", "HostUnknown", "MountRefused", "NameConflict", "ForeignContainer"),
    }
)
_SHOWN_CHARACTERS = 2000
MAX_OUTPUT_BYTES = 8 << 20  # of each stream of a command, if its caller asks for nothing else


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command, as text.

    `truncated`: of long output only head and tail were kept. `timed_out`: the command was killed at its timeout; its
    exit code is 124. `duration_seconds`: how long it ran, or None if that is unknown. `value`: if Python code
    ends in an expression, the value of that as a notebook shows it.

        result = sandbox.run("ls /workspace")
        if result.ok:
            print(result.stdout)
    """

    exit_code: int
    stdout: str
    stderr: str
    duration_seconds: float | None = None
    truncated: bool = False
    timed_out: bool = False
    value: str | None = None

    @property
    def ok(self) -> bool:
        """True for exit code 0."""
        return self.exit_code == 0

    @property
    def text(self) -> str:
        """Return the value of the last expression, else stdout without its last line break."""
        return self.stdout.removesuffix("\n") if self.value is None else self.value

    def check(self) -> "CommandResult":
        """Return this result. Raises CommandFailed for any exit code but 0."""
        if not self.ok:
            raise CommandFailed(self)
        return self


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of `run_task`. `files` are what was copied out, each with path, size and sha256; `run` its WorkflowRun.

    `metrics` has durationSeconds, promptTokens, completionTokens and toolCalls.
    """

    success: bool
    output: str
    error: str | None
    files: list[dict[str, Any]]
    metrics: Mapping[str, Any]
    run: str


class CommandFailed(ClientError):
    """A command ended with another exit code than 0; `result` has its output."""

    def __init__(self, result: CommandResult) -> None:
        outcome = (
            "the command timed out" if result.timed_out else f"the command failed with exit code {result.exit_code}"
        )
        output = (result.stderr.strip() or result.stdout.strip())[-_SHOWN_CHARACTERS:]
        super().__init__(f"{outcome}: {output}" if output else outcome)
        self.result = result


class SandboxFailed(ClientError):
    """The sandbox can't become what was waited for; `reason` is that of its condition."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class WaitTimedOut(TimedOut):
    """A wait ended before its condition held; the message says why it does not hold."""


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a command's output. `stream` is stdout or stderr; `text` never ends within a character."""

    stream: str
    text: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Metrics:
    """Resource usage of a sandbox. None: no limit, no network, or not reported."""

    cpu_percent: float
    """CPU in use; 100 is one busy core."""
    memory_bytes: int
    """Memory in use."""
    memory_limit_bytes: int | None
    """Limit of memory."""
    network_receive_bytes: int | None
    """Bytes received since its start."""
    network_transmit_bytes: int | None
    """Bytes sent since its start."""
    disk_read_bytes: int | None
    """Bytes read from disks since its start."""
    disk_write_bytes: int | None
    """Bytes written to disks since its start."""
    processes: int
    """Number of processes and threads."""
    uptime_seconds: float
    """Seconds since its start."""
    cpu_limit_percent: float | None = None
    """Limit of CPU."""
    processes_limit: int | None = None
    """Limit of processes and threads."""
    name: str = ""
    """Name of the sandbox."""
    host: str = ""
    """Host that runs it; empty where there is one host."""


@dataclass(frozen=True, slots=True)
class MetricsList:
    """Resource usage of the running sandboxes of a namespace, by their names.

    Those of hosts in `missing`, each with the reason, are not in it.
    """

    items: list[Metrics]
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PreviewLink:
    """Link to a port of a sandbox. `expires` is Unix seconds; programs send `token` in `X-Paddock-Preview-Token`."""

    url: str
    token: str
    expires: float


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of an object: `type` is ADDED, MODIFIED or DELETED, `object` its newest state."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class Change:
    """Result of one applied document: `created`, `configured` or `unchanged`."""

    kind: str
    name: str
    result: str


class KeptOutput:
    """Head and tail of one stream of output, half of the limit each; `omitted_bytes` were between."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes, self._tail_bytes = limit_bytes - limit_bytes // 2, limit_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self.omitted_bytes = 0

    def add(self, data: bytes) -> "KeptOutput":
        """Append data; drop the oldest of the tail."""
        free = self._head_bytes - len(self._head)
        self._head += data[:free]
        self._tail += data[free:]
        surplus = len(self._tail) - self._tail_bytes
        if surplus > 0:
            del self._tail[:surplus]
            self.omitted_bytes += surplus
        return self

    @property
    def text(self) -> str:
        """Return it as text, with a line that counts the omitted bytes."""
        mark = b"\n[... %d bytes left out ...]\n" % self.omitted_bytes if self.omitted_bytes else b""
        return (self._head + mark + self._tail).decode(errors="replace")


class KeptStreams:
    """Kept parts of a command's stdout and stderr."""

    def __init__(self, limit_bytes: int) -> None:
        self._streams = {name: KeptOutput(limit_bytes) for name in ("stdout", "stderr")}

    def add(self, stream: str, data: bytes) -> None:
        """Append output of one stream."""
        self._streams[stream].add(data)

    def result(
        self,
        exit_code: int,
        *,
        timed_out: bool,
        duration_seconds: float | None = None,
        truncated: bool = False,
        value: str | None = None,
    ) -> CommandResult:
        """Return the result of the ended command. `truncated`: some output had been left out before."""
        out, err = self._streams["stdout"], self._streams["stderr"]
        truncated = truncated or bool(out.omitted_bytes or err.omitted_bytes)
        return CommandResult(
            exit_code,
            out.text,
            stderr=err.text,
            duration_seconds=duration_seconds,
            truncated=truncated,
            timed_out=timed_out,
            value=value,
        )


class Decoder:
    """Text of two byte streams; a character cut between two pieces is whole again."""

    def __init__(self) -> None:
        class_ = codecs.getincrementaldecoder("utf-8")
        self._streams = {name: class_(errors="replace") for name in ("stdout", "stderr")}

    def output(self, stream: str, data: bytes) -> Output:
        """Return a piece with its text."""
        return Output(stream, self._streams[stream].decode(data), data)


def metrics_of(document: Mapping[str, Any]) -> Metrics:
    """Return the usage in a SandboxMetrics."""
    usage = document["usage"]
    return Metrics(
        cpu_percent=usage["cpuPercent"],
        memory_bytes=usage["memoryUsageBytes"],
        memory_limit_bytes=usage["memoryLimitBytes"],
        network_receive_bytes=usage["networkReceiveBytes"],
        network_transmit_bytes=usage["networkTransmitBytes"],
        disk_read_bytes=usage["diskReadBytes"],
        disk_write_bytes=usage["diskWriteBytes"],
        processes=usage["processes"],
        uptime_seconds=usage["uptimeSeconds"],
        cpu_limit_percent=usage.get("cpuLimitPercent"),
        processes_limit=usage.get("processesLimit"),
        name=document["metadata"]["name"],
        host=document.get("host") or "",
    )


def metrics_list_of(document: Mapping[str, Any]) -> MetricsList:
    """Return the usages in a SandboxMetricsList."""
    missing = {host["host"]: host["message"] for host in document.get("missing") or ()}
    return MetricsList([metrics_of(entry) for entry in document["items"]], missing)


def change_of(outcome: Mapping[str, Any]) -> Change:
    """Return one item of an ApplyResult."""
    return Change(outcome["kind"], outcome["metadata"]["name"], outcome["result"])


def condition_of(document: Object, type_: str) -> Mapping[str, Any] | None:
    """Return the condition of that type, whatever its case."""
    conditions = document.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if str(condition["type"]).lower() == type_.lower()), None)


def holds(document: Object, type_: str, status: str) -> bool:
    """Tell if the condition has that status, for the newest generation."""
    condition = condition_of(document, type_)
    if condition is None or str(condition["status"]).lower() != status.lower():
        return False
    return int(condition.get("observedGeneration", 0)) >= int(document["metadata"].get("generation", 0))


def failure_of(document: Object) -> tuple[str, str] | None:
    """Return reason and message of a sandbox that will not become Ready by itself, or None."""
    ready = condition_of(document, "Ready") or {}
    if ready.get("reason") in HOPELESS and holds(document, "Ready", "False"):
        return str(ready["reason"]), str(ready.get("message", ""))
    for type_, status in (("Accepted", "False"), ("Finished", "True")):
        if holds(document, type_, status):
            condition = condition_of(document, type_) or {}
            return str(condition.get("reason", type_)), str(condition.get("message", ""))
    return None


def is_building(document: Object | None) -> bool:
    """Return True while an image that the sandbox needs is being built."""
    ready = condition_of(document, "Ready") if document is not None else None
    return ready is not None and ready.get("reason") == "ImageBuilding"


def obstacle(document: Object, type_: str) -> str:
    """Describe why a condition does not hold."""
    condition = condition_of(document, type_)
    if condition is None:
        return f"it has no condition {type_} yet"
    message = f": {condition['message']}" if condition.get("message") else ""
    return f"{condition['type']}={condition['status']} {condition.get('reason', '')}{message}"
