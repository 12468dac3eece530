"""Outcome of a request of a sandbox to a host, and the rule that decides it. Pure: nothing is sent or resolved.

The rules are those of the proxy's configuration (egress.py) and of the guard, in their order.
"""

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address

from controller.policy.addresses import is_public
from controller.policy.levels.allowed_hosts import is_covered
from controller.policy.network.peers import DOMAIN

_PORTS = (80, 443)


@dataclass(frozen=True, slots=True)
class Reach:
    """Network access of a sandbox: `mode` none, sealed or public at its `level`.

    `requested_hosts` are those of its spec, `level_hosts` those of its level; None: it lists none.
    """

    level: str
    mode: str
    requested_hosts: tuple[str, ...] | None = None
    level_hosts: tuple[str, ...] | None = None
    local_network: bool = False
    peers: bool = False
    peer_names: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a request, the rule that decides it, and what that means."""

    is_allowed: bool
    rule: str
    message: str


def check(host: str, port: int, reach: Reach) -> Verdict:
    """Return the outcome of a request to that host and port."""
    if host.endswith(f".{DOMAIN}") or host in reach.peer_names:
        return _peer(host, reach)
    if reach.mode == "none":
        message = "it has no network; give the sandbox `allowedHosts` at level development, or use level build"
        return Verdict(False, f"level {reach.level}: no network", message)
    if reach.mode == "public":
        return _public(host, reach)
    return _check_sealed(host, port, reach)


def _peer(host: str, reach: Reach) -> Verdict:
    if reach.peers:
        return Verdict(True, "spec.network.peers", f"`{host}` is reached on any port, if that sandbox has peers, too")
    message = "the sandbox joins no others; set `network.peers: Allowed` in both"
    return Verdict(False, "spec.network.peers", message)


def _public(host: str, reach: Reach) -> Verdict:
    rule = f"level {reach.level}: the whole Internet"
    if (literal := _literal(host)) is not None and not is_public(literal):
        message = f"`{host}` is a private or special address, which the guard drops"
        if reach.local_network:
            return Verdict(True, "spec.network.localNetwork", f"{message}, unless it is a private range's")
        return Verdict(False, "the guard", message)
    return Verdict(True, rule, "if the name resolves to a public address: the guard drops all others")


def _check_sealed(host: str, port: int, reach: Reach) -> Verdict:
    if port not in _PORTS:
        return Verdict(False, "ports of the proxy", f"port {port} is not reached: HTTP on 80 and TLS on 443 alone")
    if _literal(host) is not None:
        return Verdict(False, "names alone", f"`{host}` is an address, and lists of hosts have names; use its name")
    requested_entry, level_entry = _entry(host, reach.requested_hosts or ()), _entry(host, reach.level_hosts or ())
    of_level = f"hosts of level {reach.level}: `{level_entry}`"
    if reach.level_hosts is not None and not level_entry:
        message = (
            f"`{host}` is not among the hosts of level {reach.level}; its operator adds it (setting package_hosts)"
        )
        return Verdict(False, f"hosts of level {reach.level}", message)
    if reach.requested_hosts is None and level_entry:
        return Verdict(True, of_level, _RESOLVED)
    if requested_entry:
        return Verdict(True, f"spec.network.allowedHosts: `{requested_entry}`", _RESOLVED)
    message = f"`{host}` is not in this sandbox's allowed hosts; add it to spec.network.allowedHosts"
    return Verdict(False, "spec.network.allowedHosts", message)


_RESOLVED = "if the name resolves to a public address: the proxy refuses all others"


def _entry(host: str, hosts: tuple[str, ...]) -> str:
    """Return the entry of the list that covers the host; "" without one."""
    return next((entry for entry in hosts if is_covered(host, (entry,))), "")


def _literal(host: str) -> str | None:
    try:
        return str(ip_address(host))
    except ValueError:
        return None
