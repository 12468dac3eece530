"""Findings of `paddock doctor` about the other hosts of the store, and its clock."""

from collections.abc import Iterator, Sequence

from controller.kinds.observed.doctor import DoctorFacts, Finding, HostSighting, Severity
from controller.kinds.runtime.images import PACKAGES

_OURS = "paddock/"
_SKEW_SECONDS = 2.0  # of the lease's 6
_UNKEPT = "sandboxes of that host don't start, and are not kept"
# What it means that a condition does not hold. All of controller/kinds/host.py HOLDING.
_MEANINGS = {
    "EngineReachable": _UNKEPT,
    "StoreWritable": _UNKEPT,
    "NetworkGuard": "no sandbox with a network is started there; those without one are not affected",
}


def fleet(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield a finding for each other host, and one for the store's clock if that differs; none on a single host.

    Each host knows itself alone: what is amiss between two shows in requests that fail and sandboxes that wait.
    """
    skew = facts.store.skew_seconds
    if skew is not None and abs(skew) > _SKEW_SECONDS:
        observed = f"the store's clock differs from this host's by {skew:+.0f} s"
        meaning = "hosts disagree on ages, deadlines and idle times of sandboxes"
        yield Finding("clocks", Severity.PROBLEM, observed, meaning, "synchronise both by NTP")
    for host in facts.store.hosts:
        if host.name != facts.host:
            yield _host(host, facts.version)
            yield from _troubles(host)
    yield from _images([host for host in facts.store.hosts if host.is_alive and host.images])


def _host(host: HostSighting, version: str) -> Finding:
    """Check another host: one that is away or of another build looks like the others in lists of sandboxes."""
    check = f"host/{host.name}"
    if not host.is_alive:
        meaning = "its sandboxes run on, but nothing is started, restarted or reaped there; nothing is moved"
        action = f"start it there; if the host is gone for good, `paddock host remove {host.name}`"
        return Finding(check, Severity.WARNING, "its daemon is away", meaning, action)
    if host.version != version:
        observed = f"its daemon is of build {host.version or 'unknown'}, and this command of {version}"
        meaning = "they read the same store: that is meant for the time of an upgrade only"
        return Finding(check, Severity.WARNING, observed, meaning, "bring the older one to the newer build")
    return Finding(check, Severity.OK, f"its daemon runs, version {host.version}")


def _images(hosts: Sequence[HostSighting]) -> Iterator[Finding]:
    """Yield a finding for each host that lacks one of Paddock's images. Those of packages may differ.

    Images are built on each host: one that was forgotten leaves a host without sandboxes, and no error.
    """
    shared = {
        image
        for host in hosts
        for image in host.images
        if image.startswith(_OURS) and not image.startswith(PACKAGES) and "@" not in image
    }
    for host in hosts:
        if missing := sorted(shared - host.images):
            observed = f"it lacks images that other hosts have: {', '.join(missing)}"
            meaning = "sandboxes that need them do not start there; a swarm places them on the other hosts alone"
            action = "on that host run `images/build.sh` with their names, or `docker load` what another one saved"
            yield Finding(f"host/{host.name}/images", Severity.WARNING, observed, meaning, action)


def _troubles(host: HostSighting) -> Iterator[Finding]:
    """Yield findings about a host whose daemon runs."""
    if host.unreachable:
        observed = f"its daemon does not answer this host: {host.unreachable}"
        meaning = "requests for its sandboxes fail here, and lists of usage lack them; what runs there goes on"
        action = "let the hosts reach each other's fleet_address, and compare the fleet_* settings and files of both"
        yield Finding(f"host/{host.name}/reach", Severity.WARNING, observed, meaning, action)
    if host.failing:
        observed = "; ".join(condition.message for condition in host.failing)
        meaning = "; ".join(dict.fromkeys(_MEANINGS.get(condition.type, _UNKEPT) for condition in host.failing))
        action = f"run `paddock doctor` there; `paddock describe host {host.name}` shows its conditions"
        yield Finding(f"host/{host.name}/conditions", Severity.WARNING, observed, meaning, action)
