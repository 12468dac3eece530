"""Outcome of a request of a sandbox to a host, and the rule that decides it. Pure: nothing is sent or resolved.

The rules are those of the proxy's configuration (egress.py) and of the guard, in their order.
"""

from dataclasses import dataclass
from ipaddress import ip_address

from controller.policy.levels.allowed_hosts import covered
from controller.policy.network.addresses import is_public
from controller.policy.network.peers import DOMAIN

_PORTS = (80, 443)


@dataclass(frozen=True, slots=True)
class Reach:
    """Network access of a sandbox: `mode` none, sealed or public at its `level`.

    `asked` are the hosts of its spec, `known` those of its level; None: it lists none.
    """

    level: str
    mode: str
    asked: tuple[str, ...] | None = None
    known: tuple[str, ...] | None = None
    local_network: bool = False
    peers: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a request, the rule that decides it, and what that means."""

    allowed: bool
    rule: str
    message: str


def check(host: str, port: int, reach: Reach) -> Verdict:
    """Return the outcome of a request to that host and port."""
    if host.endswith(f".{DOMAIN}"):
        return _peer(host, reach)
    if reach.mode == "none":
        words = "it has no network; give the sandbox `allowedHosts` at level development, or use level build"
        return Verdict(False, f"level {reach.level}: no network", words)
    if reach.mode == "public":
        return _public(host, reach)
    return _sealed(host, port, reach)


def _peer(host: str, reach: Reach) -> Verdict:
    if reach.peers:
        return Verdict(True, "spec.network.peers", f"`{host}` is reached on any port, if that sandbox has peers, too")
    words = "the sandbox joins no others; set `network.peers: Allowed` in both"
    return Verdict(False, "spec.network.peers", words)


def _public(host: str, reach: Reach) -> Verdict:
    rule = f"level {reach.level}: the whole Internet"
    if (literal := _literal(host)) is not None and not is_public(literal):
        words = f"`{host}` is a private or special address, which the guard drops"
        if reach.local_network:
            return Verdict(True, "spec.network.localNetwork", f"{words}, unless it is a private range's")
        return Verdict(False, "the guard", words)
    return Verdict(True, rule, "if the name resolves to a public address: the guard drops all others")


def _sealed(host: str, port: int, reach: Reach) -> Verdict:
    if port not in _PORTS:
        return Verdict(False, "ports of the proxy", f"port {port} is not reached: HTTP on 80 and TLS on 443 alone")
    if _literal(host) is not None:
        return Verdict(False, "names alone", f"`{host}` is an address, and lists of hosts have names; use its name")
    asked, known = _entry(host, reach.asked or ()), _entry(host, reach.known or ())
    of_level = f"hosts of level {reach.level}: `{known}`"
    if reach.known is not None and not known:
        words = f"`{host}` is not among the hosts of level {reach.level}; its operator adds it (setting package_hosts)"
        return Verdict(False, f"hosts of level {reach.level}", words)
    if reach.asked is None and known:
        return Verdict(True, of_level, _RESOLVED)
    if asked:
        return Verdict(True, f"spec.network.allowedHosts: `{asked}`", _RESOLVED)
    words = f"`{host}` is not in this sandbox's allowed hosts; add it to spec.network.allowedHosts"
    return Verdict(False, "spec.network.allowedHosts", words)


_RESOLVED = "if the name resolves to a public address: the proxy refuses all others"


def _entry(host: str, hosts: tuple[str, ...]) -> str:
    """Return the entry of the list that covers the host; "" without one."""
    return next((each for each in hosts if covered(host, (each,))), "")


def _literal(host: str) -> str | None:
    try:
        return str(ip_address(host))
    except ValueError:
        return None
