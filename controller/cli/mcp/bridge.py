"""MCP over HTTP without an SDK: a bridge for clients that speak it over stdin and stdout, and single requests.

A line of JSON-RPC becomes a POST; what the response streams becomes lines. Both eras of the protocol pass: the older
one begins with `initialize`, a message of the newer one names its version. Cancelling closes the request's connection,
which ends what it does. Standard library only: the bridge starts in a tenth of a second.
"""

import base64
import contextlib
import http.client
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from paddock._client.credentials import authorization, trusted
from paddock._client.errors import ClientError, Refused
from paddock._client.server import Server, dial, unreachable
from paddock._version import API_VERSION, VERSION

PATH = "/mcp"
_CONNECTION_HEADER = "Paddock-Connection"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
MODERN = "2026-07-28"
_CLIENT_KEYS = {
    "io.modelcontextprotocol/clientInfo": {"name": "paddock", "version": VERSION},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PARSE_ERROR, _INVALID_REQUEST, _FAILED = -32700, -32600, -32000
_HEADER_SAFE = re.compile(r"[!-~]([ -~]*[!-~])?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_MOST_REQUESTS = 64  # at a time
_MOST_LINE_BYTES = 4 << 20
_MOST_ANSWER_BYTES = 64 << 20  # of one message: over what any tool answers
_MOST_RETRIES = 5
_MOST_WAIT_SECONDS = 10.0
_CONNECT_SECONDS = 10.0
_GRACE_SECONDS = 1.5  # after the end of the input: clients kill a server after two seconds
_TOO_LARGE = f"the answer has a message of over {_MOST_ANSWER_BYTES >> 20} MiB; ask for less at a time"
Message = dict[str, Any]


def endpoint(
    sandbox: str = "", *, namespace: str = "", names: str = "", read_only: bool = False, toolset: str = ""
) -> str:
    """Return the path of Paddock's own tools, or of the agent in a sandbox."""
    if sandbox:
        place = f"/apis/{API_VERSION}/namespaces/{quote(namespace or 'default', safe='')}"
        return f"{place}/sandboxes/{quote(sandbox, safe='')}{PATH}"
    query = {"names": names, "namespace": namespace, "readOnly": "true" if read_only else "", "toolset": toolset}
    parameters = {name: value for name, value in query.items() if value}
    return f"{PATH}?{urlencode(parameters)}" if parameters else PATH


def server_endpoint(name: str, namespace: str) -> str:
    """Return the path of an MCPServer."""
    place = f"/apis/{API_VERSION}/namespaces/{quote(namespace, safe='')}"
    return f"{place}/mcpservers/{quote(name, safe='')}{PATH}"


def request(server: Server, path: str, method: str, params: Mapping[str, Any]) -> Message:
    """Return the result of one request. Raises ClientError; Refused for an error in the protocol."""
    meta = {VERSION_KEY: MODERN, **_CLIENT_KEYS}
    sent = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    exchange = Exchange(server, path, sent, MODERN)
    for message in exchange.messages():
        if message.get("id") == 1 and "method" not in message:
            if "error" in message:
                raise Refused(str(message["error"].get("message", "refused")))
            result: Message = message["result"]
            return result
    raise ClientError("the daemon ended the connection before its answer; check that it is running")


class Exchange:
    """One request: a POST, and the messages of its response. `close` ends it, from any thread.

    An error without an id, as for a message that the daemon could not read, is the answer to this request.
    """

    def __init__(
        self, server: Server, path: str, message: Mapping[str, Any], version: str, connection: str = ""
    ) -> None:
        self._server = server
        self._path = path
        self._id = message.get("id")
        self._body = json.dumps(message).encode()
        self._headers = {**_headers(message, version), **authorization(server)}
        self._headers |= {_CONNECTION_HEADER: connection} if connection else {}
        self._lock, self._closed = threading.Lock(), False
        self._connection: http.client.HTTPConnection | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    def messages(self) -> Iterator[Message]:
        """Yield the messages as they arrive. Raises ClientError."""
        for attempt in range(_MOST_RETRIES + 1):
            try:
                answer = self._send()
                wait = _retry_seconds(answer) if attempt < _MOST_RETRIES else None
                if wait is None:
                    for message in _read(answer):
                        unnamed = "error" in message and message.get("id") is None
                        yield {**message, "id": self._id} if unnamed else message
                    return
                answer.read()
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:  # also: closed meanwhile
                if self._closed:
                    return
                raise ClientError(f"the connection to {self._server} broke: {error}; check the daemon") from error
            finally:
                self._disconnect()
            time.sleep(wait)

    def close(self) -> None:
        """End the request: the daemon stops what it does."""
        self._closed = True
        self._disconnect()

    def _send(self) -> http.client.HTTPResponse:
        connection = _connect(self._server)
        with self._lock:
            if self._closed:
                connection.close()
                raise OSError("closed")
            self._connection = connection
        connection.request("POST", self._path, self._body, self._headers)
        return connection.getresponse()

    def _disconnect(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            if connection.sock is not None:
                with contextlib.suppress(OSError):  # a thread that reads from it wakes
                    connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()


class Hold:
    """A connection that the daemon holds sessions for: they end with it, or with this process.

    `receive` gets their notifications. `headers` go with its request. `again` is called each time that it is held anew:
    the sessions of before are gone.
    """

    def __init__(
        self,
        server: Server,
        path: str,
        receive: Callable[[Message], None] = lambda _: None,
        headers: Mapping[str, str] | None = None,
        again: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = server
        self._path = path
        self._receive = receive
        self._headers = headers or {}
        self._again, self._was_held = again, False
        self.name = secrets.token_hex(16)
        self._ended = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        threading.Thread(target=self._keep, name="mcp hold", daemon=True).start()

    def close(self) -> None:
        """Let the sessions end."""
        self._ended.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _keep(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, ClientError):
                self._connection = _connect(self._server)
                headers = {_CONNECTION_HEADER: self.name, **self._headers, **authorization(self._server)}
                self._connection.request("GET", self._path, headers=headers)
                with self._connection.getresponse() as answer:
                    if answer.status == http.client.OK:
                        if self._was_held:
                            threading.Thread(target=self._again, name="mcp again", daemon=True).start()
                        self._was_held = True
                        for message in filter(None, map(_message, _events(answer))):
                            self._receive(message)
            if self._connection is not None:
                self._connection.close()
            self._ended.wait(1.0)


class Bridge:
    """Relays messages between a client's lines and the daemon. `write` takes one line, without its end.

    `holds`: the daemon keeps sessions for it, which end with it.
    """

    def __init__(self, server: Server, path: str, write: Callable[[bytes], None], *, holds: bool = False) -> None:
        self._server, self._path, self._write = server, path, write
        self._writing, self._lock = threading.Lock(), threading.Lock()
        self._running: dict[str, Exchange] = {}  # without an answer yet, by the request's id in JSON
        self._relays = 0  # also those whose answer is on its way to the client
        self._negotiated = ""  # the version of an `initialize`
        self._lasting: dict[str, Message] = {}  # requests whose effect ends with a session, by what they are about
        self._hold = Hold(server, path, self._take_notification, again=self._ask_again) if holds else None
        self._idle = threading.Condition(self._lock)

    def run(self, lines: Iterable[bytes]) -> None:
        """Relay until the lines end; then running requests have a moment to end, and are cancelled."""
        for line in lines:
            if line.strip():
                self._receive(line)
        with self._lock:
            self._idle.wait_for(lambda: not self._relays, _GRACE_SECONDS)
        self.close()

    def close(self) -> None:
        """Cancel what runs."""
        with self._lock:
            running = list(self._running.values())
        for exchange in running:
            exchange.close()
        if self._hold is not None:
            self._hold.close()

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line) if len(line) <= _MOST_LINE_BYTES else None
        except (ValueError, RecursionError) as error:
            self._refuse(None, _PARSE_ERROR, f"Parse error: {error}")
            return
        if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
            text = "a line must be one JSON-RPC message, an object of at most 4 MiB; send each on a line of its own"
            self._refuse(None, _INVALID_REQUEST, text)
        elif "method" not in message:
            pass  # a response: the daemon asks clients nothing
        elif "id" not in message:
            if message["method"] == "notifications/cancelled":
                self._cancel(message)
        else:
            self._start(message)

    def _take_notification(self, message: Message) -> None:
        """Pass a notification of the connection on. Clients without a handshake ask for theirs by a request."""
        if self._negotiated:
            self._send(message)

    def _start(self, message: Message) -> None:
        key = json.dumps(message["id"])
        try:
            connection = self._hold.name if self._hold is not None else ""
            exchange = Exchange(self._server, self._path, message, self._version(message), connection)
        except ClientError as error:
            self._refuse(message["id"], _FAILED, error.message)
            return
        with self._lock:
            full, in_use = self._relays >= _MOST_REQUESTS, key in self._running
            if not full and not in_use:
                self._running[key] = exchange
                self._relays += 1
        if full or in_use:
            why = (
                f"{_MOST_REQUESTS} requests are in flight; wait for some"
                if full
                else "this id is in use; choose another"
            )
            self._refuse(message["id"], _INVALID_REQUEST, why)
            return
        threading.Thread(target=self._relay, args=(message, key, exchange), name="mcp", daemon=True).start()

    def _relay(self, message: Message, key: str, exchange: Exchange) -> None:
        """Relay the answer. Its id is free before the client has it: that may use it again at once."""
        answered, failure = False, "the daemon ended the connection before its answer; try again"
        try:
            for reply in exchange.messages():
                if not answered and "method" not in reply and json.dumps(reply.get("id")) == key:
                    answered = True
                    self._release(key)
                    self._note_lasting(message, reply)
                self._note_version(message, reply)
                self._send(reply)
        except ClientError as error:
            failure = error.message
        try:
            if not answered:
                self._release(key)
                if not exchange.closed:
                    self._refuse(message["id"], _FAILED, failure)
        finally:
            with self._lock:
                self._relays -= 1
                self._idle.notify_all()

    def _note_lasting(self, message: Message, answer: Message) -> None:
        """Remember what must be asked again when the sessions of the connection are new ones."""
        method, params = message["method"], message.get("params")
        uri = str(params.get("uri")) if isinstance(params, dict) else ""
        with self._lock:
            if "result" not in answer:
                return
            if method in ("resources/subscribe", "logging/setLevel"):
                self._lasting[uri] = message
            elif method == "resources/unsubscribe":
                self._lasting.pop(uri, None)

    def _ask_again(self) -> None:
        """Ask for what the client thinks it has, and have it read what it follows: that may have changed meanwhile."""
        with self._lock:
            lasting = list(self._lasting.items())
        for uri, message in lasting:
            with contextlib.suppress(ClientError):
                sent = {**message, "id": f"paddock-{secrets.token_hex(8)}"}
                name = self._hold.name if self._hold is not None else ""
                for _ in Exchange(self._server, self._path, sent, self._version(message), name).messages():
                    pass
            if uri:
                self._take_notification(
                    {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
                )

    def _release(self, key: str) -> None:
        with self._lock:
            self._running.pop(key, None)

    def _cancel(self, message: Message) -> None:
        params = message.get("params")
        key = json.dumps(params.get("requestId") if isinstance(params, dict) else None)
        with self._lock:
            exchange = self._running.get(key)
        if exchange is not None:
            exchange.close()

    def _version(self, message: Message) -> str:
        """Return the version for the header: a modern message names it; an older one is that of `initialize`."""
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        if isinstance(version, str):
            return version
        return "" if message["method"] == "initialize" else self._negotiated

    def _note_version(self, message: Message, answer: Message) -> None:
        result = answer.get("result")
        if message["method"] == "initialize" and isinstance(result, dict):
            self._negotiated = str(result.get("protocolVersion", ""))

    def _refuse(self, id_: Any, code: int, text: str) -> None:
        self._send({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": text}})

    def _send(self, message: Message) -> None:
        line = json.dumps(message, separators=(",", ":")).encode()
        with self._writing:
            self._write(line)


def _connect(server: Server) -> http.client.HTTPConnection:
    """Return a connection to the daemon. Raises ClientError."""
    if server.socket:
        local_connection = http.client.HTTPConnection("paddock")
        local_connection.sock, local_connection.auto_open = (
            dial(server),
            0,
        )  # once closed, it must not dial a host of that name
        return local_connection
    parts = urlsplit(server.url)
    host, port = parts.hostname or "", parts.port
    secure = parts.scheme == "https"
    if secure:
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, context=trusted(server), timeout=_CONNECT_SECONDS
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
    try:
        connection.connect()
    except OSError as error:
        raise unreachable(server, error.strerror or str(error)) from error
    connection.auto_open = 0
    connection.sock.settimeout(None)  # a command may be silent for hours
    return connection


def _headers(message: Mapping[str, Any], version: str) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "User-Agent": f"paddock/{VERSION}",
    }
    if not version:
        return headers
    headers["MCP-Protocol-Version"] = _field(version)
    headers["Mcp-Method"] = _field(message["method"])
    params = message.get("params")
    name = params.get(_NAMED_BY.get(message["method"], "")) if isinstance(params, dict) else None
    return headers | ({"Mcp-Name": _field(name)} if isinstance(name, str) else {})


def _field(value: str) -> str:
    """Return a header's value; what a header can't hold is encoded as the protocol says."""
    if _HEADER_SAFE.fullmatch(value) and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode()}?="


def _retry_seconds(answer: http.client.HTTPResponse) -> float | None:
    """Return the seconds to wait before a refused request may be sent again; None: it was not refused so."""
    value = answer.headers.get("Retry-After", "")
    if answer.status != http.client.TOO_MANY_REQUESTS or not value.isdecimal():
        return None
    return float(value) if float(value) <= _MOST_WAIT_SECONDS else None


def _read(answer: http.client.HTTPResponse) -> Iterator[Message]:
    """Yield the messages of a response. Raises ClientError for one without any."""
    if answer.headers.get_content_type() == "text/event-stream":
        yield from filter(None, map(_message, _events(answer)))
        return
    body = answer.read(_MOST_ANSWER_BYTES + 1)
    if len(body) > _MOST_ANSWER_BYTES:
        raise ClientError(_TOO_LARGE)
    message = _message(body)
    if message is not None:
        yield message
        return
    if answer.status >= http.client.BAD_REQUEST:
        raise ClientError(_reason(body, answer.status))


def _events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the data of each server-sent event. Raises ClientError for one over the limit."""
    data, bytes_left = list[bytes](), _MOST_ANSWER_BYTES
    while line := answer.readline(bytes_left + 1):
        if len(line) > bytes_left:
            raise ClientError(_TOO_LARGE)
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
            bytes_left -= len(line) + 1
        elif not line:
            if data:
                yield b"\n".join(data)
            data, bytes_left = [], _MOST_ANSWER_BYTES


def _message(body: bytes) -> Message | None:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else None


def _reason(body: bytes, status: int) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(body)["message"])
    text = body.decode(errors="replace").strip()
    return f"the daemon answered {status}: {text[:200] or 'no reason given'}"
