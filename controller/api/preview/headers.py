"""Headers of previews: which reach the program, and which of its answer reach the browser."""

import re
from dataclasses import dataclass

from controller.api.streams.proxy import UPGRADE, ProgramRequest
from controller.api.streams.relay import HOP, Headers, end_to_end_headers
from controller.kinds.runtime.preview import COOKIE, FRAME_COOKIE, HEADER

_NEVER_IN = HOP | {b"host", b"expect", b"forwarded", HEADER.encode()}
_NEVER_OUT = HOP | {b"alt-svc", b"nel", b"public-key-pins", b"report-to", b"strict-transport-security"}
_DOMAIN_OF_COOKIE = re.compile(rb";\s*domain\s*=", re.IGNORECASE)
_COOKIES = (COOKIE.encode(), FRAME_COOKIE.encode())
_LOCAL = rb"https?://(?:localhost|127\.0\.0\.1|\[::1\]):%d(?=[/?#]|\Z)"
_ADDED = ((b"origin-agent-cluster", b"?1"), (b"x-robots-tag", b"noindex"))
_CORP = b"cross-origin-resource-policy"


@dataclass(frozen=True, slots=True)
class PreviewRequest(ProgramRequest):
    """A browser's request for a preview. To the program it is one for http://localhost:PORT; `origin` is the preview's.

    Another page's Origin stays, so that the program can refuse it. Authorization is the program's own. `upgrades`: it
    asks for a WebSocket.
    """

    origin: str = ""
    upgrades: bool = False

    def head(self) -> Headers:
        """Return the headers for the program."""
        own, local = self.origin.encode(), b"http://localhost:%d" % self.port
        passed: list[tuple[bytes, bytes]] = []
        # Programs compare a page's Origin with X-Forwarded-Host, if there is one, else with Host: the two agree.
        is_of_own_page = any(name == b"origin" and value == own for name, value in self.headers)
        for name, value in end_to_end_headers(self.headers, _NEVER_IN):
            if name.startswith(b"x-forwarded-"):
                continue
            if name == b"cookie":
                value = without_cookie(value)
                if not value:
                    continue
            elif name == b"origin" and value == own:
                value = local
            elif name == b"referer" and (value == own or value.startswith(own + b"/")):
                value = local + value[len(own) :]
            passed.append((name, value))
        forwarded = ((b"x-forwarded-host", own.partition(b"://")[2]), (b"x-forwarded-proto", self.scheme.encode()))
        chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        return [
            (b"host", b"localhost:%d" % self.port),
            *passed,
            *(() if is_of_own_page else forwarded),
            *([(b"transfer-encoding", b"chunked")] if chunked else ()),
            *(UPGRADE if self.upgrades else ()),
        ]

    def answer_headers(self, headers: Headers) -> Headers:
        """Return the headers of the program's answer for the browser."""
        passed: list[tuple[bytes, bytes]] = []
        has_policy = False
        for name, value in end_to_end_headers(headers, _NEVER_OUT):
            if name == b"set-cookie" and (_DOMAIN_OF_COOKIE.search(value) or _is_ours(value)):
                continue
            if name == b"location":
                value = re.sub(_LOCAL % self.port, self.origin.encode(), value, count=1)
            has_policy |= name == _CORP
            passed.append((name, value))
        return [*passed, *_ADDED, *(() if has_policy else ((_CORP, b"same-origin"),))]


def without_cookie(value: bytes) -> bytes:
    """Return a Cookie header without ours."""
    return b"; ".join(part for part in _parts(value) if not _is_ours(part))


def cookies_of(headers: Headers, name: str = COOKIE) -> list[str]:
    """Return the values of a cookie of ours; a browser sends one."""
    parts = (part for header, value in headers if header == b"cookie" for part in _parts(value))
    return [part.partition(b"=")[2].strip().decode("latin-1") for part in parts if _name_of(part) == name.encode()]


def _parts(value: bytes) -> list[bytes]:
    return [part.strip() for part in value.split(b";") if part.strip()]


def _is_ours(cookie: bytes) -> bool:
    return _name_of(cookie) in _COOKIES


def _name_of(cookie: bytes) -> bytes:
    return cookie.partition(b"=")[0].strip()
