"""Keep one number in a file: GET answers it, POST sets it if there is none, PUT adds one."""

import http.server
import pathlib
import threading

FILE, LOCK = pathlib.Path("/data/count"), threading.Lock()


class Store(http.server.BaseHTTPRequestHandler):
    def answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        self.answer(FILE.read_text() if FILE.exists() else "")

    def do_POST(self) -> None:
        first = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with LOCK:
            if not FILE.exists():
                FILE.write_text(first)
        self.answer(FILE.read_text())

    def do_PUT(self) -> None:
        with LOCK:
            count = int(FILE.read_text()) + 1
            FILE.write_text(str(count))
        self.answer(str(count))


http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Store).serve_forever()
