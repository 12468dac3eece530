"""Allowed network targets of a sandbox, by its level: host names, and the local network."""

from collections.abc import Collection, Iterator

from controller.kinds.sandbox import NetworkSpec
from controller.policy.levels.levels import Level, Policy
from controller.policy.refusal import Refusal

_AT = "spec.network"


def network_refused(network: NetworkSpec, level: Level | None, policy: Policy) -> Iterator[Refusal]:
    """Yield every reason why this network access is not allowed at that level."""
    if level is None:
        return
    yield from _hosts(network.allowed_hosts or (), level)
    yield from _peers(network, level, policy)
    if network.local_network == "Blocked":
        return
    if level.network != "public":
        message = f"level {level.name} has no access to the local network; remove it, or use securityLevel: production"
        yield Refusal(f"{_AT}.localNetwork", message)
    elif not policy.local_network:
        message = "this host's operator allows no sandbox into the local network (setting local_network); remove it"
        yield Refusal(f"{_AT}.localNetwork", message)


def _peers(network: NetworkSpec, level: Level, policy: Policy) -> Iterator[Refusal]:
    if network.peers == "Blocked":
        if network.peer_names:
            yield Refusal(f"{_AT}.peerNames", "it joins no others; write `peers: Allowed`, too, or remove it")
        return
    if not level.peers:
        message = f"level {level.name} can't join other sandboxes; remove it, or use securityLevel: development"
        yield Refusal(f"{_AT}.peers", message)
    elif not policy.peers:
        message = "this host's operator allows no sandbox to join others (setting peers); remove it"
        yield Refusal(f"{_AT}.peers", message)


def _hosts(hosts: Collection[str], level: Level) -> Iterator[Refusal]:
    if hosts and level.network == "none":
        message = f"level {level.name} has no network at all; remove the list, or use securityLevel: development"
        yield Refusal(f"{_AT}.allowedHosts", message)
    if hosts and level.network == "public":
        message = f"level {level.name} reaches the whole Internet, without a proxy that could enforce a list; remove it"
        yield Refusal(f"{_AT}.allowedHosts", message)
    earlier_hosts: set[str] = set()
    for index, host in enumerate(hosts):
        if host in earlier_hosts:
            yield Refusal(f"{_AT}.allowedHosts[{index}]", f"`{host}` is listed twice; keep one")
        elif level.allowed_hosts is not None and not is_covered(host, level.allowed_hosts):
            message = (
                f"`{host}` is not among the hosts of level {level.name} (`paddock get securityprofile {level.name} "
                "-o yaml`); remove it, or ask the operator to add it to the setting package_hosts"
            )
            yield Refusal(f"{_AT}.allowedHosts[{index}]", message)
        earlier_hosts.add(host)


def reachable(network: NetworkSpec, level: Level) -> tuple[str, ...]:
    """Return the names that its proxy allows: the requested ones that its level permits."""
    requested, level_hosts = network.allowed_hosts, level.allowed_hosts
    if level_hosts is None:
        return requested or ()
    return level_hosts if requested is None else tuple(host for host in requested if is_covered(host, level_hosts))


def is_covered(host: str, hosts: Collection[str]) -> bool:
    """Return True if the list covers every name that `host` stands for."""
    wild = (pattern[1:] for pattern in hosts if pattern.startswith("*."))
    return host in hosts or any(host.removeprefix("*").endswith(suffix) for suffix in wild)
