"""Apply sets: objects applied together carry the set's name as a label, so that they can be pruned together."""

from collections.abc import Mapping
from typing import Any

from controller.kinds.base import Model, Name

LABEL = "paddock/applyset"


class ApplySetName(Model):
    """Validates the name of a set, which is a label's value."""

    name: Name
    """The name."""


def set_of(labels: Mapping[str, Any]) -> str:
    """Return the set that an object with these labels belongs to; "" for none."""
    return str(labels.get(LABEL) or "")
