"""Apply sets: what was applied together bears the set's name as a label, so that it can be pruned together."""

from collections.abc import Mapping
from typing import Any

from controller.kinds.base import Model, Name

LABEL = "paddock/applyset"


class ApplySetName(Model):
    """Checks the name of a set, which is a label's value."""

    name: Name
    """The name."""


def set_of(labels: Mapping[str, Any]) -> str:
    """The set that an object with these labels belongs to; empty for none."""
    return str(labels.get(LABEL) or "")
