"""A web app for previews, of the standard library: pages, cookies, events, uploads, and a WebSocket that echoes."""

import base64
import hashlib
import http.server
import json
import socketserver
import sys
import time

PAGE = b"""<!doctype html><title>app</title><h1>from inside</h1><script>
document.cookie = 'plain=1; path=/';
const socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket', 'vite-hmr');
socket.onopen = () => socket.send('x'.repeat(300000));
socket.onmessage = (event) => { document.body.dataset.socket = event.data.length + ' ' + socket.protocol; };
const events = new EventSource('/events');
events.onmessage = (event) => { document.body.dataset.events = event.data; };
fetch('/headers', { method: 'POST', body: '{}' }).then((answer) => answer.json())
  .then((headers) => { document.body.dataset.headers = JSON.stringify(headers); });
</script>"""
WORKER = b"""self.onfetch = (event) => {
  if (event.request.mode === 'navigate') event.respondWith(new Response('of the worker'));
};"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body: bytes, content_type: str = "text/html", code: int = 200, **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.headers.get("Upgrade"):
            self.echo()
        elif self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for number in range(3600):
                self.wfile.write(b"data: %d\n\n" % number)
                time.sleep(0.5)
        elif self.path == "/worker.js":
            self.answer(WORKER, "text/javascript")
        elif self.path == "/redirect":
            self.answer(b"", code=302, Location=f"http://{self.headers['Host']}/landed?x=1")
        else:
            self.answer(PAGE)

    def do_POST(self) -> None:
        if "Content-Length" in self.headers:
            remaining = size = int(self.headers["Content-Length"])
            while remaining:
                remaining -= len(self.rfile.read(min(remaining, 1 << 18)))
        else:
            size = 0
            while count := int(self.rfile.readline(), 16):
                size += len(self.rfile.read(count))
                self.rfile.readline()
            self.rfile.readline()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.answer(json.dumps({**headers, "size": size}).encode(), "application/json")

    def echo(self) -> None:
        key = self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Protocol", "vite-hmr")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2 and head[0] & 15 in (0, 1, 2):
            length = head[1] & 127
            extended = self.rfile.read({126: 2, 127: 8}.get(length, 0))
            length = int.from_bytes(extended, "big") if extended else length
            mask = self.rfile.read(4)
            data = self.rfile.read(length)
            text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            self.wfile.write(bytes([head[0], head[1] & 127]) + extended + text)

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = daemon_threads = True


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
