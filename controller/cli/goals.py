"""What `paddock wait` can wait for, and how it says what stands in the way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import click

Object = Mapping[str, Any]
# Reasons for which a condition is not met yet while Paddock works on just that.
_UNDER_WAY = frozenset(("Creating", "Starting", "Claiming", "Unpausing"))
_HELP = "write condition=Ready, condition=Ready=False, jsonpath='{.status.x}'=value, create or delete"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way of a goal, in `words` for people.

    `reason` changes with what it is; empty: nothing that has to be told, as it takes its normal course.
    """

    reason: str
    words: str


class Goal(Protocol):
    """`reached` is said of the object as it is now (None: not there)."""

    said: str  # what is printed once it is reached
    may_be_missing: bool

    def reached(self, obj: Object | None) -> bool: ...
    def why_not(self, obj: Object) -> Obstacle:
        """What stands in the way, in the object's own words."""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of that status, stated of the newest generation."""

    name: str
    status: str = "True"
    said = "condition met"
    may_be_missing = False

    def reached(self, obj: Object | None) -> bool:
        found = condition_of(obj, self.name) if obj is not None else None
        if obj is None or found is None:
            return False
        return _is_current(found, obj) and str(found["status"]).lower() == self.status.lower()

    def why_not(self, obj: Object) -> Obstacle:
        found = condition_of(obj, self.name)
        if found is None:
            return Obstacle("", f"has no condition {self.name} yet")
        if not _is_current(found, obj):
            return Obstacle("", f"{found['type']} was not computed for its newest spec yet")
        return obstacle_of(found)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Gone:
    """The object is gone."""

    said = "deleted"
    may_be_missing = True

    def reached(self, obj: Object | None) -> bool:
        return obj is None

    def why_not(self, obj: Object) -> Obstacle:
        holders = ", ".join(obj["metadata"].get("finalizers", [])) or "nothing"
        asked = "is being deleted" if "deletionTimestamp" in obj["metadata"] else "was not asked to be deleted"
        words = f"{asked}; held by {holders}"
        return Obstacle(words, words)

    def __str__(self) -> str:
        return "deletion of"


@dataclass(frozen=True, slots=True)
class Created:
    """The object is there."""

    said = "created"
    may_be_missing = True

    def reached(self, obj: Object | None) -> bool:
        return obj is not None

    def why_not(self, obj: Object) -> Obstacle:  # noqa: ARG002 - a Goal
        return Obstacle("", "is there just now")

    def __str__(self) -> str:
        return "creation of"


@dataclass(frozen=True, slots=True)
class PathHolds:
    """A JSONPath leads to that value (None: to anything)."""

    path: str
    value: str | None
    said = "condition met"
    may_be_missing = False

    def reached(self, obj: Object | None) -> bool:
        found = [] if obj is None else self._found(obj)
        return bool(found) if self.value is None else self.value in found

    def why_not(self, obj: Object) -> Obstacle:
        words = f"{self.path} is {' '.join(self._found(obj)) or 'not there'}"
        ready = condition_of(obj, "Ready")
        if ready is None or ready["status"] == "True":
            return Obstacle("", words)
        why = obstacle_of(ready)
        return Obstacle(why.reason, f"{words}; {why.words}")

    def _found(self, obj: Object) -> list[str]:
        from controller.cli.jsonpath import compile_path, text_of, values

        return [text_of(each) for each in values(compile_path(self.path), obj)]

    def __str__(self) -> str:
        return self.path


def condition_of(obj: Object, name: str) -> Mapping[str, Any] | None:
    """The condition of that name, in whatever case."""
    conditions = obj.get("status", {}).get("conditions", [])
    return next((each for each in conditions if str(each["type"]).lower() == name.lower()), None)


def obstacle_of(condition: Mapping[str, Any]) -> Obstacle:
    """A condition that is not as it should be."""
    message = f": {condition['message']}" if condition.get("message") else ""
    status = f"{condition['type']}={condition['status']} {condition['reason']}"
    return Obstacle("" if condition["reason"] in _UNDER_WAY else status, f"{status}{message}")


def _is_current(condition: Mapping[str, Any], obj: Object) -> bool:
    return int(condition.get("observedGeneration", 0)) >= int(obj["metadata"].get("generation", 0))


def goal_option(_ctx: click.Context, _param: click.Parameter, text: str) -> Goal:
    """The goal of --for=TEXT."""
    if text in ("delete", "create"):
        return Gone() if text == "delete" else Created()
    word, _, rest = text.partition("=")
    if word == "condition" and rest:
        name, _, status = rest.partition("=")
        return Condition(name, status or "True")
    if word == "jsonpath" and rest.startswith("{"):
        path, brace, value = rest.rpartition("}")
        if brace and value[:1] in ("", "="):
            from controller.cli.jsonpath import compile_path

            compile_path(path + brace)
            return PathHolds(path + brace, value[1:] if value else None)
    raise click.BadParameter(_HELP)
