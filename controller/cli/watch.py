"""Watches from the client's side, and the goals that `paddock wait` waits for."""

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import click

from controller.cli.client import Client
from controller.cli.kinds import Resource
from controller.client.errors import Refused, TimeIsOver, refusal

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


EXPIRED = "Expired"
_ASK_AGAIN_SECONDS = 0.5  # where there is nothing to watch
_TYPES = ("ADDED", "MODIFIED", "DELETED")
# What an object of that name is now (None: not there) -> whether that is what is waited for.
Done = Callable[[str, Object | None], bool]


@dataclass(frozen=True, slots=True)
class Event:
    """A change: `obj` is the object, or a Table of it where that was asked for."""

    type: str
    obj: Mapping[str, Any]


def name_params(names: Collection[str]) -> dict[str, str]:
    """What narrows a list or a watch down to one name; several have to be picked out by the client."""
    return {"fieldSelector": f"metadata.name={next(iter(names))}"} if len(names) == 1 else {}


def follow(
    client: Client,
    path: str,
    revision: str,
    params: Mapping[str, str],
    *,
    table: bool = False,
    deadline: float = math.inf,
) -> Iterator[Event]:
    """Every change after that revision, until `deadline` (time.monotonic). The server ends a watch now and then:
    then it is taken up where it was, which is always between two commits.

    Raises Refused (reason Expired: what comes next is not kept any more), and ClientError when the connection breaks.
    """
    while (left := deadline - time.monotonic()) > 0:
        query = {**params, "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": revision}
        try:
            with client.lines(path, query, table=table, seconds=left) as lines:
                for line in lines:
                    event = _event(json.loads(line))
                    revision = event.obj.get("metadata", {}).get("resourceVersion", revision)
                    if event.type in _TYPES:
                        yield event
                    if time.monotonic() > deadline:
                        return
        except TimeIsOver:
            return


def _event(found: Mapping[str, Any]) -> Event:
    if found["type"] == "ERROR":
        raise refusal(found["object"], int(found["object"].get("code", 500)))
    return Event(found["type"], found["object"])


def until(
    client: Client, resource: Resource, place: str, names: Collection[str], done: Done, deadline: float
) -> list[str]:
    """Wait until `done` was true once for each of these objects; the names for which it was not, when time is over.

    Each is asked about at least once; what `done` raises comes out of this.
    """
    left, params = list(dict.fromkeys(names)), name_params(names)
    while left:
        found = client.request("GET", resource.path(place), params=params)
        objects = {each["metadata"]["name"]: each for each in found["items"]}
        left = [name for name in left if not done(name, objects.get(name))]
        revision = found["metadata"]["resourceVersion"]
        if not left or time.monotonic() >= deadline:
            return left
        if not resource.watched:
            time.sleep(min(_ASK_AGAIN_SECONDS, max(0.0, deadline - time.monotonic())))
            continue
        try:
            _follow_until(follow(client, resource.path(place), revision, params, deadline=deadline), left, done)
        except Refused as error:
            if error.reason != EXPIRED:
                raise
    return left


def _follow_until(events: Iterator[Event], left: list[str], done: Done) -> None:
    """Take the names off `left` whose time has come."""
    for event in events:
        name = event.obj["metadata"]["name"]
        if name in left and done(name, None if event.type == "DELETED" else event.obj):
            left.remove(name)
        if not left:
            return
