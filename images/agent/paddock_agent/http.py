"""HTTP/1.1 messages: an incremental request parser with hard bounds, and response heads."""

MAX_HEAD = 16 * 1024
MAX_BODY = 4 * 1024 * 1024
MAX_HEADERS = 64
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_SINGLE = ("content-length", "host", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "content-type")

REASONS = {
    100: "Continue",
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class HTTPError(Exception):
    """A request that is refused with this status; the connection is closed after it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Request:
    """One request with its whole body."""

    __slots__ = ("body", "duplicated", "headers", "keep_alive", "method", "path", "query")

    def __init__(self, method: str, target: str, headers: dict[str, str], keep_alive: bool) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = b""
        self.duplicated = ""  # a header that must be there once and is there twice

    def accepts(self, kind: str) -> bool:
        """Return if the Accept header takes KIND; none at all takes everything."""
        accept = self.headers.get("accept", "*/*")
        kinds = {each.split(";")[0].strip().lower() for each in accept.split(",")}
        return bool(kinds & {kind, kind.split("/", maxsplit=1)[0] + "/*", "*/*"})


class Parser:
    """Requests out of bytes, however these are cut; raises HTTPError once the bytes can't become a request."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._request: Request | None = None
        self._length = 0  # of the body; -1: chunked
        self._chunks = bytearray()
        self.wants_continue = False

    @property
    def held(self) -> int:
        """Bytes in memory for a request that is not whole yet."""
        return len(self.buffer) + len(self._chunks)

    @property
    def partial(self) -> bool:
        return bool(self.buffer) or self._request is not None

    def feed(self, data: bytes) -> None:
        self.buffer += data

    def next(self) -> Request | None:
        """Return the next whole request, or None until more bytes are fed."""
        if self._request is None and not self._head():
            return None
        request = self._request
        assert request is not None
        body = self._chunked() if self._length < 0 else self._plain()
        if body is None:
            return None
        request.body = body
        self._request = None
        self.wants_continue = False
        return request

    def _head(self) -> bool:
        while self.buffer[:2] == b"\r\n":  # RFC 9112 2.2: an empty line before a request is ignored
            del self.buffer[:2]
        end = self.buffer.find(b"\r\n\r\n", 0, MAX_HEAD)
        if end < 0:
            if len(self.buffer) >= MAX_HEAD:
                raise HTTPError(431, f"the request's head is longer than {MAX_HEAD} bytes")
            return False
        lines = bytes(self.buffer[:end]).split(b"\r\n")
        del self.buffer[: end + 4]
        if len(lines) > MAX_HEADERS + 1:
            raise HTTPError(431, f"the request has more than {MAX_HEADERS} headers")
        request = _start(lines)
        self._length = _body_length(request)
        self.wants_continue = self._length != 0 and request.headers.get("expect", "").lower() == "100-continue"
        self._request = request
        return True

    def _plain(self) -> bytes | None:
        if len(self.buffer) < self._length:
            return None
        body = bytes(self.buffer[: self._length])
        del self.buffer[: self._length]
        return body

    def _chunked(self) -> bytes | None:
        while True:
            end = self.buffer.find(b"\r\n", 0, 64)
            if end < 0:
                if len(self.buffer) >= 64:
                    raise HTTPError(400, "a chunk's size is malformed")
                return None
            digits = bytes(self.buffer[:end]).partition(b";")[0].strip()
            if not digits or len(digits) > 8 or not _HEX.issuperset(digits):
                raise HTTPError(400, "a chunk's size is malformed")
            size = int(digits, 16)
            if len(self._chunks) + size > MAX_BODY:
                raise _too_large()
            if len(self.buffer) < end + 2 + size + 2:
                return None
            if self.buffer[end + 2 + size : end + 4 + size] != b"\r\n":
                raise HTTPError(400, "a chunk does not end where its size says" if size else "trailers are not taken")
            self._chunks += self.buffer[end + 2 : end + 2 + size]
            del self.buffer[: end + 4 + size]
            if size == 0:
                body = bytes(self._chunks)
                self._chunks.clear()
                return body


def _start(lines: list[bytes]) -> Request:
    words = lines[0].split(b" ")
    if len(words) != 3 or not words[0] or not _TOKEN.issuperset(words[0]):
        raise HTTPError(400, "the request line is malformed")
    if words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        known = words[2].startswith(b"HTTP/") and len(words[2]) == 8
        raise HTTPError(505 if known else 400, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    if not words[1].startswith(b"/") or any(not 0x21 <= byte <= 0x7E for byte in words[1]):
        raise HTTPError(400, "the request's target must be a path")
    headers: dict[str, str] = {}
    duplicated = ""
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or not _TOKEN.issuperset(name):
            raise HTTPError(400, "a header line is malformed")
        if any(byte in b"\0\r\n" for byte in value):
            raise HTTPError(400, "a header has a control character")
        key = name.decode("ascii").lower()
        text = value.strip(b" \t").decode("latin-1")
        if key in headers:
            if key in ("content-length", "transfer-encoding", "host"):
                raise HTTPError(400, f"{key} is given twice")
            if key in _SINGLE:
                duplicated = key
            text = f"{headers[key]}, {text}"
        headers[key] = text
    connection = {each.strip().lower() for each in headers.get("connection", "").split(",")}
    keep_alive = "close" not in connection if words[2] == b"HTTP/1.1" else "keep-alive" in connection
    if words[2] == b"HTTP/1.1" and "host" not in headers:
        raise HTTPError(400, "the Host header is missing")
    request = Request(words[0].decode("ascii"), words[1].decode("ascii"), headers, keep_alive)
    request.duplicated = duplicated
    return request


def _body_length(request: Request) -> int:
    """Return the length of the body, -1 if it comes in chunks."""
    coding = request.headers.get("transfer-encoding")
    length = request.headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise HTTPError(400, "content-length and transfer-encoding contradict each other")
        if coding.lower() != "chunked":
            raise HTTPError(501, "the only transfer-encoding is chunked")
        return -1
    if length is None:
        return 0
    if not length.isascii() or not length.isdecimal() or len(length) > 18:
        raise HTTPError(400, "content-length must be a number")
    if int(length) > MAX_BODY:
        raise _too_large()
    return int(length)


def _too_large() -> HTTPError:
    return HTTPError(413, f"a request may have {MAX_BODY // 1024 // 1024} MiB; write large files in parts")


def head(status: int, headers: dict[str, str], keep_alive: bool) -> bytes:
    """Return the bytes of a response's head."""
    lines = [f"HTTP/1.1 {status} {REASONS[status]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not keep_alive:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
