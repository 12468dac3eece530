"""Limits on answers in memory: an answer that its client does not read costs a bounded part of one budget.

An answer over 64 KiB counts until its client has taken it, and is handed to the connection in pieces. A caller whose
unread answers fill their share waits, then gets 429; others are served. An answer that is made in parts reserves the
room for each before it is made. Transfers of files are exempt: they never hold more than a piece.
"""

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from controller.api.common.answer import Answer, Unread
from controller.api.common.byte_budget import ByteBudget
from controller.api.common.paths import STREAMED
from controller.service.access import access

MOST_BYTES = 192 << 20
WAIT_SECONDS = 20.0  # for the caller's other answers to be read, or for their connections to be cut
_log = structlog.get_logger("paddock.api")


class AnswerLimit:
    """Middleware that enforces the limits. `state.answer` of a request is its Answer."""

    def __init__(
        self, app: ASGIApp, share: float = 1.0, most_bytes: int = MOST_BYTES, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._app = app
        self._budget = ByteBudget(most_bytes, share)
        self._wait_seconds = wait_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or STREAMED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        caller = access.caller()
        answer = Answer(self._budget, caller.name if caller else "", self._wait_seconds, scope, send)
        scope.setdefault("state", {})["answer"] = answer
        try:
            await self._app(scope, receive, answer.send)
        except* Unread:
            _log.info("unread answer cut off", path=scope["path"], caller=answer.name)
        finally:
            answer.give_back()
