"""Asks the daemon on its Unix socket whether it is ready: prints its answer; exits 0 ready, 1 not yet, 2 nobody there.

Standard library only: a fresh machine need not have curl.
"""

import http.client
import socket
import sys


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def main(path: str) -> int:
    connection = UnixConnection(path)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read(4096).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        print(f"nobody answers at {path} ({error})")
        return 2
    finally:
        connection.close()
    print(body or answer.reason)
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
