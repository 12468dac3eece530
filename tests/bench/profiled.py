"""A daemon that tells which functions of `controller/` it calls: `python -m tests.bench.profiled SOCKET ... serve`.

At the socket, `begin` starts a recording, and `end` returns it: a JSON list of thread, file and function.
"""

import json
import os
import runpy
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

PACKAGE = str(Path(__file__).resolve().parents[2] / "controller") + os.sep
_calls: set[tuple[str, str, str]] = set()
_recording = threading.Event()


def _profile(frame: FrameType, event: str, _argument: object) -> None:
    code = frame.f_code
    if event == "call" and _recording.is_set() and code.co_filename.startswith(PACKAGE):
        _calls.add((threading.current_thread().name, code.co_filename.removeprefix(PACKAGE), code.co_qualname))


def _serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            if connection.recv(16) == b"begin":
                _calls.clear()
                _recording.set()
                connection.sendall(b"begun")
            else:
                _recording.clear()
                connection.sendall(json.dumps(sorted(_calls)).encode())


def recording(path: Path, command: str) -> bytes:
    """Send a command to the daemon that listens there, and return its answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(command.encode())
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


if __name__ == "__main__":
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[1])
    server.listen()
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    threading.setprofile(_profile)
    sys.setprofile(_profile)
    sys.argv = ["controller", sys.argv[-1]]
    runpy.run_module("controller", run_name="__main__")
