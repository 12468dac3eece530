"""Objects of any kind: templates, pools, quotas, volumes, sandboxes."""

import json as json_
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from paddock._client.connection import segment
from paddock._client.errors import Expired, TimedOut, refusal
from paddock._models import Object, WaitTimedOut, WatchEvent
from paddock._transport.aio import AsyncTransport

_MERGE = "application/merge-patch+json"
_YAML = "application/yaml"
_TYPES = ("ADDED", "MODIFIED", "DELETED")
_PAGE, _EVENTS = 500, "events"
# None: the object is missing.
Done = Callable[[Object | None], bool]


class AsyncObjects:
    """Objects of one kind in a namespace, as dictionaries.

    for pool in await paddock.pools.list():
        print(pool["metadata"]["name"], pool["status"].get("readyReplicas"))
    """

    def __init__(self, transport: AsyncTransport, namespace: str | None, plural: str) -> None:
        self._transport, self.namespace, self.plural = transport, namespace, plural

    async def list(self, *, selector: str = "") -> list[dict[str, Any]]:
        """List the objects; `selector` by label (`app=web,tier!=db`). They are read in pages."""
        objects: list[dict[str, Any]] = []
        async for items, _ in self._pages(_non_empty(labelSelector=selector)):
            objects += items
        return objects

    async def _pages(self, query: Mapping[str, str]) -> AsyncIterator[tuple[Sequence[dict[str, Any]], str]]:
        """Yield the items of each page of a list, and the revision that a watch of the whole list begins at."""
        # The newest so many are all that a limit of events means.
        page_query = dict(query) if self.plural == _EVENTS else {**query, "limit": str(_PAGE)}
        while True:
            page = await self._transport.request("GET", self._path(), params=page_query)
            yield page["items"], page["metadata"].get("resourceVersion", "")
            if not page["metadata"].get("continue"):
                return
            page_query["continue"] = page["metadata"]["continue"]

    async def get(self, name: str) -> dict[str, Any]:
        """Return one object. Raises NotFound."""
        document: dict[str, Any] = await self._transport.request("GET", self._path(name))
        return document

    async def create(self, document: Mapping[str, Any] | str) -> dict[str, Any]:
        """Create an object from a document, or from its YAML text. Raises AlreadyExists, Invalid."""
        if isinstance(document, str):
            answer = await self._transport.request("POST", self._path(), text=document, content_type=_YAML)
        else:
            answer = await self._transport.request("POST", self._path(), json=document)
        created: dict[str, Any] = answer
        return created

    async def patch(self, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Change fields of an object by a merge patch: None removes a field, a list is replaced as a whole."""
        patched: dict[str, Any] = await self._transport.request(
            "PATCH", self._path(name), json=change, content_type=_MERGE
        )
        return patched

    async def delete(self, name: str, *, wait: bool = False, timeout: float = 60.0) -> None:
        """Request the deletion of an object; `wait`: until it is gone. Raises NotFound, WaitTimedOut."""
        await self._transport.request("DELETE", self._path(name))
        if wait:
            await self.wait(name, lambda current: current is None, timeout=timeout, reason=lambda _: "it still exists")

    async def watch(
        self, *, name: str = "", selector: str = "", timeout: float | None = None
    ) -> AsyncIterator[WatchEvent]:
        """Yield the existing objects as ADDED, then every change, until `timeout` seconds are over.

        The existing ones are listed in pages. A revision that is too old is listed again: an object may be reported
        twice.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        chosen = _non_empty(labelSelector=selector, fieldSelector=f"metadata.name={name}" if name else "")
        revision = ""
        while (seconds_left := _seconds_left(deadline)) > 0:
            if not revision:
                async for items, listed in self._pages(chosen):
                    for existing in items:
                        yield WatchEvent("ADDED", existing)
                    revision = listed or "0"
                continue
            query = {
                **chosen,
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": revision,
            }
            try:
                async with self._transport.lines(self._path(), query, seconds_left) as lines:
                    async for line in lines:
                        type_, document = _event(line)
                        revision = document.get("metadata", {}).get("resourceVersion", revision)
                        if type_ in _TYPES:
                            yield WatchEvent(type_, document)
                        if _seconds_left(deadline) <= 0:
                            return
            except Expired:
                revision = ""
            except TimedOut:
                return

    async def wait(
        self,
        name: str,
        done: Done,
        *,
        timeout: float,
        reason: Callable[[Object | None], str],
        goes_on: Callable[[Object | None], bool] = lambda _: False,
    ) -> Object | None:
        """Wait until `done` holds for an object; return it. Raises WaitTimedOut with the `reason` of the last state.

        `goes_on`: this state is no reason to give up; another `timeout` begins.
        """
        deadline = time.monotonic() + timeout
        last: Object | None = None
        while True:
            query = {"fieldSelector": f"metadata.name={name}"}
            page = await self._transport.request("GET", self._path(), params=query)
            last = next(iter(page["items"]), None)
            if done(last):
                return last
            query |= {"watch": "true", "allowWatchBookmarks": "true"}
            query["resourceVersion"] = page["metadata"]["resourceVersion"]
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0 and goes_on(last):
                deadline, seconds_left = time.monotonic() + timeout, timeout
            if seconds_left <= 0:
                raise WaitTimedOut(f"{self.plural}/{name}: not reached within {timeout:g} s: {reason(last)}")
            try:
                async with self._transport.lines(self._path(), query, seconds_left) as lines:
                    async for line in lines:
                        type_, changed = _event(line)
                        if type_ in _TYPES:
                            last = None if type_ == "DELETED" else changed
                            if done(last):
                                return last
                        if time.monotonic() >= deadline:
                            break
            except (Expired, TimedOut):
                continue

    def _path(self, name: str = "") -> str:
        place = "" if self.namespace is None else f"namespaces/{segment(self.namespace)}/"
        return f"{place}{segment(self.plural)}" + (f"/{segment(name)}" if name else "")


def _event(line: str) -> tuple[str, dict[str, Any]]:
    event = json_.loads(line)
    if event["type"] == "ERROR":
        raise refusal(event["object"], int(event["object"].get("code", 500)))
    return event["type"], event["object"]


def _seconds_left(deadline: float | None) -> float:
    return float("inf") if deadline is None else deadline - time.monotonic()


def _non_empty(**params: str) -> dict[str, str]:
    return {key: value for key, value in params.items() if value}
