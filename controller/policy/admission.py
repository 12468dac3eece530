"""The one admission function of all listeners. It returns all reasons at once.

The rules of a kind are in the module of this package with its name, in a function `admit(spec, policy)`; those for
its objects' names, if there are any, in `admit_name(name, policy)`.
"""

import importlib
import importlib.util

from controller.kinds.base import Model
from controller.kinds.registry import Kind
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal


def admit(kind: Kind, spec: Model, policy: Policy, name: str = "") -> tuple[Refusal, ...]:
    """Return every reason to refuse this spec; empty if it is admitted. A kind without a function here has no rules.

    `name` is the object's; "": of an object that is none by itself, such as a template within another.
    """
    module = f"controller.policy.{kind.name.lower()}"
    if importlib.util.find_spec(module) is None:
        return ()
    rules_module = importlib.import_module(module)
    rules, names = getattr(rules_module, "admit", None), getattr(rules_module, "admit_name", None)
    refusals: tuple[Refusal, ...] = rules(spec, policy) if rules else ()
    name_refusals: tuple[Refusal, ...] = names(name, policy) if names and name else ()
    return (*name_refusals, *refusals)
