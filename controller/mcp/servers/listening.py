"""Notifications of servers to clients: `subscriptions/listen`, subscriptions of a connection, and its event stream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_to_notification

from controller.mcp.servers import results
from controller.mcp.servers.notices import (
    ENDED,
    MESSAGE,
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    UPDATED,
    Mailbox,
    Notice,
    Place,
)
from controller.mcp.servers.results import Naming
from controller.mcp.servers.session import Session
from controller.mcp.servers.sessions import Sessions
from controller.mcp.servers.stdio import ServerGone, ServerRefused
from controller.mcp.servers.target import Target
from controller.mcp.text import plain

_MOST_URIS = 100  # of one subscription
_EVENTS = {
    TOOLS_CHANGED: ToolsListChanged,
    PROMPTS_CHANGED: PromptsListChanged,
    RESOURCES_CHANGED: ResourcesListChanged,
}
Find = Callable[[str], Awaitable[tuple[Session, str]]]
"""Returns the session that has a resource, and the URI there. Raises MCPError."""


class Listening:
    """Passes notifications on. For one event loop."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def listen(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.SubscriptionsListenRequestParams,
        target: Target,
        place: Place,
        find: Find,
    ) -> types.SubscriptionsListenResult:
        """Serve one subscription. It ends with the session of a resource that it follows: the client asks again."""
        notifications = params.notifications
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        wants_by_method = {
            TOOLS_CHANGED: notifications.tools_list_changed,
            PROMPTS_CHANGED: notifications.prompts_list_changed,
            RESOURCES_CHANGED: notifications.resources_list_changed,
            UPDATED: bool(notifications.resource_subscriptions),
            ENDED: bool(notifications.resource_subscriptions),
        }
        mailbox = Mailbox(place, lambda notice: bool(wants_by_method.get(notice.method)) and _is_for(notice, target))
        followed: dict[str, tuple[Session, str]] = {}
        with self._sessions.notices.listening(mailbox):
            try:
                for uri in (notifications.resource_subscriptions or ())[:_MOST_URIS]:
                    with suppress(MCPError):  # what is not acknowledged is not followed
                        session, own_uri = await find(uri)
                        await follow(session, own_uri)
                        followed[uri] = session, own_uri
                honoured = notifications.model_copy(update={"resource_subscriptions": list(followed) or None})
                await ctx.session.send_notification(
                    types.SubscriptionsAcknowledgedNotification(
                        params=types.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, _meta=meta)
                    ),
                    related_request_id=ctx.request_id,
                )
                await self._relay(ctx, mailbox, target, followed, meta)
            finally:
                for session, own_uri in followed.values():
                    session.unfollow(own_uri)
        return types.SubscriptionsListenResult(_meta=meta)

    async def _relay(
        self,
        ctx: ServerRequestContext[Any, Any],
        mailbox: Mailbox,
        target: Target,
        followed: Mapping[str, tuple[Session, str]],
        meta: dict[str, Any],
    ) -> None:
        while not (mailbox.is_closed or any(session.client.is_gone for session, _ in followed.values())):
            await mailbox.wait()
            for notice in mailbox.take():
                notice_params = shown_notice(notice, target)
                if notice.method == ENDED or notice_params is None:
                    continue
                if notice.method == UPDATED:
                    if notice_params["uri"] not in followed:
                        continue
                    event: Any = ResourceUpdated(notice_params["uri"])
                else:
                    event = _EVENTS[notice.method]()
                await ctx.session.send_notification(
                    event_to_notification(event, meta), related_request_id=ctx.request_id
                )

    async def stream(self, target: Target, place: Place) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Yield messages for the event stream of a connection, as they come, until the daemon stops."""
        mailbox = Mailbox(place, lambda notice: notice.method != ENDED and _is_for(notice, target))
        with self._sessions.notices.listening(mailbox):
            while not mailbox.is_closed:
                await mailbox.wait()
                both = [(notice, shown_notice(notice, target)) for notice in mailbox.take()]
                yield [
                    {"jsonrpc": "2.0", "method": notice.method, **({"params": notice_params} if notice_params else {})}
                    for notice, notice_params in both
                    if notice_params is not None
                ]


async def follow(session: Session, uri: str) -> None:
    """Follow a resource of a session. Raises MCPError."""
    try:
        answer = session.follow(uri)
        if answer is None:
            return
        async with asyncio.timeout(session.server.spec.call_seconds):
            await asyncio.wrap_future(answer)
    except (ServerGone, ServerRefused, TimeoutError) as error:
        session.unfollow(uri)
        code = error.code if isinstance(error, ServerRefused) and error.code else types.INTERNAL_ERROR
        raise MCPError(code, plain(f"{session.server}: {error or 'no answer'}")) from error


def shown_notice(notice: Notice, target: Target) -> Mapping[str, Any] | None:
    """Return the parameters of a notice as clients of this address get them; None: they don't."""
    return results.notification(notice, Naming(notice.server, target) if notice.server is not None else None)


def _is_for(notice: Notice, target: Target) -> bool:
    """Return True if clients of this address may hear it."""
    if notice.namespace != target.namespace:
        return False
    if notice.server is None:
        return not target.name
    return target.name in ("", notice.server.obj.name)


def wants_messages(notice: Notice, server: str) -> bool:
    """Return True for a log message of this server."""
    return notice.method == MESSAGE and notice.server is not None and notice.server.obj.name == server
