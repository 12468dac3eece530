#!/usr/bin/env python3
"""A program that stands for an application: it connects to what NEEDS names, then answers HTTP on PORT.

NEEDS: `db:5432 cache:6379`. Each answer lists what was reached. `--once`: end after that, as a migration does.
"""

import http.server
import os
import socket
import sys
import time

NEEDS = os.environ.get("NEEDS", "").split()


def reach(needed: str) -> str:
    host, _, port = needed.partition(":")
    deadline = time.monotonic() + float(os.environ.get("PATIENCE", "30"))
    while True:
        try:
            with socket.create_connection((host, int(port)), 5) as connection:
                return f"{needed} at {connection.getpeername()[0]}"
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"{needed}: {error}") from error
            time.sleep(0.1)


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = "\n".join((os.environ.get("NAME", "app"), *map(reach, NEEDS))).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


reached = [reach(needed) for needed in NEEDS]
print("\n".join(["up", *reached]), flush=True)
if "--once" not in sys.argv:
    http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ.get("PORT", "8000"))), Answer).serve_forever()
