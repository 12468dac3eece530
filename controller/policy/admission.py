"""The one admission function behind every door: all the reasons at once, none of them half-checked.

The rules of a kind live in the file of this room that bears its name, in a function `admit(spec, policy)`.
"""

import importlib
import importlib.util
from dataclasses import dataclass

from controller.kinds.base import Model
from controller.kinds.registry import Kind
from controller.policy.levels.levels import Policy


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why a spec is not admitted. `field` is the path below the document (`spec.template.user`)."""

    field: str
    message: str


def admit(kind: Kind, spec: Model, policy: Policy) -> tuple[Refusal, ...]:
    """Every reason to refuse this spec; empty when it is admitted. A kind without a file here has no rules."""
    name = f"controller.policy.{kind.name.lower()}"
    if importlib.util.find_spec(name) is None:
        return ()
    refusals: tuple[Refusal, ...] = importlib.import_module(name).admit(spec, policy)
    return refusals
