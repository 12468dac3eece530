"""Caller and sandbox of a call: API keys, access tokens, signed URLs, host names and headers."""

import base64
import binascii
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope

from controller.e2b.directory import Directory
from controller.e2b.errors import SandboxGone
from controller.e2b.parts import ENVD_PORT, INTERPRETER_PORT, Parts
from controller.e2b.signature import Access, AccessTokens, Operation, SignedUrl
from controller.kinds.access.access import Caller
from controller.kinds.access.api_key import token_of
from controller.kinds.common.http_head import is_local
from controller.kinds.meta import StoredObject
from controller.service.errors import BadRequest, Misdirected, TooManyRequests, Unauthorized, translate_store_errors

KEY_HEADER, TOKEN_HEADERS = "x-api-key", ("x-access-token", "e2b-traffic-access-token")
_ID_HEADER, _PORT_HEADER = "e2b-sandbox-id", "e2b-sandbox-port"
_TRIES, _WINDOW_SECONDS, _MOST_SOURCES = 60, 60.0, 4096
_SANDBOX_PATHS = ("/process.Process/", "/filesystem.Filesystem/")
_ENVD_PATHS = ("/files", "/files/compose", "/health", "/init", "/envs")
_NO_KEY = "the API key is missing; set E2B_API_KEY as `paddock e2b env` prints it"
_NO_TOKEN = (
    "the access token of the sandbox is missing or wrong; create the sandbox, or connect to it, with your API key"  # noqa: S105
)
_NO_TOKEN_FOR_PORT = (
    "a program's port is open to nobody without the sandbox's access token, in the header X-Access-Token; for a browser"  # noqa: S105
    " make a link with `paddock open NAME PORT`"
)


@dataclass(frozen=True, slots=True)
class Destination:
    """The sandbox and port that a request names; "": none by its name."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """The caller of a request for a sandbox, and that sandbox."""

    caller: Caller
    obj: StoredObject


class Identity:
    """Identifies callers. Thread-safe."""

    def __init__(self, parts: Parts, access_tokens: AccessTokens, directory: Directory) -> None:
        self._parts, self._access_tokens, self._directory = parts, access_tokens, directory
        self._tries = Tries()

    def caller(self, headers: Headers, source: str) -> Caller:
        """Return the holder of the API key. Raises Unauthorized."""
        keys = headers.getlist(KEY_HEADER)
        if len(keys) != 1 or not keys[0].strip():
            raise Unauthorized(_NO_KEY if len(keys) < 2 else "there is more than one API key; send one")
        caller = self._parts.identify.token(token_of(keys[0].strip()), source)
        return replace(caller, source=f"{source} e2b")

    def target(self, scope: Scope, headers: Headers, destination: Destination, source: str) -> Target:
        """Return the caller and the sandbox of a request with an access token, or with a signature.

        Raises Unauthorized; SandboxGone; TooManyRequests.
        """
        tokens = {token.strip() for name in TOKEN_HEADERS for token in headers.getlist(name)}
        if len(tokens) > 1:
            raise BadRequest("there is more than one access token; send one")
        if tokens:
            access = self._access_tokens.read(tokens.pop())
            if access is None:
                raise Unauthorized(_NO_TOKEN)
            return self._target(access, destination, source)
        query = QueryParams(scope.get("query_string", b""))
        if scope["type"] == "http" and scope["path"] == "/files" and "signature" in query:
            operation: Operation = "read" if scope["method"] in ("GET", "HEAD") else "write"
            return self._target(self._signer(query, operation, source), destination, source)
        raise Unauthorized(_NO_TOKEN if destination.port in (ENVD_PORT, INTERPRETER_PORT) else _NO_TOKEN_FOR_PORT)

    def issue(self, obj: StoredObject, caller: Caller) -> str:
        """Return the access token of a sandbox for this caller. Raises Unauthorized for a caller without a token."""
        if not caller.token_id:
            raise Unauthorized("an access token needs a caller with a token; use an API key")
        self._directory.add(obj, caller.token_id)
        return self._access_tokens.issue(Access(obj.uid, caller.token_id))

    def _target(self, access: Access, destination: Destination, source: str) -> Target:
        caller = self._holder(access, source)
        obj = self._directory.get(access.uid)
        if obj is None:
            raise SandboxGone(destination.name)
        if destination.name and destination.name != obj.name:
            raise Unauthorized(
                f"the access token is not of the sandbox {destination.name}; connect to it with your API key"
            )
        return Target(caller, obj)

    def _holder(self, access: Access, source: str) -> Caller:
        """Return the holder of the token behind an access token. Raises Unauthorized once it has ended."""
        with translate_store_errors():
            token = self._parts.tokens.by_id(access.token_id)
        if token is None or token.state(self._parts.clock.now()) != "active":
            raise Unauthorized("the API key behind this access token has expired or was revoked; ask an admin for one")
        return Caller(f"token {token.name}", f"{source} e2b", (token.grant,), token.id, token.expires_at)

    def _signer(self, query: QueryParams, operation: Operation, source: str) -> Access:
        """Return the access that a URL was signed with. Each source has few wrong tries a minute."""
        now = self._parts.clock.now()
        self._tries.check(source, now)
        expires = query.get("signature_expiration", "")
        url = SignedUrl(query.get("path", ""), operation, query.get("username", ""), query["signature"], expires)
        accesses = self._directory.accesses() if url.is_well_formed else ()
        by_token = {self._access_tokens.issue(access): access for access in accesses}
        signer = url.signer(by_token)
        if not signer or url.is_expired(now):
            self._tries.add(source)
            why = "has expired" if signer else "is not valid"
            raise Unauthorized(f"the signature of this URL {why}; make another by the sandbox's access token")
        return by_token[signer]


class Tries:
    """Wrong signatures of each source, of which a minute has few. Thread-safe."""

    def __init__(self) -> None:
        self._lock, self._began = threading.Lock(), 0.0
        self._counts: dict[str, int] = {}

    def check(self, source: str, now: float) -> None:
        """Raise TooManyRequests for a source that had too many; of very many sources together, for all."""
        with self._lock:
            if not 0 <= now - self._began < _WINDOW_SECONDS:
                self._began, self._counts = now, {}
            is_full = len(self._counts) >= _MOST_SOURCES and source not in self._counts
            if self._counts.get(source, 0) >= _TRIES or is_full:
                seconds = max(1, round(_WINDOW_SECONDS - (now - self._began)))
                raise TooManyRequests(
                    "too many wrong signatures came from here; send the header X-Access-Token, or wait",
                    retry_after_seconds=seconds,
                )

    def add(self, source: str) -> None:
        """Count a wrong one."""
        with self._lock:
            self._counts[source] = self._counts.get(source, 0) + 1


def named_by(headers: Headers, path: str, domain: str) -> Destination | None:
    """Return the sandbox that a request names by its headers, host name or path; None: the control plane.

    Raises BadRequest.
    """
    host = headers.get("host", "").lower()
    if domain and host.endswith(f".{domain}"):
        label = host.removesuffix(f".{domain}")
        port, dash, name = label.partition("-")
        if dash and name and port.isascii() and port.isdigit():
            return Destination(name, _port(port))
        if label != "api":
            raise BadRequest(f"host name `{host[:100]}`: is not PORT-ID.{domain}; use what get_host returns")
        return None
    if _ID_HEADER in headers:
        return Destination(headers[_ID_HEADER], _port(headers.get(_PORT_HEADER, str(_port_of(path)))))
    return Destination("", _port_of(path)) if is_of_sandbox(path) else None


def is_of_sandbox(path: str) -> bool:
    """Return True if a path without host name and headers is of a sandbox, and not of the control plane."""
    return path.startswith(_SANDBOX_PATHS) or path in _ENVD_PATHS or _port_of(path) == INTERPRETER_PORT


def check_host(headers: Headers, *, domain: str, authenticated: bool) -> None:
    """Refuse a foreign Host without a token: a web page may have made that name lead here. Raises Misdirected."""
    hosts = headers.getlist("host")
    if len(hosts) > 1:
        raise BadRequest("there is more than one Host header; send one")
    host = hosts[0].lower() if hosts else ""
    ours = is_local(host) or (bool(domain) and (host == domain or host.endswith(f".{domain}")))
    if not authenticated and not ours:
        raise Misdirected(f"Host header: `{host[:100]}` is not a name of this listener; use its address, or a token")


def user_of(headers: Headers) -> str:
    """Return the user in an Authorization header, as clients name the one of a call. Raises BadRequest."""
    header = headers.get("authorization", "")
    scheme, _, value = header.partition(" ")
    if not header or scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[0]
    except (binascii.Error, ValueError):
        raise BadRequest("Authorization: must be `Basic` and base64 of `USER:`") from None


def check_user(user: str) -> None:
    """Refuse other users than the sandbox's own. Raises BadRequest."""
    if user not in ("", "user"):
        raise BadRequest(
            f"user `{user[:60]}`: is not a user here; leave it out: commands and files are those of the sandbox's own"
            " user, which its template sets (`user:`)"
        )


def _port_of(path: str) -> int:
    interpreter = path in ("/execute", "/contexts") or path.startswith("/contexts/")
    return INTERPRETER_PORT if interpreter else ENVD_PORT


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise BadRequest(f"port `{text[:20]}`: must be a number from 1 to 65535")
    return int(text)


def credentials_in(headers: Headers, query: Sequence[str]) -> bool:
    """Return True if a request carries an API key, an access token or a signature, be it right or wrong."""
    return "signature" in query or any(name in headers for name in (KEY_HEADER, *TOKEN_HEADERS))
