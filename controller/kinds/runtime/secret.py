"""Secrets by name, and the port that knows them. A value is never part of anything that is kept, shown or logged."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A secret of the operator's, by its name in a namespace."""

    name: str


# Variables of a command: values, and secrets by their names.
Environment = Mapping[str, str | SecretRef]


class NoSecret(Exception):
    """The secret can't be used; says which one, why, and what to do."""
