"""Addresses of TCP listeners as settings and objects hold them: HOST:PORT, an IPv6 address in brackets."""

import ipaddress

_MOST_PORT = 65535


def parse_address(text: str, *, least_port: int = 1) -> tuple[str, int]:
    """Return host and port; with `least_port` 0, which picks a free one, too. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if (
        not host
        or not colon
        or not least_port <= number <= _MOST_PORT
        or any(character.isspace() for character in host)
    ):
        raise ValueError(f"`{text[:100]}` is not HOST:PORT; write such as 10.0.0.2:9466 or [fd00::2]:9466")
    return host, number


def is_loopback(name: str) -> bool:
    """Return True if only this machine reaches this address or name."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
