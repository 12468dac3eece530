"""The one admission function of all listeners. It returns all reasons at once.

The rules of a kind are in the module of this package with its name, in a function `admit(spec, policy)`.
"""

import importlib
import importlib.util
from dataclasses import dataclass

from controller.kinds.base import Model
from controller.kinds.registry import Kind
from controller.policy.levels.levels import Policy


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse a spec. `field` is the path below the document (`spec.template.user`)."""

    field: str
    message: str


def admit(kind: Kind, spec: Model, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse this spec; empty if it is admitted. A kind without a function here has no rules."""
    name = f"controller.policy.{kind.name.lower()}"
    if importlib.util.find_spec(name) is None:
        return ()
    rules = getattr(importlib.import_module(name), "admit", None)
    refusals: tuple[Refusal, ...] = rules(spec, policy) if rules else ()
    return refusals
