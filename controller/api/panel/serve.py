"""The web panel's files at /panel/, answered before authentication: none of them is secret, and none reaches the API.

The panel itself sends a bearer token with each request to the API, as any client does.
"""

import gzip
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from controller.documents.json_schema import document_schema
from controller.kinds.registry import Kind
from controller.service.listing import serialize

ROOT = "/panel"
FOLDER = Path(__file__).parent / "static"
_INDEX = "index.html"
_NONCE, _VERSION = b"{{nonce}}", b"{{version}}"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class _File:
    """One file in memory."""

    data: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.data, 9, mtime=0)


class Panel:
    """Middleware that serves the panel's files. They are read at the first request for one of them."""

    def __init__(self, app: ASGIApp, kinds: Iterable[Kind]) -> None:
        self._app, self._kinds = app, tuple(kinds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and (path == ROOT or path.startswith(f"{ROOT}/")):
            await self._answer(scope)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            text = f"{scope['method']} {ROOT}: not allowed; the panel's files can only be read"
            return JSONResponse(serialize.status("MethodNotAllowed", 405, text), 405, {"Allow": "GET, HEAD"})
        if scope["path"] == ROOT:
            return RedirectResponse(f"{ROOT}/", 308)
        name = scope["path"].removeprefix(f"{ROOT}/") or _INDEX
        if name == _INDEX:
            return self._index()
        version, _, file_name = name.partition("/")
        if version == self._version:
            return self._file_answer(file_name, scope, "public, max-age=31536000, immutable")
        return self._file_answer(name, scope, "no-cache")

    def _file_answer(self, name: str, scope: Scope, caching: str) -> Response:
        file = self._files.get(name)
        if file is None:
            text = f"the panel has no file of this name; open {ROOT}/"
            return JSONResponse(serialize.status("NotFound", 404, text), 404, _HEADERS)
        return _sent(file, Headers(scope=scope), caching)

    def _index(self) -> Response:
        """Return the page with a nonce of its own. It is never cached: a cached page would have an old nonce."""
        nonce = secrets.token_urlsafe(16)
        body = self._files[_INDEX].data.replace(_NONCE, nonce.encode()).replace(_VERSION, self._version.encode())
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY.format(nonce=nonce), "Cache-Control": "no-store"}
        return Response(body, headers=headers, media_type=_TYPES[".html"])

    @cached_property
    def _version(self) -> str:
        """Hash of all files: their folder in the page's addresses, below which a browser may keep them."""
        return hashlib.sha256("".join(file.etag for file in self._files.values()).encode()).hexdigest()[:16]

    @cached_property
    def _files(self) -> Mapping[str, _File]:
        """Return the files by name: those of the folder, and the schema of each kind that can be written."""
        files = {
            path.relative_to(FOLDER).as_posix(): _File(path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(FOLDER.rglob("*"))
            if path.suffix in _TYPES
        }
        schemas = {
            f"schema/{kind.plural}.json": _File(json.dumps(document_schema(kind)).encode(), _TYPES[".json"])
            for kind in self._kinds
            if not kind.read_only
        }
        return {**files, **schemas}


def _sent(file: _File, headers: Headers, caching: str) -> Response:
    shared = {**_HEADERS, "ETag": file.etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if file.etag in (tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=shared)
    if "gzip" in headers.get("accept-encoding", ""):
        packed = {**shared, "Content-Encoding": "gzip"}
        return Response(file.compressed, headers=packed, media_type=file.media_type)
    return Response(file.data, headers=shared, media_type=file.media_type)
