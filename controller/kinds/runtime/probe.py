"""Probes of a sandbox (startup, readiness, liveness) and their results.

Names, defaults and bounds are Kubernetes', with three differences: tcpSocket and httpGet always connect to the sandbox
itself (127.0.0.1 in its own network), redirects are not followed, and the readiness probe ends with its first success.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from controller.kinds.base import Form, Model, Text, Whole
from controller.kinds.runtime.run import Run

Argument = Annotated[Text, Field(max_length=131072, pattern=r"^[^\x00]*$"), Form("text without a NUL")]
Port = Annotated[Whole, Field(ge=1, le=65535)]


class ExecAction(Model):
    """A command in the sandbox, without a shell. Exit code 0 succeeds."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=64)]
    """The command and its arguments, without a shell."""


class HttpGetAction(Model):
    """A GET request inside the sandbox's network. A status from 200 to 399 succeeds. Redirects are not followed."""

    port: Port
    """Port in the sandbox."""
    path: Annotated[
        Text,
        Field(min_length=1, max_length=2048, pattern=r"^/[!-~]*$"),
        Form("starting with `/`, without spaces"),
    ] = "/"
    """Path of the request, with a query if there is one."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    """HTTP or HTTPS. Certificates are not verified."""
    host: Annotated[
        Text | None,
        Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:-]+$"),
        Form("a host, with an optional port"),
    ] = None
    """Host header; localhost if left out. The connection always goes to the sandbox itself."""


class TcpSocketAction(Model):
    """A TCP connection inside the sandbox's network. An accepted one succeeds."""

    port: Port
    """Port in the sandbox."""


class Probe(Model):
    """One of `exec`, `httpGet` and `tcpSocket`, and its schedule."""

    exec: ExecAction | None = None
    """A command in the sandbox. Exit code 0 succeeds; more than 64Ki of output fails."""
    http_get: HttpGetAction | None = None
    """A GET request to 127.0.0.1 in the sandbox. A status from 200 to 399 succeeds; redirects are not followed."""
    tcp_socket: TcpSocketAction | None = None
    """A TCP connection to 127.0.0.1 in the sandbox. An accepted one succeeds."""
    initial_delay_seconds: Annotated[Whole, Field(ge=0, le=86400)] = 0
    """Seconds from the start to the first probe."""
    period_seconds: Annotated[Whole, Field(ge=1, le=3600)] = 10
    """Seconds between probes."""
    timeout_seconds: Annotated[Whole, Field(ge=1, le=60)] = 1
    """Seconds after which a probe fails; its command is killed then."""
    success_threshold: Annotated[Whole, Field(ge=1, le=1000)] = 1
    """Consecutive successes after which the probe succeeds."""
    failure_threshold: Annotated[Whole, Field(ge=1, le=1000)] = 3
    """Consecutive failures after which the probe fails."""

    @model_validator(mode="after")
    def _one_action(self) -> "Probe":
        if sum(action is not None for action in (self.exec, self.http_get, self.tcp_socket)) != 1:
            raise ValueError("needs one of `exec:`, `httpGet:` and `tcpSocket:`, and not more")
        return self


class OneSuccessProbe(Probe):
    """A probe with a success threshold of one: startup and liveness, as in Kubernetes."""

    success_threshold: Annotated[Whole, Field(ge=1, le=1)] = 1
    """Consecutive successes after which the probe succeeds."""


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """The probes of one template, by name."""

    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None

    def __bool__(self) -> bool:
        return any(True for _ in self.by_name())

    def by_name(self) -> Iterator[tuple[str, Probe]]:
        """Yield (name, probe) of each probe that is set."""
        for name, probe in (("startup", self.startup), ("readiness", self.readiness), ("liveness", self.liveness)):
            if probe is not None:
                yield name, probe


NO_PROBES = ProbeSet()


@dataclass(frozen=True, slots=True)
class Watch:
    """One probe of one run, executed every period from `due` (Unix seconds) on. `pid` is PID 1's on the host."""

    name: str
    probe: Probe
    run: Run
    pid: int
    due: float

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one probe. `unknown`: it could not be run, which says nothing about the sandbox."""

    outcome: Literal["success", "failure", "unknown"]
    message: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """The last result of a probe, and its consecutive successes and failures, counted up to the thresholds."""

    last: ProbeResult
    successes: int = 0
    failures: int = 0


_NO_TALLIES: Mapping[str, Tally] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ProbeState:
    """The probes of one run and their results so far, by name. Replaced as a whole on each change."""

    run: Run
    watches: tuple[Watch, ...] = ()
    tallies: Mapping[str, Tally] = field(default_factory=lambda: _NO_TALLIES)


@dataclass(frozen=True, slots=True)
class ProbeProgress:
    """Probe state of a run: `started` and `ready` once the startup and the readiness probe have succeeded.

    `since` is when the wait for them began (Unix seconds; 0: no wait). `ended` is the reason for which the run is being
    stopped ("": it is not).
    """

    run: Run
    started: bool = False
    ready: bool = False
    since: float = 0.0
    ended: str = ""


def probe_progress_from_json(data: Mapping[str, Any]) -> ProbeProgress:
    """Return the state from its JSON; the inverse of dataclasses.asdict."""
    return ProbeProgress(**{**data, "run": Run(str(data["run"][0]), float(data["run"][1]))})
