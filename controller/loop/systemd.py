"""Notifications to systemd (sd_notify(3)): Type=notify and the watchdog. Without systemd they do nothing."""

import os
import socket
from contextlib import suppress

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


def notify(*states: str) -> None:
    """Send these states to the service manager, if it asked for them. Failures are ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        out.sendto("\n".join(states).encode(), f"\0{address[1:]}" if address[0] == "@" else address)
