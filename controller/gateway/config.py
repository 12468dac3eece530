"""The gateway's configuration, as its process gets it: the sources of models, and who may use which."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Form = Literal["OpenAI", "Anthropic", "Any"]
REPORTED = ("Answering", "Unauthorized", "Unreachable", "NotAllowed")
"""States of a provider that the gateway reports."""
_MOST_LETTERS = 300
HOST = "host"
"""Id of the listener on the host."""
RUN = "run"
"""Stands for a listener in connections that the daemon opens for its own agent stages."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets of a source; None: unlimited."""

    requests_per_minute: int | None = None
    concurrent: int | None = None
    tokens_per_day: int | None = None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a source."""

    first_byte: float = 300.0
    idle: float = 120.0
    total: float = 3600.0


@dataclass(frozen=True, slots=True)
class Target:
    """A source of models."""

    id: str
    """Uid of the object."""
    namespace: str
    """Namespace of the object."""
    name: str
    """Name of the object."""
    form: Form
    """Form of its API."""
    models: tuple[str, ...]
    """Models that it serves."""
    base: str = ""
    """Address of a Provider; empty: a ModelServer, which the daemon connects to."""
    key: str = field(default="", repr=False)
    """Key that it is sent."""
    private: bool = False
    """Its address need not be public."""
    renamed: str = ""
    """The model's name at its server."""
    broken: str = ""
    """Reason why it can't be used; empty: it can."""
    authority: str = ""
    """The only authorities that sign its certificate (PEM); empty: those of this host."""
    limits: Limits = Limits()
    """Limits of its use."""
    timeouts: Timeouts = Timeouts()
    """Times within which it must answer."""

    @property
    def is_server(self) -> bool:
        return not self.base

    @property
    def subject(self) -> str:
        """The object, for messages."""
        return f"{'modelserver' if self.is_server else 'provider'} `{self.name}`"


@dataclass(frozen=True, slots=True)
class User:
    """Object whose requests are counted together: a sandbox, a run with agent stages, or a token used on the host."""

    namespace: str
    name: str
    kind: Literal["Sandbox", "WorkflowRun", "Token"] = "Sandbox"

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> "User":
        """Return the user of its JSON, of which nothing is trusted. Raises LookupError; ValueError."""
        if data["kind"] not in ("Sandbox", "WorkflowRun", "Token"):
            raise ValueError("a user of no known kind")
        return cls(str(data["namespace"])[:_MOST_LETTERS], str(data["name"])[:_MOST_LETTERS], data["kind"])


@dataclass(frozen=True, slots=True)
class Access:
    """One listener: `user` is the sandbox that uses it, `targets` are the ids of its sources in order."""

    user: User
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that the gateway serves. `listeners` are by id."""

    targets: Mapping[str, Target] = field(default_factory=dict)
    listeners: Mapping[str, Access] = field(default_factory=dict)

    def of_namespace(self, namespace: str) -> tuple[str, ...]:
        """Return the ids of all sources of a namespace, in order of their names."""
        targets = (target for target in self.targets.values() if target.namespace == namespace)
        return tuple(target.id for target in sorted(targets, key=lambda target: (target.is_server, target.name)))


def to_json(config: Config) -> dict[str, Any]:
    """Return the configuration as JSON."""
    return {
        "targets": [asdict(target) for target in config.targets.values()],
        "listeners": {name: asdict(access) for name, access in config.listeners.items()},
    }


def from_json(data: Mapping[str, Any]) -> Config:
    """Return the configuration of its JSON."""
    targets = [_target(target) for target in data["targets"]]
    listeners = {
        name: Access(User.of_json(access["user"]), tuple(access["targets"]))
        for name, access in data["listeners"].items()
    }
    return Config({target.id: target for target in targets}, listeners)


def _target(data: Mapping[str, Any]) -> Target:
    return Target(
        **{
            **data,
            "models": tuple(data["models"]),
            "limits": Limits(**data["limits"]),
            "timeouts": Timeouts(**data["timeouts"]),
        }
    )


def is_match(pattern: str, model: str) -> bool:
    """Return True if the pattern, where `*` stands for any characters, is of the whole name."""
    first, *pieces = pattern.split("*")
    if not pieces or not model.startswith(first):
        return pattern == model
    *middle, last = pieces
    at = len(first)
    for piece in middle:
        position = model.find(piece, at)
        if position < 0:
            return False
        at = position + len(piece)
    return model.endswith(last) and at + len(last) <= len(model)


def choose(targets: Sequence[Target], model: str) -> tuple[Target, str] | None:
    """Return the source that serves this model, and the model's name there; None: no source does.

    `NAME/MODEL` with the name of a source goes to that one; any other name to the first one that lists it.
    """
    prefix, _, model_name = model.partition("/")
    prefix_source = next((target for target in targets if target.name == prefix), None) if model_name else None
    if prefix_source is not None and any(is_match(pattern, model_name) for pattern in prefix_source.models):
        return prefix_source, prefix_source.renamed or model_name
    source = next((target for target in targets if any(is_match(pattern, model) for pattern in target.models)), None)
    return None if source is None else (source, source.renamed or model)
