"""Which host names a sandbox may be let through to, by its level."""

from collections.abc import Iterator

from controller.kinds.sandbox import NetworkSpec
from controller.policy.admission import Refusal
from controller.policy.levels import Level


def hosts_refused(network: NetworkSpec, level: Level | None) -> Iterator[Refusal]:
    """Every reason why these names can't be asked for at that level."""
    hosts = network.allowed_hosts or ()
    if level is None or not hosts:
        return
    if level.network == "none":
        words = f"level {level.name} has no network at all; leave the list out, or use securityLevel: development"
        yield Refusal("spec.network.allowedHosts", words)
    for index, each in enumerate(hosts):
        if each in hosts[:index]:
            yield Refusal(f"spec.network.allowedHosts[{index}]", f"`{each}` is listed twice; keep one")
