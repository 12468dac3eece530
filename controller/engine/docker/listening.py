"""Whether anybody listens at the engine's address. Nothing is asked, so it may be looked at often while it is away."""

import contextlib
import socket

from controller.engine.docker.raw_http import unix_path

_SECONDS = 0.5


def listens(base_url: str) -> bool:
    """False where its Unix socket is not there, or nobody takes connections on it. Else True: nothing more is known."""
    path = unix_path(base_url)
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as link:
            link.settimeout(_SECONDS)
            if path:
                link.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:  # this process may have as many files open as it may
        return True
    return True
