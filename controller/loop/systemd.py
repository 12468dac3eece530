"""Tells systemd how the daemon stands (sd_notify(3)): Type=notify and the watchdog. Elsewhere it does nothing."""

import os
import socket
from contextlib import suppress

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


def notify(*words: str) -> None:
    """Send these to who started us, if it asked for them; a service manager that does not listen harms nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        out.sendto("\n".join(words).encode(), f"\0{address[1:]}" if address[0] == "@" else address)
