"""Watches from the client's side, and the goals that `paddock wait` waits for."""

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import click

from controller.cli.client import Client
from controller.cli.objects.kinds import Resource
from controller.cli.text.output import note
from paddock._client.errors import ClientError, Refused, TimedOut, Unavailable, refusal

Object = Mapping[str, Any]
# Reasons of a condition that Paddock is already working on.
_UNDER_WAY = frozenset(("Creating", "Starting", "Claiming", "Unpausing", "Waking"))
_HELP = "write condition=Ready, condition=Ready=False, jsonpath='{.status.x}'=value, create or delete"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Reason that a goal is not reached yet; `message` is for people.

    An empty `reason` is normal progress, which is not printed. `counts`: the message says how far something is.
    """

    reason: str
    message: str
    counts: bool = False


class Goal(Protocol):
    """Goal of a wait. `reached` takes the current object (None: missing)."""

    reached_text: str  # what is printed once it is reached
    may_be_missing: bool

    def reached(self, obj: Object | None) -> bool: ...
    def why_not(self, obj: Object) -> Obstacle:
        """Return the obstacle that the object reports."""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition with that status, observed for the newest generation."""

    name: str
    status: str = "True"
    reached_text = "condition met"
    may_be_missing = False

    def reached(self, obj: Object | None) -> bool:
        condition = condition_of(obj, self.name) if obj is not None else None
        if obj is None or condition is None:
            return False
        return _is_current(condition, obj) and str(condition["status"]).lower() == self.status.lower()

    def why_not(self, obj: Object) -> Obstacle:
        condition = condition_of(obj, self.name)
        if condition is None:
            return Obstacle("", f"has no condition {self.name} yet")
        if not _is_current(condition, obj):
            return Obstacle("", f"{condition['type']} is not yet observed for the newest generation")
        return obstacle_of(condition)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Gone:
    """Deletion of the object."""

    reached_text = "deleted"
    may_be_missing = True

    def reached(self, obj: Object | None) -> bool:
        return obj is None

    def why_not(self, obj: Object) -> Obstacle:
        finalizers = ", ".join(obj["metadata"].get("finalizers", [])) or "none"
        state = "is being deleted" if "deletionTimestamp" in obj["metadata"] else "is not being deleted"
        message = f"{state}; finalizers: {finalizers}"
        return Obstacle(message, message)

    def __str__(self) -> str:
        return "deletion of"


@dataclass(frozen=True, slots=True)
class Created:
    """Existence of the object."""

    reached_text = "created"
    may_be_missing = True

    def reached(self, obj: Object | None) -> bool:
        return obj is not None

    def why_not(self, obj: Object) -> Obstacle:  # noqa: ARG002 - a Goal
        return Obstacle("", "exists now")

    def __str__(self) -> str:
        return "creation of"


@dataclass(frozen=True, slots=True)
class PathHolds:
    """A JSONPath with that value (None: with any value)."""

    path: str
    value: str | None
    reached_text = "condition met"
    may_be_missing = False

    def reached(self, obj: Object | None) -> bool:
        texts = [] if obj is None else self._texts(obj)
        return bool(texts) if self.value is None else self.value in texts

    def why_not(self, obj: Object) -> Obstacle:
        message = f"{self.path} is {' '.join(self._texts(obj)) or 'not set'}"
        ready = condition_of(obj, "Ready")
        if ready is None or ready["status"] == "True":
            return Obstacle("", message)
        why = obstacle_of(ready)
        return Obstacle(why.reason, f"{message}; {why.message}")

    def _texts(self, obj: Object) -> list[str]:
        from controller.cli.text.jsonpath import compile_path, text_of, values

        return [text_of(match) for match in values(compile_path(self.path), obj)]

    def __str__(self) -> str:
        return self.path


def condition_of(obj: Object, name: str) -> Mapping[str, Any] | None:
    """Return the condition of that name, ignoring case."""
    conditions = obj.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if str(condition["type"]).lower() == name.lower()), None)


def obstacle_of(condition: Mapping[str, Any]) -> Obstacle:
    """Describe a condition that is not met."""
    message = f": {condition['message']}" if condition.get("message") else ""
    status = f"{condition['type']}={condition['status']} {condition['reason']}"
    counts = condition["reason"] == IMAGE_BUILDING
    return Obstacle("" if condition["reason"] in _UNDER_WAY else status, f"{status}{message}", counts)


def _is_current(condition: Mapping[str, Any], obj: Object) -> bool:
    return int(condition.get("observedGeneration", 0)) >= int(obj["metadata"].get("generation", 0))


def goal_option(_ctx: click.Context, _param: click.Parameter, text: str) -> Goal:
    """Parse --for=TEXT."""
    if text in ("delete", "create"):
        return Gone() if text == "delete" else Created()
    word, _, argument = text.partition("=")
    if word == "condition" and argument:
        name, _, status = argument.partition("=")
        return Condition(name, status or "True")
    if word == "jsonpath" and argument.startswith("{"):
        path, brace, value = argument.rpartition("}")
        if brace and value[:1] in ("", "="):
            from controller.cli.text.jsonpath import compile_path

            compile_path(path + brace)
            return PathHolds(path + brace, value[1:] if value else None)
    raise click.BadParameter(_HELP)


EXPIRED = "Expired"
_POLL_SECONDS = 0.5  # for kinds that can't be watched
RESTART_SECONDS = 120.0  # that a daemon may be away while it is upgraded or restarted
IMAGE_BUILDING = "ImageBuilding"
_LONGEST_PAUSE_SECONDS = 2.0
_TYPES = ("ADDED", "MODIFIED", "DELETED")
# (name, current object or None) -> True when the wait for it is over.
Done = Callable[[str, Object | None], bool]


@dataclass(frozen=True, slots=True)
class Event:
    """One change; `obj` is the object, or its Table if asked for."""

    type: str
    obj: Mapping[str, Any]


class Outage:
    """An absence of the daemon, which is restarted or upgraded: a command that waits goes on after it."""

    def __init__(self, deadline: float = math.inf) -> None:
        """`deadline` (time.monotonic) is the command's own."""
        self._deadline = deadline
        self._ends = 0.0
        self._pause_seconds = 0.0

    def end(self) -> None:
        """Note that the daemon has answered."""
        self._ends = 0.0

    def pause(self, error: ClientError) -> None:
        """Pause until the next try. Raises the error if it is an answer, or once the daemon stays away."""
        if isinstance(error, Refused) and not isinstance(error, Unavailable):
            raise error
        now = time.monotonic()
        if not self._ends:
            self._ends, self._pause_seconds = now + RESTART_SECONDS, 0.1
            note(f"{error.message}; waiting for the daemon")
        seconds_left = min(self._ends, self._deadline) - now
        if seconds_left <= 0 and self._ends < self._deadline:
            raise error
        time.sleep(max(0.0, min(self._pause_seconds, seconds_left)))
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)


def name_params(names: Collection[str]) -> dict[str, str]:
    """Return the field selector for one name; several names are filtered by the client."""
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
    """Yield every change after that revision, until `deadline` (time.monotonic).

    The server ends a watch now and then, and a restart of the daemon does: it is resumed at the last revision.

    Raises Refused (reason Expired: the revision is too old), and ClientError when the daemon stays away.
    """
    outage = Outage(deadline)
    while (seconds_left := deadline - time.monotonic()) > 0:
        query = {**params, "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": revision}
        try:
            with client.lines(path, query, table=table, seconds=seconds_left) as lines:
                outage.end()
                for line in lines:
                    event = _event(json.loads(line))
                    revision = event.obj.get("metadata", {}).get("resourceVersion", revision)
                    if event.type in _TYPES:
                        yield event
                    if time.monotonic() > deadline:
                        return
        except TimedOut:
            return
        except ClientError as error:
            outage.pause(error)


def _event(line_object: Mapping[str, Any]) -> Event:
    if line_object["type"] == "ERROR":
        raise refusal(line_object["object"], int(line_object["object"].get("code", 500)))
    return Event(line_object["type"], line_object["object"])


def until(
    client: Client, resource: Resource, place: str, names: Collection[str], done: Done, deadline: float
) -> list[str]:
    """Wait until `done` is true for each of these objects; return the names that timed out.

    Each object is checked at least once; exceptions of `done` are passed on, but for those of a daemon that is
    restarted.
    """
    pending, outage = list(dict.fromkeys(names)), Outage(deadline)
    while pending:
        try:
            pending = _until(client, resource, place, pending=pending, done=done, deadline=deadline, outage=outage)
            break
        except ClientError as error:
            outage.pause(error)
            if time.monotonic() >= deadline:
                break
    return pending


def _until(
    client: Client, resource: Resource, place: str, pending: list[str], done: Done, deadline: float, outage: Outage
) -> list[str]:
    params = name_params(pending)
    while pending:
        page = client.request("GET", resource.path(place), params=params)
        outage.end()
        objects = {entry["metadata"]["name"]: entry for entry in page["items"]}
        pending = [name for name in pending if not done(name, objects.get(name))]
        revision = page["metadata"]["resourceVersion"]
        if not pending or time.monotonic() >= deadline:
            return pending
        if not resource.watched:
            time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
            continue
        try:
            _follow_until(follow(client, resource.path(place), revision, params, deadline=deadline), pending, done)
        except Refused as error:
            if error.reason != EXPIRED:
                raise
    return pending


def _follow_until(events: Iterator[Event], pending: list[str], done: Done) -> None:
    """Remove the names from `pending` that are done."""
    for event in events:
        name = event.obj["metadata"]["name"]
        if name in pending and done(name, None if event.type == "DELETED" else event.obj):
            pending.remove(name)
        if not pending:
            return
