"""Updates of resources for `subscriptions/listen`. Nothing runs while nobody is subscribed.

A sandbox's own resource follows the store. Logs, files and metrics have no change feed: they are looked at every two
seconds while somebody is subscribed to them. Only their sandbox's host can look: a subscription of those is served by
that host's daemon, and acknowledges none of sandboxes of other hosts.
"""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import anyio
import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, SubscriptionsListenRequestParams, SubscriptionsListenResult

from controller.kinds.access.access import AccessRequest
from controller.kinds.sandbox import KIND as SANDBOX
from controller.mcp.calls import Calls, Options
from controller.mcp.resources import MOST_URIS, Target, target_of, tool_of
from controller.mcp.tool import IsHere
from controller.policy.access import is_work
from controller.ports import StreamError
from controller.service.access import access
from controller.service.errors import ServiceError
from controller.service.services import Services
from controller.service.watch.watcher import Watch, WatchEvent

_POLL_SECONDS = 2.0
_log = structlog.get_logger("paddock.mcp")


class Updates:
    """Publishes changes of subscribed resources. For one event loop."""

    def __init__(self, services: Services, calls: Calls, is_here: IsHere | None = None) -> None:
        """Without `is_here`, there is one host."""
        self._services, self._calls, self._is_here = services, calls, is_here
        self._served: list[tuple[frozenset[str], anyio.CancelScope]] = []
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._followed: Counter[str] = Counter()
        self._seen: dict[str, str] = {}  # fingerprints of polled resources
        self._tasks: list[asyncio.Task[None]] = []
        self._watching = asyncio.Event()

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams, options: Options
    ) -> SubscriptionsListenResult:
        """Serve one subscription, of the resources among these that the caller may read.

        It ends when a sandbox of them has moved to another host: the client asks again.
        """
        notifications = params.notifications
        uris = [
            uri for uri in (notifications.resource_subscriptions or ())[:MOST_URIS] if self._may_follow(uri, options)
        ]
        try:
            uris = await anyio.to_thread.run_sync(self._record_uses, uris)
        except ServiceError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        honoured = notifications.model_copy(
            update={"resource_subscriptions": uris, "tools_list_changed": None, "prompts_list_changed": None}
        )
        served = frozenset(uris), anyio.CancelScope()
        self._served.append(served)
        try:
            with served[1]:
                async with self._following(uris or [""]):
                    return await self._listen(ctx, params.model_copy(update={"notifications": honoured}))
        finally:
            self._served.remove(served)
        return SubscriptionsListenResult(_meta={SUBSCRIPTION_ID_META_KEY: ctx.request_id})

    def _record_uses(self, uris: Sequence[str]) -> list[str]:
        """Return those that can be followed here. The audit log gets the work in sandboxes. Raises ServiceError."""
        elsewhere = {uri for uri, target in _polled_targets(uris) if self._has_left(target)}
        uris = [uri for uri in uris if uri not in elsewhere]
        for _, target in _polled_targets(uris):
            ask = AccessRequest("get", SANDBOX.name, target.namespace, target.name, target.subresource)
            if is_work(ask):
                self._services.recorder.record_use(ask, {"tool": tool_of(target).name, "subscription": True})
        return uris

    def _has_left(self, target: Target) -> bool:
        """Return True if the sandbox is another host's. Raises ServiceError."""
        return self._is_here is not None and not self._is_here(target.namespace, target.name)

    def _may_follow(self, uri: str, options: Options) -> bool:
        target = target_of(uri)
        if target is None or target.subresource == "output":  # it never changes
            return False
        tool = tool_of(target)
        with access.through(tool.name):
            ask = AccessRequest("get", SANDBOX.name, target.namespace, target.name, target.subresource)
            return self._calls.visible(tool, options) and access.may(ask)

    @contextlib.asynccontextmanager
    async def _following(self, uris: Sequence[str]) -> AsyncIterator[None]:
        """Follow these from before the block on, so that no change after the acknowledgement is missed."""
        self._followed.update(uris)
        try:
            if not self._tasks:
                self._watching = asyncio.Event()
                self._tasks = [asyncio.create_task(self._watch(self._watching)), asyncio.create_task(self._poll())]
            for uri, target in _polled_targets(uris):
                if uri not in self._seen:
                    fingerprint = await anyio.to_thread.run_sync(self._fingerprint, target)
                    self._seen[uri] = fingerprint or ""
            await self._watching.wait()
            yield
        finally:
            self._followed.subtract(uris)
            self._followed += Counter()  # drops what nobody follows
            self._seen = {uri: fingerprint for uri, fingerprint in self._seen.items() if uri in self._followed}
            if not self._followed:
                for task in self._tasks:
                    task.cancel()
                self._tasks = []

    async def _watch(self, watching: asyncio.Event) -> None:
        """Publish changes of sandboxes."""
        while True:
            try:
                await self._publish_changes(watching)
            except ServiceError as error:
                _log.warning("resource updates waiting", error=str(error))
            except Exception:  # else every subscription would wait for ever, without a word
                _log.exception("resource updates failed")
            watching.set()  # without a watch, subscriptions still hear of what is polled
            if self._services.watches.is_closed:  # the daemon stops
                for _, scope in self._served:
                    scope.cancel()
                return
            await asyncio.sleep(_POLL_SECONDS)  # the store is away, or was restored

    async def _publish_changes(self, watching: asyncio.Event) -> None:
        """Publish changes until the watch of the store ends. Raises ServiceError."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

        opened = _Opened()
        try:
            watch = await anyio.to_thread.run_sync(self._open, opened, wake)
            watching.set()
            while not watch.end_state:
                await changed.wait()
                changed.clear()
                while events := watch.take():
                    await self._publish(events)
        finally:
            opened.close()

    def _open(self, opened: "_Opened", wake: Callable[[], None]) -> Watch:
        revision = self._services.objects.list(SANDBOX, None).revision
        watch = opened.add(self._services.watches.open(SANDBOX, None, since=revision, wake=wake))
        while not watch.end_state and self._services.watches.earlier(watch) is not None:
            pass
        return watch

    async def _publish(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            if event.serialized is not None:
                obj = event.serialized.obj
                await self._bus.publish(ResourceUpdated(f"sandbox://{obj.namespace}/{obj.name}"))
        if any(event.type in ("ADDED", "DELETED") for event in events):
            await self._bus.publish(ResourcesListChanged())

    async def _poll(self) -> None:
        """Publish changes of logs, files and metrics."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            for uri, target in _polled_targets(list(self._followed)):
                try:
                    if await anyio.to_thread.run_sync(self._has_left, target):
                        self._end(uri)
                        continue
                    now = await anyio.to_thread.run_sync(self._fingerprint, target)
                except ServiceError as error:
                    _log.warning("resource updates waiting", error=str(error))
                    continue
                except Exception:  # one resource must not end the updates of the others
                    _log.exception("resource not looked at", uri=uri)
                    continue
                if now is None:
                    continue
                if self._seen.setdefault(uri, now) != now:
                    self._seen[uri] = now
                    await self._bus.publish(ResourceUpdated(uri))

    def _end(self, uri: str) -> None:
        """End the subscriptions of a resource."""
        for uris, scope in self._served:
            if uri in uris:
                scope.cancel()

    def _fingerprint(self, target: Target) -> str | None:
        """Return a text that differs once the resource has changed: "" while it can't be read.

        None: unknown, since the sandbox sleeps. Following a resource wakes no sandbox.
        """
        services, where = self._services, (SANDBOX, target.namespace, target.name)
        try:
            if target.subresource == "logs":
                lines = services.sandbox_streams.logs(*where, tail=1, timestamps=True)()
                return hashlib.sha256(b"".join(line.data for line in lines)).hexdigest()
            if target.subresource == "metrics":
                return str(services.usages.of_sandbox(*where).sample.at)
            info = services.files.peek(*where, target.path)
            if info is None:
                return None
            return f"{info['size']} {info['modified']} {info['type']}"
        except (ServiceError, StreamError):
            return ""


class _Opened:
    """The watch that a thread opens, closed with this also if nobody waits for the thread any more."""

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._closed = False

    def add(self, watch: Watch) -> Watch:
        self._watch = watch
        if self._closed:
            watch.close()
        return watch

    def close(self) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.close()


def _polled_targets(uris: Iterable[str]) -> Iterator[tuple[str, Target]]:
    """Yield the resources without a change feed."""
    for uri in uris:
        target = target_of(uri)
        if target is not None and target.subresource:
            yield uri, target
