"""A registry of images in memory, as an engine pushes to and pulls from one (OCI distribution, as far as that goes).

    with a_registry() as registry:
        registry.host          # 127.0.0.1:PORT, which every engine in that network takes for insecure-allowed
        registry.login = ("me", "secret")   # from now on required

Give it a listening socket of another network namespace to stand in there.
"""

import base64
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<what>blobs/uploads|blobs|manifests)/(?P<ref>[^/]*)\Z")


_SMALL_BYTES = 64 << 10  # a newer engine asks for layers once it has the image's settings


class Registry:
    """Its blobs and manifests, and the login that it requires."""

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.login: tuple[str, str] | None = None
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.uploads: dict[str, bytes] = {}
        self.hold = threading.Event()  # while clear, blobs are not answered, or half of each layer if `halves`
        self.halves = False
        self.hold.set()

    @property
    def tags(self) -> set[str]:
        """The images by name and tag."""
        return {f"{name}:{ref}" for name, ref in self.manifests if not ref.startswith("sha256:")}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # a client of TLS is answered in HTTP, and tries again without
    registry: Registry

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def _answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _handle(self) -> None:
        body, registry = self._body(), self.registry
        if registry.login is not None:
            basic = base64.b64encode(":".join(registry.login).encode()).decode()
            if self.headers.get("Authorization") != f"Basic {basic}":
                message = b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
                self._answer(401, message, WWW_Authenticate='Basic realm="lab"')
                return
        parts = urlsplit(self.path)
        if parts.path == "/v2/":
            self._answer(200, b"{}")
            return
        match = _PATH.match(parts.path)
        if match is None:
            self._answer(404)
        elif match["what"] == "manifests":
            self._manifest(match["name"], match["ref"], body)
        elif match["what"] == "blobs":
            self._blob(match["ref"])
        else:
            self._upload(match["name"], match["ref"], parse_qs(parts.query), body)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = _handle

    def _manifest(self, name: str, ref: str, body: bytes) -> None:
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        if self.command == "PUT":
            stored = (self.headers.get("Content-Type", ""), body)
            self.registry.manifests[name, ref] = self.registry.manifests[name, digest] = stored
            self._answer(201, Docker_Content_Digest=digest)
            return
        manifest = self.registry.manifests.get((name, ref))
        if manifest is None:
            self._answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}')
            return
        digest = "sha256:" + hashlib.sha256(manifest[1]).hexdigest()
        length = str(len(manifest[1]))
        self._answer(200, manifest[1], Content_Type=manifest[0], Docker_Content_Digest=digest, Content_Length=length)

    def _blob(self, digest: str) -> None:
        data = self.registry.blobs.get(digest)
        if data is None:
            self._answer(404)
            return
        is_halved = self.command == "GET" and self.registry.halves and len(data) > _SMALL_BYTES
        if self.command == "GET" and not self.registry.halves:
            self.registry.hold.wait(60)
        half = len(data) // 2 if is_halved else len(data)
        self._answer(200, data[:half], Content_Length=str(len(data)), Docker_Content_Digest=digest)
        if half < len(data):
            self.wfile.flush()
            self.registry.hold.wait(60)
            self.wfile.write(data[half:])

    def _upload(self, name: str, ref: str, query: dict[str, list[str]], body: bytes) -> None:
        uploads = self.registry.uploads
        key = ref or f"u{len(uploads)}"
        data = uploads[key] = uploads.get(key, b"") + body
        where = f"/v2/{name}/blobs/uploads/{key}"
        if self.command == "PUT":
            (digest,) = query["digest"]
            self.registry.blobs[digest] = data
            self._answer(201, Docker_Content_Digest=digest, Location=f"/v2/{name}/blobs/{digest}")
        else:
            self._answer(202, Location=where, Docker_Upload_UUID=key, Range=f"0-{max(0, len(data) - 1)}")


@contextmanager
def a_registry(listener: socket.socket | None = None) -> Iterator[Registry]:
    """A registry that answers until the end."""
    listener = listener or socket.create_server(("127.0.0.1", 0))
    registry = Registry(listener.getsockname()[1])
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket, server.daemon_threads = listener, True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.hold.set()
        server.shutdown()
        thread.join(60)
        server.server_close()
