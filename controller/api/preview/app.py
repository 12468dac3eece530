"""The application of the preview listener. The API is not there: a preview's host name leads to a sandbox's port alone.

Each request is judged by itself: by the link in its query, which is exchanged for a cookie of that host name before the
program sees anything; by that cookie; or by a header, for programs.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.preview.address import PreviewAddress
from controller.api.preview.headers import PreviewRequest, cookies_of
from controller.api.preview.pages import page
from controller.api.preview.protocol import SERVER_NAME, SWITCH, PreviewProtocol
from controller.api.preview.proxies import Proxies
from controller.api.preview.traffic import Traffic
from controller.api.server.peer_credentials import CONNECTION
from controller.api.streams.proxy import ProxiedResponse
from controller.kinds.runtime.preview import (
    COOKIE,
    FRAME_COOKIE,
    HEADER,
    PARAMETER,
    PreviewTarget,
    PreviewToken,
    Purpose,
    is_label,
    label_of,
    parse_token,
    target_of,
)
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import NullMeter
from controller.service.errors import Conflict, NotFound, ServiceError, Unauthorized
from controller.service.exec.streams import SandboxStreams
from controller.service.front.previews import Previews
from controller.service.sandbox.port_forward import Forwarded, PortForward

_STALL_SECONDS = 60.0
_WAKE_SECONDS, _WAKE_PAUSE_SECONDS = 20.0, 0.25
_CHECK_SECONDS = 2.0  # how late an open stream notices that its link has ended
_SIBLINGS = ("same-site", "cross-site")
_PAGES, _FRAMES = ("document", "empty"), ("iframe", "frame", "embed", "object")  # Sec-Fetch-Dest
_COOKIES: tuple[tuple[str, Purpose], ...] = ((COOKIE, "cookie"), (FRAME_COOKIE, "frame"))
_REFUSALS = (400, 401, 403, 404, 421)


class PreviewRefused(Exception):
    """An answer in place of the program's."""

    def __init__(self, code: int, title: str, text: str) -> None:
        super().__init__(text)
        self.code, self.title = code, title


@dataclass(frozen=True, slots=True)
class Pass:
    """The right of one request: its target, the token it came with, and as what."""

    target: PreviewTarget
    token: PreviewToken
    purpose: Purpose


class PreviewApp:
    """ASGI application over the links and the ports of this host's sandboxes."""

    def __init__(
        self,
        previews: Previews,
        forward: PortForward,
        streams: SandboxStreams,
        address: PreviewAddress,
        proxies: Proxies | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self._previews, self._forward, self._streams, self._address = previews, forward, streams, address
        self._proxies, self.traffic = proxies or Proxies(), traffic or Traffic(NullMeter())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer: ASGIApp = await self._answer(scope)
        except PreviewRefused as error:
            answer = page(error.code, error.title, str(error), for_people=is_for_people(scope))
            self.traffic.count_request("refused" if error.code in _REFUSALS else "unavailable")
        except ServiceError as error:
            answer = page(error.code, "No preview", str(error), for_people=is_for_people(scope))
            self.traffic.count_request("refused" if error.code in _REFUSALS else "unavailable")
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope) -> ASGIApp:
        """Return what answers this request. Raises PreviewRefused; ServiceError."""
        headers = Headers(scope=scope)
        label = self._label(scope, headers)
        client = self._proxies.client(scope)
        if client.scheme == "http" and self._address.scheme == "https":
            return self._to_https(scope, label)
        if PARAMETER in _query(scope):
            answer = await self._exchange_link(scope, headers, label, client.address)
            self.traffic.count_request("passed")
            return answer
        allowed = await self._require_pass(scope, headers, label)
        connection = scope.get("state", {}).get(CONNECTION)
        if connection is not None:
            # A page may be read slowly, as the output of a command: its program waits meanwhile, and nothing is lost.
            connection.pause_seconds = _STALL_SECONDS
        opened = await self._open(allowed.target)
        self._previews.record_use(allowed.target, allowed.token, client.address)
        self.traffic.count_request("passed")
        return _Relay(self, allowed, opened, self._request(scope, allowed.target, label))

    def _to_https(self, scope: Scope, label: str) -> Response:
        """Lead from plain HTTP at a proxy to https. Raises PreviewRefused for what has a body."""
        if scope["method"] not in ("GET", "HEAD"):
            raise PreviewRefused(403, "Not here", "this address is served over https alone")
        path = _path_and_query(scope).decode("latin-1")
        return RedirectResponse(f"https://{label}.{self._address.domain}{path}", 308)

    def _label(self, scope: Scope, headers: Headers) -> str:
        """Return the label of the host name. Raises PreviewRefused for another one, or if TLS was asked for another."""
        hosts = headers.getlist("host")
        host = (hosts[0] if len(hosts) == 1 else "").lower()
        label, _, domain = host.partition(".")
        if domain.removesuffix(".") != self._address.domain or not is_label(label):
            text = "this address belongs to no preview; make a link by `paddock open NAME PORT`"
            raise PreviewRefused(421, "Misdirected", text)
        server_name = scope.get("state", {}).get(SERVER_NAME, "").lower()
        if server_name and server_name != host.partition(":")[0].removesuffix("."):
            text = "the connection was made for another host name; open the address again"
            raise PreviewRefused(421, "Misdirected", text)
        return label

    async def _exchange_link(self, scope: Scope, headers: Headers, label: str, source: str) -> Response:
        """Exchange a link for a cookie, and lead to the address without it. A frame has a cookie of its own."""
        (text, *_), query = _split_query(scope)
        is_navigation = SWITCH not in scope.get("state", {}) and scope["method"] in ("GET", "HEAD")
        dest = headers.get("sec-fetch-dest", "document")
        if not is_navigation or dest not in (*_PAGES, *_FRAMES):
            raise PreviewRefused(403, "Not here", "a link is opened in a browser; programs send it in a header")
        token = _token(text)
        target, uid = await self._check("link", token, label)
        name, purpose = _COOKIES[dest in _FRAMES]
        cookie = await run_in_threadpool(self._previews.cookie, purpose, token, target, uid)
        self._previews.record_use(target, token, source)
        path = scope["raw_path"].decode("latin-1") or "/"
        answer = RedirectResponse("/" + path.lstrip("/") + (f"?{query}" if query else ""), 303)
        seconds_left = max(1, token.expires - int(time.time()))
        site = "SameSite=None; Partitioned" if dest in _FRAMES else "SameSite=Lax"
        answer.headers["set-cookie"] = f"{name}={cookie}; Path=/; Max-Age={seconds_left}; Secure; HttpOnly; {site}"
        answer.headers["referrer-policy"] = "no-referrer"
        answer.headers["cache-control"] = "no-store"
        return answer

    async def _require_pass(self, scope: Scope, headers: Headers, label: str) -> Pass:
        """Return the right of a request. Raises PreviewRefused; Unauthorized."""
        if texts := headers.getlist(HEADER):
            return await self._pass("link", texts, label)
        pairs = [(purpose, texts) for name, purpose in _COOKIES if (texts := cookies_of(scope["headers"], name))]
        if not pairs:
            raise Unauthorized(
                f"open the link that you were given, or send its token in the header {HEADER}; whoever may use the"
                " sandbox makes one by `paddock open NAME PORT`"
            )
        is_own_socket = SWITCH in scope.get("state", {}) and headers.get("origin") == self._own_origin(headers)
        if "sec-fetch-site" not in headers and not is_own_socket:
            # A browser that says not where a request comes from may know no Partitioned cookies either, and send the
            # frame's with requests of any page. Of a WebSocket its Origin says it.
            pairs = [(purpose, texts) for purpose, texts in pairs if purpose != "frame"]
            if not pairs:
                raise PreviewRefused(403, "Not in this browser", "a frame needs a newer browser; open the link itself")
        is_framed_by_another = self._refuse_siblings(scope, headers)
        if is_framed_by_another:
            pairs = [(purpose, texts) for purpose, texts in pairs if purpose == "frame"]
            if not pairs:
                text = "another page shows this address in a frame; a frame needs a link of its own"
                raise PreviewRefused(403, "Not in this frame", text)
        for purpose, texts in pairs[:-1]:
            with contextlib.suppress(Unauthorized):
                return await self._pass(purpose, texts, label)
        return await self._pass(*pairs[-1], label)

    async def _pass(self, purpose: Purpose, texts: list[str], label: str) -> Pass:
        """Return the right that one token gives. Raises Unauthorized, also for several."""
        token = _token(texts[0] if len(texts) == 1 else "")
        target, _ = await self._check(purpose, token, label)
        return Pass(target, token, purpose)

    async def _check(self, purpose: Purpose, token: PreviewToken, label: str) -> tuple[PreviewTarget, str]:
        """Return the target of a host name, and its sandbox's uid. Raises Unauthorized if the token is of another."""
        target = target_of(label) or token.target
        if target is None:
            raise Unauthorized("the link is of another address")
        uid = await run_in_threadpool(self._previews.check, purpose, token, target)
        if label_of(target, uid) != label:
            raise Unauthorized("the link is of another address")
        return target, uid

    def _refuse_siblings(self, scope: Scope, headers: Headers) -> bool:
        """Refuse what another page has a browser send with our cookie. Raises PreviewRefused.

        Return True for a page that is shown in a frame of another one.
        """
        method, upgrades = scope["method"], SWITCH in scope.get("state", {})
        navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate" and not upgrades
        origin = headers.get("origin")
        is_foreign = origin is not None and origin != self._own_origin(headers)
        from_sibling = headers.get("sec-fetch-site") in _SIBLINGS
        if (from_sibling and not navigates) or (is_foreign and (upgrades or method not in ("GET", "HEAD"))):
            text = "another page asked for this; a preview answers its own pages, and links that people follow"
            raise PreviewRefused(403, "Not from there", text)
        return from_sibling and headers.get("sec-fetch-dest") in _FRAMES

    def _own_origin(self, headers: Headers) -> str:
        return f"{self._address.scheme}://{headers['host'].lower().rstrip('.')}"

    async def _open(self, target: PreviewTarget) -> Forwarded:
        """Connect to the port. After a wake its program may still be starting. Raises PreviewRefused; ServiceError."""
        try:
            slept = await run_in_threadpool(self._streams.awake, SANDBOX, target.namespace, target.name) is None
            until = time.monotonic() + (_WAKE_SECONDS if slept else 0.0)
            while True:
                try:
                    return await run_in_threadpool(
                        self._forward.open, SANDBOX, target.namespace, target.name, target.port
                    )
                except Conflict:
                    if time.monotonic() >= until:
                        raise
                await asyncio.sleep(_WAKE_PAUSE_SECONDS)
        except NotFound:
            raise PreviewRefused(404, "No such sandbox", "the sandbox of this preview is gone") from None
        except Conflict as error:
            text = f"sandbox {target.name}, port {target.port}: {error}; start the program in the sandbox, then reload"
            raise PreviewRefused(502, "Nothing answers here", text) from error

    def _request(self, scope: Scope, target: PreviewTarget, label: str) -> PreviewRequest:
        scheme = self._address.scheme
        return PreviewRequest(
            method=scope["method"],
            port=target.port,
            prefix="",
            target=_path_and_query(scope),
            headers=scope["headers"],
            scheme=scheme,
            origin=f"{scheme}://{label}.{self._address.domain}",
            upgrades=SWITCH in scope.get("state", {}),
        )

    async def until_over(self, allowed: Pass) -> None:
        """Wait until the right of a request has ended."""
        with contextlib.suppress(ServiceError):
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                await run_in_threadpool(self._previews.check, allowed.purpose, allowed.token, allowed.target)


class _Relay:
    """A request that is passed on, maybe to become a WebSocket. It ends with the link."""

    def __init__(self, app: PreviewApp, allowed: Pass, opened: Forwarded, request: PreviewRequest) -> None:
        self._app, self._allowed, self._opened, self._request = app, allowed, opened, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        over, started = asyncio.create_task(self._app.until_over(self._allowed)), False
        switch: PreviewProtocol | None = scope.get("state", {}).get(SWITCH)
        traffic = self._app.traffic

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            traffic.count_bytes(bytes_out=len(message.get("body", b"")))
            await send(message)

        async def next_message() -> Message:
            if not over.done():
                incoming = asyncio.ensure_future(receive())
                try:
                    await asyncio.wait({incoming, over}, return_when=asyncio.FIRST_COMPLETED)
                    if incoming.done():
                        message: Message = incoming.result()
                        traffic.count_bytes(bytes_in=len(message.get("body", b"")))
                        return message
                finally:
                    incoming.cancel()
            return {"type": "http.disconnect"}

        try:
            with traffic.open():
                await ProxiedResponse(self._request, self._opened, switch)(scope, next_message, watched)
            is_switched = switch is not None and switch.is_switched
            if over.done() and not started and not is_switched:
                answer = page(401, "No preview", "the link has ended", for_people=is_for_people(scope))
                await answer(scope, receive, send)
        finally:
            if switch is not None:
                traffic.count_bytes(bytes_in=switch.bytes_in, bytes_out=switch.bytes_out)
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)


def is_for_people(scope: Scope) -> bool:
    """Return True if a browser shows the answer to somebody."""
    return SWITCH not in scope.get("state", {}) and "text/html" in Headers(scope=scope).get("accept", "")


def _token(text: str) -> PreviewToken:
    token = parse_token(text)
    if token is None:
        raise Unauthorized("the link is damaged; copy all of it, or ask for a new one")
    return token


def _path_and_query(scope: Scope) -> bytes:
    path: bytes = scope["raw_path"]
    query: bytes = scope.get("query_string", b"")
    return path + (b"?" + query if query else b"")


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))


def _split_query(scope: Scope) -> tuple[list[str], str]:
    """Return the values of our parameter, and the query without it, as it was sent."""
    pairs = scope.get("query_string", b"").decode("latin-1").split("&")
    ours = [pair for pair in pairs if pair.partition("=")[0] == PARAMETER]
    texts = [text for pair in ours for _, text in parse_qsl(pair)]
    return texts or [""], "&".join(pair for pair in pairs if pair not in ours)
