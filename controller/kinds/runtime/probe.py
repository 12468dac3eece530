"""Probes: what a sandbox is asked to see whether it has started, is ready, and still lives; and what came of it.

The words, defaults and bounds are Kubernetes', with three differences: tcpSocket and httpGet always reach the box
itself (127.0.0.1 in its own network), redirects are not followed, and the readiness probe ends once it has passed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from controller.kinds.base import Form, Model, Text, Whole

Argument = Annotated[Text, Field(max_length=131072, pattern=r"^[^\x00]*$"), Form("text without a NUL")]
Port = Annotated[Whole, Field(ge=1, le=65535)]


class ExecAction(Model):
    """A command in the box: exit code 0 passes. Without a shell."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=64)]
    """The command and its arguments, without a shell."""


class HttpGetAction(Model):
    """A GET request from inside the box's network: a status from 200 to 399 passes. Redirects are not followed."""

    port: Port
    """The port in the sandbox."""
    path: Annotated[
        Text,
        Field(min_length=1, max_length=2048, pattern=r"^/[!-~]*$"),
        Form("starting with `/`, without spaces"),
    ] = "/"
    """The path, with a query if there is one."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    """HTTPS looks at no certificate."""
    host: Annotated[
        Text | None,
        Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:-]+$"),
        Form("a host, with a port"),
    ] = None
    """The Host header; localhost if left out. The request always goes to the sandbox itself."""


class TcpSocketAction(Model):
    """A connection from inside the box's network: one that is taken passes."""

    port: Port
    """The port in the sandbox."""


class Probe(Model):
    """One of `exec`, `httpGet` and `tcpSocket`, and how often it is asked."""

    exec: ExecAction | None = None
    """A command in the sandbox; exit code 0 passes. Writing more than 64Ki fails."""
    http_get: HttpGetAction | None = None
    """A GET request to 127.0.0.1 in the sandbox; a status from 200 to 399 passes; no redirect is followed."""
    tcp_socket: TcpSocketAction | None = None
    """A connection to 127.0.0.1 in the sandbox; one that is taken passes."""
    initial_delay_seconds: Annotated[Whole, Field(ge=0, le=86400)] = 0
    """Seconds after the start before it is asked first."""
    period_seconds: Annotated[Whole, Field(ge=1, le=3600)] = 10
    """Seconds from one time to the next."""
    timeout_seconds: Annotated[Whole, Field(ge=1, le=60)] = 1
    """Seconds after which it has failed; a command is killed then."""
    success_threshold: Annotated[Whole, Field(ge=1, le=1000)] = 1
    """Successes in a row that it takes to pass."""
    failure_threshold: Annotated[Whole, Field(ge=1, le=1000)] = 3
    """Failures in a row that it takes to fail."""

    @model_validator(mode="after")
    def _one_action(self) -> "Probe":
        if sum(each is not None for each in (self.exec, self.http_get, self.tcp_socket)) != 1:
            raise ValueError("needs one of `exec:`, `httpGet:` and `tcpSocket:`, and not more")
        return self


class OneSuccessProbe(Probe):
    """A probe for which one success is enough: startup and liveness, as in Kubernetes."""

    success_threshold: Annotated[Whole, Field(ge=1, le=1)] = 1
    """Successes in a row that it takes to pass."""


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """The probes of one template, by name."""

    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None

    def __bool__(self) -> bool:
        return any(True for _ in self.named())

    def named(self) -> Iterator[tuple[str, Probe]]:
        """(name, probe) of each that is asked."""
        for name, probe in (("startup", self.startup), ("readiness", self.readiness), ("liveness", self.liveness)):
            if probe is not None:
                yield name, probe


NO_PROBES = ProbeSet()


Run = tuple[str, float]  # container id and time of start: results never outlive it


@dataclass(frozen=True, slots=True)
class Watch:
    """One probe of one run, asked every period from `due` (Unix seconds) on. `pid` is the host's of its PID 1."""

    name: str
    probe: Probe
    run: Run
    pid: int
    due: float

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one probe came to. `unknown`: it could not be run, which says nothing of the box."""

    outcome: Literal["success", "failure", "unknown"]
    message: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """The last result of a probe, and how many of a sort came in a row, counted up to the probe's threshold."""

    last: ProbeResult
    successes: int = 0
    failures: int = 0


_NO_TALLIES: Mapping[str, Tally] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Probed:
    """The probes asked of one run, and what they came to so far, by name. Replaced whole when something changes."""

    run: Run
    watches: tuple[Watch, ...] = ()
    tallies: Mapping[str, Tally] = field(default_factory=lambda: _NO_TALLIES)


@dataclass(frozen=True, slots=True)
class Checked:
    """What is remembered of a run's probes: whether its startup and its readiness probe have passed.

    `since` is when the waiting for them began (Unix seconds; 0: nothing is waited for). `ended` is the reason for which
    the run is being stopped ("" when it is not).
    """

    run: Run
    started: bool = False
    ready: bool = False
    since: float = 0.0
    ended: str = ""


def checked_from_json(data: Mapping[str, Any]) -> Checked:
    """The inverse of dataclasses.asdict."""
    return Checked(**{**data, "run": (str(data["run"][0]), float(data["run"][1]))})
