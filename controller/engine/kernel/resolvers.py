"""Addresses that networks of the engine need and the guard would drop: of name servers, and of the upstream proxy."""

import json
import socket
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from controller.policy.addresses import is_public

_STUB = ["127.0.0.53"]  # systemd-resolved: the engine passes on the servers behind it


def read_private_resolvers(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the IPv4 name servers at addresses that are not public: of the engine's settings, else of this host.

    One on loopback is left out: the engine asks it from this host's own network. Never raises.
    """
    servers = _of_engine(root / "etc/docker/daemon.json")
    if not servers:
        servers = _of_file(root / "etc/resolv.conf")
        if servers == _STUB:
            servers = _of_file(root / "run/systemd/resolve/resolv.conf")
    return tuple(dict.fromkeys(server for server in servers if _is_private(server)))


def read_private_addresses(upstream: str) -> tuple[str, ...] | None:
    """Return the IPv4 addresses of a host:port that are not public, as elements `ADDRESS . PORT`. Never raises.

    None: its name does not resolve now.
    """
    host, _, port = upstream.rpartition(":")
    if not host:
        return ()
    try:
        infos = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, ValueError):
        return None
    addresses = sorted({str(info[4][0]) for info in infos})
    return tuple(f"{address} . {port}" for address in addresses if _is_private(address))


def _of_engine(file: Path) -> list[str]:
    try:
        settings = json.loads(file.read_text())
        return [str(server) for server in settings.get("dns") or ()]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def _of_file(file: Path) -> list[str]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [tokens[1] for line in lines if len(tokens := line.split()) > 1 and tokens[0] == "nameserver"]


def _is_private(address: str) -> bool:
    try:
        server = IPv4Address(address)
    except AddressValueError:
        return False
    return not (is_public(address) or server.is_loopback or server.is_multicast or server.is_unspecified)
