"""A registry of one small image, on this host, that counts how often the image is fetched."""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_SCHEMA = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class Registry:
    """`image` is what to pull; `fetched` counts manifests that were asked for."""

    image: str
    fetched: list[str] = field(default_factory=list)


@contextmanager
def registry(name: str) -> Iterator[Registry]:
    """Serve an image of that name (`team/app:1`) on a port of its own."""
    blobs, manifest = _made(name)
    repository, _, tag = name.partition(":")

    class Door(BaseHTTPRequestHandler):
        default_request_version = "HTTP/1.0"  # a client of TLS is answered in HTTP, and tries again without

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            kind, data = self._asked_for()
            self.send_response(200 if data is not None else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data or b"")))
            if kind == _SCHEMA:
                self.send_header("Docker-Content-Digest", _digest(manifest))
            self.end_headers()
            if body and data:
                self.wfile.write(data)

        def _asked_for(self) -> tuple[str, bytes | None]:
            if self.path in ("/v2/", "/v2"):
                return "application/json", b"{}"
            if self.path in (f"/v2/{repository}/manifests/{tag}", f"/v2/{repository}/manifests/{_digest(manifest)}"):
                created.fetched += [self.path] if self.command == "GET" else []
                return _SCHEMA, manifest
            return "application/octet-stream", blobs.get(self.path.rpartition("/")[2])

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    created = Registry(f"127.0.0.1:{server.server_port}/{name}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield created
    finally:
        server.shutdown()
        server.server_close()


def _made(name: str) -> tuple[dict[str, bytes], bytes]:
    """The blobs by digest, and the manifest, of an image with one file that says its name."""
    plain, packed = io.BytesIO(), io.BytesIO()
    for file, mode in ((plain, "w"), (packed, "w:gz")):
        with tarfile.open(fileobj=file, mode=mode) as tree:  # type: ignore[call-overload]
            entry = tarfile.TarInfo("name")
            entry.size = len(name)
            tree.addfile(entry, io.BytesIO(name.encode()))
    layer = packed.getvalue()
    rootfs = {"type": "layers", "diff_ids": [_digest(plain.getvalue())]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    of_config, of_layer = (
        {"mediaType": kind, "size": len(content), "digest": _digest(content)}
        for kind, content in ((_CONFIG, config), (_LAYER, layer))
    )
    manifest = {"schemaVersion": 2, "mediaType": _SCHEMA, "config": of_config, "layers": [of_layer]}
    return {_digest(content): content for content in (layer, config)}, json.dumps(manifest).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
