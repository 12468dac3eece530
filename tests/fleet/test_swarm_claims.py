"""Claims through three daemons at once: no warm sandbox goes to two, no quota gives one too many; and their time."""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.fleet.test_swarm_hosts import is_fit
from tests.lab.fleet import NAMES, Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(900)]
_NAMESPACE = "/apis/paddock/v1alpha1/namespaces/default"
WARM, FAR, ROUNDS, CLAIMS = 24, 4, 4, 36  # of each round's claims a third finds no warm one
MOST = 3  # of a pool over all hosts

_POOL = f"""
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {{name: tiny}}
spec:
  image: "paddock/test-tiny:1"
  command: ["sleep", "1000000"]
  resources: {{limits: {{cpu: 10m, memory: 8Mi, pids: 16}}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {{name: warm}}
spec: {{templateRef: {{name: tiny}}, warmReplicas: {WARM}, shutdownGracePeriodSeconds: 0}}
"""
_FAR = f"""
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {{name: far}}
spec:
  image: "paddock/test-tiny:1"
  command: ["sleep", "1000001"]
  resources: {{limits: {{cpu: 10m, memory: 8Mi, pids: 16}}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {{name: far}}
spec: {{host: one, templateRef: {{name: far}}, warmReplicas: {FAR}, shutdownGracePeriodSeconds: 0}}
"""
_BOUNDED = f"""
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {{name: few}}
spec:
  image: "paddock/test-tiny:1"
  command: ["sleep", "1000002"]
  resources: {{limits: {{cpu: 10m, memory: 8Mi, pids: 16}}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {{name: few}}
spec:
  templateRef: {{name: few}}
  warmReplicas: {MOST}
  maxReplicas: {MOST}
  quota: {{memory: {8 * MOST}Mi}}
  shutdownGracePeriodSeconds: 0
"""
_QUOTA = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {{name: most}}
spec: {{hard: {{sandboxes: {most}}}}}
"""


@pytest.fixture(scope="module")
def daemons(hosts: Fleet) -> Iterator[dict[str, RunningDaemon]]:
    created = {name: hosts[name].daemon(PADDOCK_SCHEDULER="swarm") for name in NAMES}
    wait_for("all may be chosen", lambda: all(is_fit(hosts, host) for host in hosts))
    created["one"].apply(_POOL)
    yield created
    for daemon in created.values():
        daemon.stop()


@pytest.fixture(scope="module")
def clients(daemons: dict[str, RunningDaemon]) -> Iterator[list[httpx.Client]]:
    created = [
        httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket)), base_url="http://paddock", timeout=60)
        for daemon in daemons.values()
    ]
    yield created
    for client in created:
        client.close()


def claim(client: httpx.Client, name: str, template: str = "tiny", **more: object) -> None:
    body = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, "lifecycle": {"shutdownGracePeriodSeconds": 0}, **more},
    }
    client.post(f"{_NAMESPACE}/sandboxes", json=body).raise_for_status()


def status(client: httpx.Client, path: str) -> dict[str, object]:
    observed = client.get(f"{_NAMESPACE}/{path}").json().get("status", {})
    return {**observed, **{condition["type"]: condition["status"] for condition in observed.get("conditions", ())}}


def fill(clients: list[httpx.Client], pool: str = "warm", replicas: int = WARM) -> None:
    full = lambda: status(clients[0], f"sandboxpools/{pool}").get("readyReplicas") == replicas  # noqa: E731
    wait_for("the pool is full", full, seconds=180)


def clear(clients: list[httpx.Client]) -> None:
    for entry in clients[0].get(f"{_NAMESPACE}/sandboxes").json()["items"]:
        clients[0].delete(f"{_NAMESPACE}/sandboxes/{entry['metadata']['name']}")
    wait_for("all are gone", lambda: not clients[0].get(f"{_NAMESPACE}/sandboxes").json()["items"], seconds=120)


def running(hosts: Fleet) -> Counter[str]:
    """Return how many containers each sandbox uid has, over all hosts."""
    parts = (host.docker("ps", "-a", "--format", '{{.Label "paddock.uid"}}').split() for host in hosts)
    return Counter(uid for names in parts for uid in names if "-" in uid)


def test_a_claim_through_any_daemon(daemons: dict[str, RunningDaemon], clients: list[httpx.Client]) -> None:
    """Of a warm one of the daemon's host, of one of another host, and with the refills of those before under way."""
    daemons["one"].apply(_FAR)
    for kind, template, refilled in (
        ("at hand", "tiny", True),
        ("elsewhere", "far", True),
        ("refilling", "tiny", False),
    ):
        fill(clients)
        occupied = []
        for at in range(12):
            client = clients[at % 3 if template == "tiny" else 1 + at % 2]
            if refilled:
                fill(clients)
                fill(clients, "far", FAR)
            occupied.append(warm(client, f"{kind.split()[-1]}-{at}", template))
        print(
            f"a warm claim through any daemon, {kind}: p50 {statistics.median(occupied) * 1000:.0f} ms (60), "
            f"most {max(occupied):.2f} s"
        )
    clear(clients)
    daemons["one"].paddock("delete", "sandboxpool", "far")


def warm(client: httpx.Client, name: str, template: str) -> float:
    """Seconds from the request to Ready."""
    start, path = time.monotonic(), f"sandboxes/{name}"
    claim(client, name, template)
    ready: dict[str, object] = {}
    while ready.get("Ready") != "True":
        assert time.monotonic() < start + 60, f"{name} is not Ready in a minute: {ready}"
        ready = status(client, path)
    assert ready["launchType"] == "Warm"
    return time.monotonic() - start


def test_no_warm_one_goes_to_two(hosts: Fleet, clients: list[httpx.Client]) -> None:
    for round_ in range(ROUNDS):
        fill(clients)
        names = [f"c{round_}-{at}" for at in range(CLAIMS)]
        with ThreadPoolExecutor(12) as threads:
            list(threads.map(lambda pair: claim(clients[pair[0] % 3], pair[1]), enumerate(names)))
        for name in names:
            wait_for(
                f"{name} is Ready", lambda name=name: status(clients[1], f"sandboxes/{name}").get("Ready") == "True"
            )
        fill(clients)
        assert set(running(hosts).values()) == {1}, "each has one container on one host"
        assert len(running(hosts)) == CLAIMS + WARM
        clear(clients)


def test_no_quota_gives_one_too_many(clients: list[httpx.Client], daemons: dict[str, RunningDaemon]) -> None:
    fill(clients)
    daemons["two"].apply(_QUOTA.format(most=10))
    names = [f"q-{at}" for at in range(CLAIMS)]
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda pair: claim(clients[pair[0] % 3], pair[1]), enumerate(names)))

    def ready() -> int:
        observed = [status(clients[2], f"sandboxes/{name}").get("Ready") == "True" for name in names]
        assert sum(observed) <= 10
        return sum(observed)

    wait_for("as many as may", lambda: ready() == 10)
    clear(clients)


def test_a_pools_bound_holds_for_all_hosts(
    hosts: Fleet, daemons: Mapping[str, RunningDaemon], clients: list[httpx.Client]
) -> None:
    """Three times as many sandboxes as may come from the pool, all of which need one of it."""
    daemons["three"].apply(_BOUNDED)
    fill(clients, "few", MOST)
    observed: list[int] = []
    over = threading.Event()
    watching = threading.Thread(target=lambda: _sample(hosts, observed, over))
    watching.start()
    try:
        names = [f"few-{at}" for at in range(3 * MOST)]
        with ThreadPoolExecutor(9) as threads:
            list(
                threads.map(
                    lambda pair: claim(clients[pair[0] % 3], pair[1], "few", poolPolicy="Require"), enumerate(names)
                )
            )
        remaining = set(names)
        while remaining:
            wait_for(
                "as many as may are Ready",
                lambda: len(_ready(clients, remaining)) == min(MOST, len(remaining)),
                seconds=120,
            )
            assert len(_ready(clients, remaining)) <= MOST
            ready = min(_ready(clients, remaining))
            clients[len(remaining) % 3].delete(f"{_NAMESPACE}/sandboxes/{ready}")
            remaining.discard(ready)
        fill(clients, "few", MOST)
    finally:
        over.set()
        watching.join()
    print(f"members of a pool of {MOST} over three hosts: at most {max(observed)} of {len(observed)} samples")
    assert max(observed) == MOST
    document = status(clients[0], "sandboxpools/few")
    assert (document["replicas"], document["used"]) == (MOST, {"memory": f"{8 * MOST}Mi"})
    daemons["one"].paddock("delete", "sandboxpool", "few")


def _ready(clients: list[httpx.Client], names: set[str]) -> list[str]:
    items = clients[0].get(f"{_NAMESPACE}/sandboxes").json()["items"]
    states = {
        entry["metadata"]["name"]: {
            condition["type"]: condition["status"] for condition in entry.get("status", {}).get("conditions", ())
        }
        for entry in items
    }
    return [name for name in names if states.get(name, {}).get("Ready") == "True"]


def _sample(hosts: Fleet, seen: list[int], over: threading.Event) -> None:
    """Count the running containers of the bounded pool on all hosts, one host after the other."""
    while not over.is_set():
        outputs = (host.docker("ps", "--no-trunc", "--format", "{{.Command}}") for host in hosts)
        seen.append(sum(output.count("1000002") for output in outputs))
