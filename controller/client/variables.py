"""Variables of a command: values, and secrets by their names, which the daemon puts in."""

from collections.abc import Mapping
from typing import Any


class Secret(str):
    """The name of a secret of the sandbox's namespace, in the place of a variable's value."""

    __slots__ = ()


def as_json(env: Mapping[str, str] | None) -> dict[str, Any]:
    """As a request's body has them."""
    return {name: {"secret": str(each)} if isinstance(each, Secret) else each for name, each in (env or {}).items()}


def as_query(env: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """As a query has them."""
    return [("secret" if isinstance(each, Secret) else "env", f"{name}={each}") for name, each in (env or {}).items()]
