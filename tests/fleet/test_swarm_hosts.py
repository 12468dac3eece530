"""Many hosts on one store, placed by Docker Swarm: a daemon on each, and any of them asked."""

import json
import time
from collections.abc import Iterator, Mapping

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.fleet.test_hosts import containers, reason, sandbox
from tests.fleet.test_usage import findings
from tests.lab.fleet import NAMES, TINY, Fleet, FleetHost

pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(600)]

_QUOTA = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: one, namespace: greedy}
spec: {hard: {sandboxes: 1}}
"""


@pytest.fixture(scope="module")
def daemons(hosts: Fleet) -> Iterator[dict[str, RunningDaemon]]:
    """A daemon on each host."""
    created = {name: hosts[name].daemon(PADDOCK_SCHEDULER="swarm") for name in NAMES}
    wait_for("all may be chosen", lambda: all(is_fit(hosts, host) for host in hosts))
    yield created
    for daemon in created.values():
        daemon.stop()


def is_fit(hosts: Fleet, host: FleetHost) -> bool:
    return hosts["one"].docker("node", "inspect", host.node_id, "-f", '{{index .Spec.Labels "paddock.fit"}}') == "true"


def host_of(daemon: RunningDaemon, name: str) -> str:
    """Return the host that a sandbox is bound to; "" if none."""
    return str(daemon.get(name)["status"].get("host", ""))


def ready(daemon: RunningDaemon, name: str) -> str:
    """Wait until a sandbox is Ready, and return its host."""
    wait_for(f"{name} is Ready", lambda: reason(daemon, name) == "True")
    return host_of(daemon, name)


def placeholders(hosts: Fleet) -> list[str]:
    return hosts["one"].docker("service", "ls", "-q").split()


def test_the_swarm_chooses_the_hosts(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    for entry in ("a", "b", "c"):
        daemons["one"].apply(sandbox(entry))
    readies = {single: ready(daemons["two"], single) for single in ("a", "b", "c")}
    assert set(readies.values()) == set(NAMES), "it spreads them"
    for one_name, host in readies.items():
        assert containers(hosts, one_name) == {name: int(name == host) for name in NAMES}


def test_one_that_fits_nowhere_says_so_in_the_swarms_words(daemons: Mapping[str, RunningDaemon]) -> None:
    daemons["one"].apply(sandbox("large").replace("memory: 16Mi", "memory: 1000Gi"))
    wait_for(
        "the swarm's words",
        lambda: "no suitable node" in daemons["three"].condition("large", "Scheduled").get("message", ""),
    )
    assert reason(daemons["three"], "large", "Scheduled") == "Unschedulable"


def test_a_suspended_one_keeps_its_host(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemons["one"].apply(sandbox("rests"))
    host = ready(daemons["one"], "rests")
    daemons["one"].apply(sandbox("rests") + "  runState: Suspended\n")
    wait_for("it is suspended", lambda: reason(daemons["one"], "rests", "Suspended") == "True")

    def replicas() -> set[int]:
        document = json.loads(hosts["one"].docker("service", "inspect", *placeholders(hosts)))
        return {entry["Spec"]["Mode"]["Replicated"]["Replicas"] for entry in document}

    wait_for("its placeholder reserves nothing", lambda: 0 in replicas())
    daemons["one"].apply(sandbox("rests"))
    assert ready(daemons["one"], "rests") == host
    wait_for("its placeholder reserves again", lambda: replicas() == {1} or 0 not in replicas())


def test_a_placeholder_that_is_removed_by_hand_is_made_again(
    hosts: Fleet, daemons: Mapping[str, RunningDaemon]
) -> None:
    host, before = host_of(daemons["one"], "a"), containers(hosts, "a")
    expected = set(placeholders(hosts))
    hosts["one"].docker("service", "rm", *expected)
    wait_for("all are back", lambda: len(placeholders(hosts)) == len(expected), seconds=30)
    assert (host_of(daemons["one"], "a"), containers(hosts, "a")) == (host, before)


def test_a_deleted_one_gives_its_place_back(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    count = len(placeholders(hosts))
    daemons["one"].paddock("delete", "sandbox", "large")
    daemons["three"].paddock("delete", "sandbox", "c")
    wait_for("both placeholders are gone", lambda: len(placeholders(hosts)) == count - 2)


def test_waiting_for_a_quota_takes_no_room(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemon, count = daemons["one"], len(placeholders(hosts))
    daemon.apply(_QUOTA)
    for at in range(4):
        daemon.apply(sandbox(f"g{at}").replace(f"name: g{at}", f"namespace: greedy, name: g{at}", 1))

    def scheduled() -> list[tuple[str, bool]]:
        document = json.loads(daemons["two"].paddock("get", "sandboxes", "-n", "greedy", "-o", "json").stdout)["items"]
        observed = [
            (condition["type"], condition["reason"], obj)
            for obj in document
            for condition in obj["status"].get("conditions", ())
        ]
        return sorted((reason, "host" in obj["status"]) for type_, reason, obj in observed if type_ == "Scheduled")

    wait_for("three wait", lambda: len([name for name, _ in scheduled() if name == "QuotaExceeded"]) == 3)
    wait_for("one is placed", lambda: len(placeholders(hosts)) == count + 1)
    daemon.paddock("delete", "sandboxes", "--all", "-n", "greedy")


def test_a_sandbox_goes_where_its_image_is(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    hosts["three"].docker("tag", TINY, "team/app:1")
    wait_for("it is reported", lambda: has_image(daemons["one"], "three", "team/app:1"), seconds=40)
    for name in ("i", "j"):
        daemons["one"].apply(sandbox(name).replace(TINY, "team/app:1"))
    assert [ready(daemons["two"], name) for name in ("i", "j")] == ["three", "three"]


def test_a_host_that_cannot_pull_gives_it_back(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemons["one"].apply(sandbox("late").replace(TINY, "team/late:1"))
    wait_for("it can't be pulled", lambda: reason(daemons["one"], "late") == "ImagePullFailed", seconds=60)
    first = host_of(daemons["one"], "late")
    second = next(name for name in NAMES if name != first)
    hosts[second].docker("tag", TINY, "team/late:1")
    wait_for("it runs there", lambda: reason(daemons["one"], "late") == "True", seconds=120)
    assert host_of(daemons["one"], "late") == second
    assert f"host {second} has the image team/late:1" in daemons["one"].paddock("events", "sandbox/late").stdout


def has_image(daemon: RunningDaemon, host: str, image: str) -> bool:
    return image in daemon.paddock("get", "host", host, "-o", "json").stdout


def test_how_long_the_swarm_takes(daemons: Mapping[str, RunningDaemon]) -> None:
    document = {}
    for kind, host in (("named", "two"), ("chosen", "")):
        seconds = []
        for at in range(3):
            name = f"{kind}-{at}"
            start = time.monotonic()
            daemons["one"].apply(sandbox(name, host))
            ready(daemons["one"], name)
            seconds.append(time.monotonic() - start)
        document[kind] = sorted(seconds)[1]
    print(f"cold Ready: {document['named']:.2f} s with spec.host, {document['chosen']:.2f} s through the swarm")


_POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"], resources: {limits: {memory: 16Mi, pids: 16}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 6, shutdownGracePeriodSeconds: 0}
"""
_CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: claimed}
spec: {templateRef: {name: tiny}, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""


def warm(hosts: Fleet) -> dict[str, int]:
    """Return the number of running members that each host has."""
    outputs = {
        host.name: host.docker("ps", "-q", "--filter", "label=paddock.name", "--filter", "name=pdk-warm-", check=False)
        for host in hosts
    }
    return {name: len(output.split()) for name, output in outputs.items()}


def pool(daemon: RunningDaemon) -> dict[str, int]:
    status = json.loads(daemon.paddock("get", "sandboxpool", "warm", "-o", "json").stdout).get("status", {})
    return {name: status.get(name, 0) for name in ("readyReplicas", "claimedReplicas")}


def test_a_pool_is_spread_over_the_hosts(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemons["one"].apply(_POOL)
    wait_for("it is full", lambda: pool(daemons["two"])["readyReplicas"] == 6)
    assert sum(count > 0 for count in warm(hosts).values()) > 1, "they are on several hosts"
    start = time.monotonic()
    daemons["three"].apply(_CLAIM)
    ready(daemons["three"], "claimed")
    print(f"warm Ready: {time.monotonic() - start:.2f} s with the start of two commands")
    assert daemons["one"].get("claimed")["status"]["launchType"] == "Warm"
    wait_for("it is full again", lambda: pool(daemons["two"]) == {"readyReplicas": 6, "claimedReplicas": 1})


def test_a_drained_hosts_warm_sandboxes_are_made_elsewhere(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemons["one"].paddock("host", "drain", "two")
    wait_for("none is left there", lambda: warm(hosts)["two"] == 0)
    wait_for("it is full", lambda: pool(daemons["one"])["readyReplicas"] == 6)
    assert "Dr" in daemons["one"].paddock("host", "list").stdout
    daemons["one"].paddock("host", "uncordon", "two")


def test_a_dead_host_is_shown_and_its_pool_is_full_elsewhere(
    hosts: Fleet, daemons: Mapping[str, RunningDaemon]
) -> None:
    """The whole machine: its engine, its daemon, its containers and its place in the swarm."""
    before = warm(hosts)
    daemons["one"].paddock("scale", "sandboxpool/warm", "--replicas", "9")
    wait_for("it is full", lambda: pool(daemons["one"])["readyReplicas"] == 9)
    assert warm(hosts)["three"] > 0, before
    hosts["three"].power_off()
    start = time.monotonic()
    wait_for("it is shown", lambda: "daemon away" in daemons["one"].paddock("host", "list").stdout)
    print(f"dead host shown after {time.monotonic() - start:.1f} s (20)")

    def full() -> bool:
        document = warm(hosts)
        return document["one"] + document["two"] >= 9

    wait_for("its members are made elsewhere", full)
    print(f"pool full elsewhere after {time.monotonic() - start:.1f} s (30)")
    hosts["three"].engine.start()


def test_the_doctor_asks_the_swarm(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemon = daemons["one"]
    assert findings(daemon, "swarm") == {"swarm": "ok"}
    assert findings(daemon, "node/") == {}
    hosts["one"].docker("node", "demote", hosts["two"].node_id)
    try:
        wait_for("it leads no more", lambda: findings(daemons["two"], "swarm") == {"swarm": "warning"})
    finally:
        hosts["one"].docker("node", "promote", hosts["two"].node_id)
    wait_for("it may lead again", lambda: findings(daemons["two"], "swarm") == {"swarm": "ok"})
