"""Names below localhost resolve to the loopback, as systemd-resolved has it; then the program runs. Argument: it."""

import runpy
import socket
import sys
from typing import Any

_resolve = socket.getaddrinfo


def resolve(host: Any, *rest: Any, **more: Any) -> Any:
    """Resolve a name."""
    return _resolve("127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more)


socket.getaddrinfo = resolve
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
