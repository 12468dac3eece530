"""MCP over `POST /mcp`: the stateless era (2026-07-28) and the handshake era (2025-06-18, 2025-11-25)."""

from __future__ import annotations

import base64
import json
import os
from collections import OrderedDict

from . import NAME, VERSION, files
from .files import Workspace
from .http import Request
from .replies import STREAM_LIMIT, Reply, ToolError
from .tools import Call, Tools
from .watch import Subscriptions

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]


MODERN = ("2026-07-28",)
LEGACY = ("2025-11-25", "2025-06-18")
_OLD = "2025-03-26"  # what a client that names no version speaks
MAX_MESSAGE = 900 * 1024
"""Bytes of one serialised message: clients refuse events over 1 MiB."""

_META = "io.modelcontextprotocol/"
_SERVER = {"name": NAME, "version": VERSION}
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION, LEGACY_NO_RESOURCE = -32020, -32022, -32002
_STATUS = dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, UNSUPPORTED_VERSION), 400)
_STATUS[METHOD_NOT_FOUND] = 404
_NAMED = {"tools/call": "name", "resources/read": "uri", "prompts/get": "name"}
_TTL_MS = 3_600_000  # lists never change while the agent runs
_MAX_SESSIONS = 64
_MAX_SUBSCRIBED = 64


def dumps(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class RPCError(Exception):
    """A JSON-RPC error; in the stateless era its code decides the HTTP status."""

    def __init__(self, code: int, message: str, data: Any = None, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status or _STATUS.get(code, 200)


class Exchange:
    """Operations that a transport offers to one request; see server.Connection."""

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        raise NotImplementedError

    def open_stream(self) -> None:
        """Begin an event stream as the answer."""
        raise NotImplementedError

    def event(self, message: bytes) -> None:
        raise NotImplementedError

    def open_chunks(self, kind: str) -> None:
        """Begin an answer of unknown length and of that content type; `end_chunks` ends it."""
        raise NotImplementedError

    def chunk(self, data: bytes) -> None:
        raise NotImplementedError

    def end_chunks(self) -> None:
        raise NotImplementedError

    @property
    def unsent(self) -> int:
        """Bytes of the answer that wait for the client."""
        raise NotImplementedError

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Call once, when nothing of the answer waits for the client any more."""
        raise NotImplementedError

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call when the caller closes the connection before the answer."""
        raise NotImplementedError

    def keep_alive_events(self) -> None:
        """Turn the answer into an event stream with pings once it takes long."""
        raise NotImplementedError


class _Session:
    """A legacy client between its `initialize` and its DELETE."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.calls: dict[str | int, Call] = {}
        self.stream: Exchange | None = None
        self.subscribed: set[str] = set()


class Protocol:
    def __init__(self, tools: Tools, workspace: Workspace, subscriptions: Subscriptions) -> None:
        self._tools = tools
        self._workspace = workspace
        self._subscriptions = subscriptions
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._definitions = [tool.definition for tool in tools.by_name.values()]
        self._base = "file://" + workspace.root.rstrip("/") + "/"
        self._methods: dict[str, Callable[[Json, bool], Json]] = {
            "tools/list": lambda _params, _modern: {"tools": self._definitions},
            "resources/list": lambda _params, _modern: self._resources(),
            "resources/templates/list": lambda _params, _modern: self._templates(),
            "resources/read": self._read_resource,
        }

    def post(self, request: Request, exchange: Exchange) -> None:
        """Handle one message; answer through the exchange now or later."""
        identity: Any = None
        session: _Session | None = None
        try:
            try:
                message = json.loads(request.body)
            except (ValueError, RecursionError):
                raise RPCError(PARSE_ERROR, "the body is not valid JSON") from None
            identity = _check_envelope(message)
            modern = self._era(request, message)
            if not modern:
                session = self._session(request, message)
            if "id" not in message:
                self._notified(message, session)
                exchange.reply(202, b"")
                return
            params = message.get("params", {})
            if not isinstance(params, dict):
                raise RPCError(INVALID_PARAMS, "params must be an object")
            self._dispatch(message["method"], params, identity, modern, session, exchange)
        except RPCError as error:
            # In the handshake era errors of methods travel as ordinary answers.
            legacy_answer = session is not None and error.code not in (PARSE_ERROR, INVALID_REQUEST)
            exchange.reply(200 if legacy_answer and error.status != 404 else error.status, _error(identity, error))
        except ToolError as error:
            exchange.reply(200, _error(identity, RPCError(INTERNAL_ERROR, str(error))))

    def get(self, request: Request, exchange: Exchange) -> None:
        """Open a legacy session's stream of notifications."""
        session = self._sessions.get(request.headers.get("mcp-session-id", ""))
        if session is None:
            exchange.reply(405, b"", {"allow": "POST"})
            return
        session.stream = exchange
        exchange.on_gone(lambda: self._stream_gone(session, exchange))
        exchange.open_stream()
        self._subscribe(session)

    def delete(self, request: Request, exchange: Exchange) -> None:
        session = self._sessions.pop(request.headers.get("mcp-session-id", ""), None)
        if session is None:
            exchange.reply(404, b"")
            return
        self._end(session)
        exchange.reply(204, b"")

    def _end(self, session: _Session) -> None:
        self._subscriptions.set(session, set(), lambda _: None)
        for call in list(session.calls.values()):
            call.abandon()

    def _era(self, request: Request, message: Json) -> bool:
        """Return if the message is of the stateless era; check its headers against its body."""
        header = request.headers.get("mcp-protocol-version")
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(_META + "protocolVersion") if isinstance(meta, dict) else None
        if version is None and header not in MODERN:
            if header is not None and header not in (*LEGACY, _OLD) and message["method"] != "initialize":
                raise _unsupported(header, (*MODERN, *LEGACY))
            return False
        if "id" not in message:
            if header not in MODERN:
                raise _unsupported(header or str(version), MODERN)
            return True
        if request.duplicated:
            raise RPCError(HEADER_MISMATCH, f"the header {request.duplicated} is given twice")
        if not isinstance(meta, dict) or version is None or _META + "clientCapabilities" not in meta:
            raise RPCError(
                INVALID_PARAMS, f"params._meta must have {_META}protocolVersion and {_META}clientCapabilities"
            )
        if header != version:
            raise RPCError(HEADER_MISMATCH, "the header MCP-Protocol-Version differs from the body's protocol version")
        if request.headers.get("mcp-method") != message["method"]:
            raise RPCError(HEADER_MISMATCH, "the header Mcp-Method differs from the body's method")
        key = _NAMED.get(message["method"])
        named = message["params"].get(key) if key else None
        if named is not None and _header_text(request.headers.get("mcp-name")) != named:
            raise RPCError(HEADER_MISMATCH, f"the header Mcp-Name differs from the body's {key}")
        if version not in MODERN:
            raise _unsupported(version, MODERN)
        return True

    def _session(self, request: Request, message: Json) -> _Session:
        """Return the legacy session; a client without one gets one that nobody remembers."""
        name = request.headers.get("mcp-session-id")
        if name is None or message["method"] == "initialize":
            return _Session(request.headers.get("mcp-protocol-version", _OLD))
        session = self._sessions.get(name)
        if session is None:
            raise RPCError(INVALID_REQUEST, "the session has ended; initialize again", status=404)
        self._sessions.move_to_end(name)
        return session

    def _notified(self, message: Json, session: _Session | None) -> None:
        """Take a notification: of those only a cancellation within a session has an effect."""
        params = message.get("params")
        if session is None or message["method"] != "notifications/cancelled" or not isinstance(params, dict):
            return
        identity = params.get("requestId")
        call = session.calls.get(identity) if isinstance(identity, (str, int)) else None
        if call is not None:
            call.abandon()

    def _dispatch(
        self, method: str, params: Json, identity: Any, modern: bool, session: _Session | None, exchange: Exchange
    ) -> None:
        if method == "tools/call":
            self._call(params, identity, modern, session, exchange)
        elif method in self._methods:
            result = self._methods[method](params, modern)
            if modern:
                result = {**result, "ttlMs": 0 if method.startswith("resources/") else _TTL_MS, "cacheScope": "private"}
            exchange.reply(200, _result(identity, result, modern))
        elif modern and method == "server/discover":
            exchange.reply(200, _result(identity, self._discovered(), modern))
        elif modern and method == "subscriptions/listen":
            self._listen(params, identity, exchange)
        elif session is not None and method == "initialize":
            self._initialize(params, identity, exchange)
        elif session is not None and method == "ping":
            exchange.reply(200, _result(identity, {}, modern))
        elif session is not None and method in ("resources/subscribe", "resources/unsubscribe"):
            path = self._path_of(params, modern)
            if method == "resources/subscribe":
                if len(session.subscribed) >= _MAX_SUBSCRIBED:
                    raise RPCError(INVALID_PARAMS, f"there may be {_MAX_SUBSCRIBED} subscriptions; end one first")
                session.subscribed.add(path)
            else:
                session.subscribed.discard(path)
            self._subscribe(session)
            exchange.reply(200, _result(identity, {}, modern))
        else:
            # A legacy client gets the error as an answer, a modern one also as the status.
            raise RPCError(METHOD_NOT_FOUND, f"{method}: no such method", status=404 if modern else 200)

    def _initialize(self, params: Json, identity: Any, exchange: Exchange) -> None:
        asked = params.get("protocolVersion")
        version = asked if asked in (*LEGACY, _OLD) else LEGACY[0]
        name = os.urandom(16).hex()
        self._sessions[name] = _Session(version)
        while len(self._sessions) > _MAX_SESSIONS:
            self._end(self._sessions.popitem(last=False)[1])
        result = {
            "protocolVersion": version,
            "capabilities": {"tools": {}, "resources": {"subscribe": True}},
            "serverInfo": _SERVER,
            "instructions": self._instructions(),
        }
        exchange.reply(200, _result(identity, result, False), {"mcp-session-id": name})

    def _discovered(self) -> Json:
        return {
            "supportedVersions": [*MODERN],
            "capabilities": {"tools": {}, "resources": {"subscribe": True}},
            "instructions": self._instructions(),
            "ttlMs": _TTL_MS,
            "cacheScope": "private",
        }

    def _instructions(self) -> str:
        return f"Tools of a sandbox. Paths are relative to {self._workspace.root}; commands run as the sandbox's user."

    def _call(self, params: Json, identity: Any, modern: bool, session: _Session | None, exchange: Exchange) -> None:
        name = params.get("name")
        if not isinstance(name, str) or name not in self._tools.by_name:
            raise RPCError(
                INVALID_PARAMS, f"{name}: no such tool; tools/list shows them", status=400 if modern else 200
            )

        def done(reply: Reply) -> None:
            if session is not None:
                session.calls.pop(identity, None)
            exchange.reply(200, _tool_result(identity, reply, modern))

        call = self._tools.call(name, params.get("arguments") or {}, done)
        if call.finished:
            return
        if session is not None:
            session.calls[identity] = call

        def gone() -> None:
            call.abandon()
            if session is not None:
                session.calls.pop(identity, None)

        exchange.on_gone(gone)
        exchange.keep_alive_events()

    def _listen(self, params: Json, identity: Any, exchange: Exchange) -> None:
        """Answer with a stream of notices until the caller closes it."""
        wanted = params.get("notifications")
        uris = wanted.get("resourceSubscriptions", []) if isinstance(wanted, dict) else None
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris) or len(uris) > _MAX_SUBSCRIBED:
            raise RPCError(
                INVALID_PARAMS, f"notifications.resourceSubscriptions must list at most {_MAX_SUBSCRIBED} URIs"
            )
        paths: dict[str, str] = {}
        for uri in uris:
            try:
                paths[self._path_of({"uri": uri}, True)] = uri
            except RPCError:
                continue  # the acknowledgement says which were taken
        meta = {_META + "subscriptionId": identity}
        taken = {"resourceSubscriptions": list(paths.values())} if paths else {}
        key = object()
        exchange.on_gone(lambda: self._subscriptions.set(key, set(), lambda _: None))
        exchange.open_stream()

        def changed(path: str) -> None:
            exchange.event(_notice("notifications/resources/updated", {"_meta": meta, "uri": paths[path]}))

        self._subscriptions.set(key, set(paths), changed)  # before the acknowledgement: nothing after it is missed
        exchange.event(_notice("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": taken}))

    def _subscribe(self, session: _Session) -> None:
        """Send a legacy session's notices over its stream, once it has one."""

        def changed(path: str) -> None:
            if session.stream is not None:
                session.stream.event(_notice("notifications/resources/updated", {"uri": self._uri_of(path)}))

        paths = session.subscribed if session.stream is not None else set()
        self._subscriptions.set(session, set(paths), changed)

    def _stream_gone(self, session: _Session, exchange: Exchange) -> None:
        if session.stream is exchange:
            session.stream = None
            self._subscribe(session)

    def _templates(self) -> Json:
        template = {
            "uriTemplate": self._base + "{+path}",
            "name": "workspace",
            "description": "A file or folder of the workspace",
        }
        return {"resourceTemplates": [template]}

    def _resources(self) -> Json:
        found = files.walk(self._workspace, ".")
        named = [each for each in found if each["type"] in ("file", "folder")][:200]
        return {
            "resources": [
                {"uri": self._uri_of(each["path"]), "name": each["path"], "mimeType": _mime(each), "size": each["size"]}
                for each in named
            ]
        }

    def _read_resource(self, params: Json, modern: bool) -> Json:
        path = self._path_of(params, modern)
        try:
            facts = files.facts_of(self._workspace, self._workspace.real(path))
            if facts["type"] == "folder":
                entries = files.walk(self._workspace, path)
                lines = [each["path"] + ("/" if each["type"] == "folder" else "") for each in entries]
                return {
                    "contents": [{"uri": params["uri"], "mimeType": "inode/directory", "text": "\n".join(lines[:5000])}]
                }
            if facts["size"] > STREAM_LIMIT:
                raise RPCError(INVALID_PARAMS, f"{path}: has {facts['size']} bytes; read it in parts with file.read")
            given = {"path": path, "offset": 0, "limit": STREAM_LIMIT, "encoding": "auto"}
            read = files.read(self._workspace, given).render(STREAM_LIMIT)[0]
        except ToolError as error:
            code = INVALID_PARAMS if modern else LEGACY_NO_RESOURCE
            raise RPCError(code, str(error), {"uri": params["uri"]}) from None
        kind = "text" if read["encoding"] == "text" else "blob"
        return {"contents": [{"uri": params["uri"], "mimeType": _mime(read), kind: read["content"]}]}

    def _uri_of(self, path: str) -> str:
        quoted = "".join(chr(byte) if byte in _URI_SAFE else f"%{byte:02X}" for byte in path.encode("utf-8", "replace"))
        return self._base + quoted

    def _path_of(self, params: Json, modern: bool) -> str:
        uri = params.get("uri")
        if not isinstance(uri, str) or not (uri + "/").startswith(self._base):
            code = INVALID_PARAMS if modern or not isinstance(uri, str) else LEGACY_NO_RESOURCE
            raise RPCError(code, f"uri: must begin with {self._base}", {"uri": uri})
        try:
            path = _unquote(uri[len(self._base) :])
            if ".." in path.split("/"):
                raise ToolError(files.OUTSIDE)
            return self._workspace.relative(path.lstrip("/") or ".")
        except (ValueError, ToolError):
            raise RPCError(INVALID_PARAMS, "uri: its path is not valid", {"uri": uri}) from None


_URI_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/!$&'()*+,;=:@")


def _unquote(text: str) -> str:
    first, *rest = text.encode().split(b"%")
    return (first + b"".join(bytes([int(each[:2], 16)]) + each[2:] for each in rest)).decode("utf-8")


def _mime(facts: Json) -> str:
    if facts["type"] == "folder":
        return "inode/directory"
    return "application/octet-stream" if facts.get("encoding") == "base64" else "text/plain"


def _check_envelope(message: Any) -> Any:
    """Return the id of a JSON-RPC request or notification."""
    if not isinstance(message, dict):
        raise RPCError(INVALID_REQUEST, "the body must be one JSON-RPC request or notification")
    identity = message.get("id")
    if "id" in message and (not isinstance(identity, (str, int)) or isinstance(identity, bool)):
        raise RPCError(INVALID_REQUEST, "id must be a text or a whole number")
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise RPCError(INVALID_REQUEST, "the body must be one JSON-RPC 2.0 request or notification")
    return identity


def _header_text(value: str | None) -> str | None:
    """Decode a header's value; what no header can hold comes as `=?base64?...?=`."""
    if value is not None and value.startswith("=?base64?") and value.endswith("?="):
        try:
            return base64.b64decode(value[9:-2], validate=True).decode("utf-8")
        except ValueError:
            return None
    return value


def _unsupported(version: str, known: tuple[str, ...]) -> RPCError:
    """Return the error of the version; a stateless client hears of the versions that server/discover lists."""
    data = {"supported": list(known), "requested": version}
    return RPCError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def _error(identity: Any, error: RPCError) -> bytes:
    body: Json = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return dumps({"jsonrpc": "2.0", "id": identity, "error": body})


def _result(identity: Any, result: Json, modern: bool) -> bytes:
    if modern:
        result = {"resultType": "complete", "_meta": {_META + "serverInfo": _SERVER}, **result}
    return dumps({"jsonrpc": "2.0", "id": identity, "result": result})


def _notice(method: str, params: Json) -> bytes:
    return dumps({"jsonrpc": "2.0", "method": method, "params": params})


def within(render: Callable[[int], bytes]) -> bytes:
    """Serialise with smaller and smaller streams until the message is within its bound."""
    limit = STREAM_LIMIT
    body = render(limit)
    while len(body) > MAX_MESSAGE and limit > 64:
        # JSON can make six bytes of one: go by how much it was, and by half at least.
        limit = min(limit // 2, limit * MAX_MESSAGE // len(body))
        body = render(limit)
    return body


def _tool_result(identity: Any, reply: Reply, modern: bool) -> bytes:
    def render(limit: int) -> bytes:
        structured, text = reply.render(limit)
        result: Json = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
        if reply.failed:
            result["isError"] = True
        return _result(identity, result, modern)

    return within(render)
