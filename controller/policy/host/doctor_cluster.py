"""Findings of `paddock doctor` about the scheduler of many hosts, and the certificate between them."""

from collections import Counter
from collections.abc import Iterator

from controller.kinds.observed.doctor import ClusterFacts, DoctorFacts, Finding, HostSighting, NodeSighting, Severity
from controller.ports.scheduler import SchedulerProblem

_SOON_DAYS = 30
_HEARTBEAT_SECONDS = 1.0  # the figures of many hosts are measured with it


def cluster(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield the findings about the scheduler and its nodes; none without one.

    A swarm and the store know hosts by name alone: where they differ, nothing is placed, and neither reports an error.
    """
    cluster_facts = facts.cluster
    if cluster_facts is None:
        return
    if cluster_facts.trouble:
        yield _silent(cluster_facts)
        return
    up = sum(node.is_up is True for node in cluster_facts.nodes)
    yield Finding(
        cluster_facts.scheduler, Severity.OK, f"it can decide; {up} of {len(cluster_facts.nodes)} nodes are up"
    )
    yield from _heartbeat(cluster_facts.heartbeat_seconds)
    names = Counter(node.name for node in cluster_facts.nodes)
    for name in sorted(name for name, count in names.items() if count > 1):
        meaning = "nothing is placed there, since nobody knows which of them is meant"
        action = "remove those that are gone by `docker node rm`, or rename a machine and restart its engine"
        yield Finding(f"node/{name}", Severity.PROBLEM, f"{names[name]} nodes have this name", meaning, action)
    hosts = {host.name: host for host in facts.store.hosts}
    for node in cluster_facts.nodes:
        if names[node.name] == 1:
            yield from _node(node, hosts.get(node.name))
    for host in hosts.values():
        if host.is_alive and host.name not in names:
            meaning = "its daemon runs, but nothing is placed there"
            action = "have its engine join the swarm, or set its host_name to its name in `docker node ls`"
            yield Finding(f"node/{host.name}", Severity.WARNING, "no node has this host's name", meaning, action)


def _heartbeat(seconds: float) -> Iterator[Finding]:
    """Check the heartbeat: swarms are made with 5 s, which delays each move of a lost host's sandboxes."""
    if seconds <= _HEARTBEAT_SECONDS:
        return
    meaning = f"a dead host is known after three of them, {3 * seconds:.0f} s: what may move from it waits so long"
    action = "run `docker swarm update --dispatcher-heartbeat 1s` on a manager"
    yield Finding("heartbeat", Severity.WARNING, f"the swarm hears of its nodes every {seconds:g} s", meaning, action)


def _silent(cluster_facts: ClusterFacts) -> Finding:
    """Return the finding about a scheduler that did not answer."""
    grade, waits = Severity.PROBLEM, "what runs goes on; sandboxes without a host wait, and nothing moves"
    match cluster_facts.reason:
        case SchedulerProblem.NOT_A_MEMBER.value:
            grade, waits = Severity.WARNING, "this host can't lead the others: if none of them can, new sandboxes wait"
            action = "join it to the swarm as a manager, or `docker node promote` it on one that is"
        case SchedulerProblem.NO_LEADER.value:
            action = "start managers of the swarm again, until more than half of them are up"
        case SchedulerProblem.UNREACHABLE.value:
            action = "see the finding about the engine; if that answers, look at the swarm: `docker node ls`"
        case _:
            action = "look at the swarm: `docker node ls`"
    return Finding(cluster_facts.scheduler, grade, cluster_facts.trouble, waits, action)


def _node(node: NodeSighting, host: HostSighting | None) -> Iterator[Finding]:
    """Yield the findings about a node; one without a daemon is none of ours."""
    check, remark = f"node/{node.name}", f" ({node.message})" if node.message else ""
    if host is None:
        yield Finding(check, Severity.OK, "no daemon of this store is there: nothing is placed there")
        return
    if node.is_up is False and host.is_alive:
        meaning = "nothing is placed there, and what may move from a lost host may be started elsewhere"
        action = "look at its engine and at the ports of the swarm between the hosts"
        yield Finding(check, Severity.WARNING, f"it is down, and its daemon runs{remark}", meaning, action)


def certificate(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield the finding about this host's certificate, which ends within the first year; none if there is none."""
    days = facts.certificate_days
    if days is None:
        return
    check, meaning = "certificate", "once it has ended, requests between this host and the others fail"
    action = "have a new one issued, and replace the files: the daemon reads them again by itself"
    if days <= 0:
        yield Finding(check, Severity.PROBLEM, f"it ended {-days:.0f} days ago", meaning, action)
    elif days < _SOON_DAYS:
        yield Finding(check, Severity.WARNING, f"it ends in {days:.0f} days", meaning, action)
    else:
        yield Finding(check, Severity.OK, f"it is valid for {days:.0f} days more")
