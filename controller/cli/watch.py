"""Watching from the client's side: the lines of a watch as events, on and on; and waiting for objects by it."""

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.cli.client import Client
from controller.cli.kinds import Resource
from controller.client.errors import Refused, TimeIsOver, refusal

EXPIRED = "Expired"
_ASK_AGAIN_SECONDS = 0.5  # where there is nothing to watch
_TYPES = ("ADDED", "MODIFIED", "DELETED")
Object = Mapping[str, Any]
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
