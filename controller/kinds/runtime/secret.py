"""Secrets by name. A value is never stored, shown or logged."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SecretRef:
    """An operator's secret, by its name in a namespace."""

    name: str


@dataclass(frozen=True, slots=True)
class SecretStamp:
    """The state of a secret's file in `folder`: `stamp` is another one after each change, and "" without a file."""

    folder: str
    name: str
    stamp: str


@dataclass(frozen=True, slots=True)
class ListedSecret:
    """A secret without its value. `changed_at` is Unix seconds. `use`: providers, sandboxes, or a host's name.

    `hosts` (host:port) are those that a provider's key may be sent to.
    """

    namespace: str
    use: str
    name: str
    changed_at: float
    hosts: tuple[str, ...] = ()


# Variables of a command: values, and secrets by their names.
Environment = Mapping[str, str | SecretRef]


SECRET_MISSING = "SecretMissing"  # noqa: S105 - a reason


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A provider's key, and the hosts (host:port) that it may be sent to; None: any, as sandboxes can read it."""

    value: str = field(repr=False)
    hosts: tuple[str, ...] | None


class NoSecret(Exception):
    """The secret can't be used; the message names it, the reason, and the remedy."""


class SecretNotFound(NoSecret):
    """There is no secret of that name."""


def providers_folder(namespace: str) -> str:
    """Return the folder of the keys of a namespace's providers: no sandbox can name it, since it is no namespace."""
    return f"{namespace}.models"


def hosts_file(name: str) -> str:
    """Return the file beside a provider's key that names its hosts. No secret has a name with a dot."""
    return f"{name}.hosts"
