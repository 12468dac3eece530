"""Answer each visitor with the number of visits, which the service `store` keeps."""

import http.server
import os
import urllib.request


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/health":
            text = "fine\n"
        else:
            request = urllib.request.Request(os.environ["STORE"], method="PUT")
            with urllib.request.urlopen(request, timeout=10) as response:
                text = f"{os.environ['TITLE']}: {response.read().decode()}\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())


http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Page).serve_forever()
