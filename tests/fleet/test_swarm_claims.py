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
    made = {name: hosts[name].daemon(PADDOCK_SCHEDULER="swarm") for name in NAMES}
    wait_for("all may be chosen", lambda: all(is_fit(hosts, each) for each in hosts))
    made["one"].apply(_POOL)
    yield made
    for each in made.values():
        each.stop()


@pytest.fixture(scope="module")
def clients(daemons: dict[str, RunningDaemon]) -> Iterator[list[httpx.Client]]:
    made = [
        httpx.Client(transport=httpx.HTTPTransport(uds=str(each.socket)), base_url="http://paddock", timeout=60)
        for each in daemons.values()
    ]
    yield made
    for each in made:
        each.close()


def claim(client: httpx.Client, name: str, template: str = "tiny", **more: object) -> None:
    body = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, "lifecycle": {"shutdownGracePeriodSeconds": 0}, **more},
    }
    client.post(f"{_NAMESPACE}/sandboxes", json=body).raise_for_status()


def status(client: httpx.Client, path: str) -> dict[str, object]:
    found = client.get(f"{_NAMESPACE}/{path}").json().get("status", {})
    return {**found, **{each["type"]: each["status"] for each in found.get("conditions", ())}}


def fill(clients: list[httpx.Client], pool: str = "warm", replicas: int = WARM) -> None:
    full = lambda: status(clients[0], f"sandboxpools/{pool}").get("readyReplicas") == replicas  # noqa: E731
    wait_for("the pool is full", full, seconds=180)


def clear(clients: list[httpx.Client]) -> None:
    for each in clients[0].get(f"{_NAMESPACE}/sandboxes").json()["items"]:
        clients[0].delete(f"{_NAMESPACE}/sandboxes/{each['metadata']['name']}")
    wait_for("all are gone", lambda: not clients[0].get(f"{_NAMESPACE}/sandboxes").json()["items"], seconds=120)


def running(hosts: Fleet) -> Counter[str]:
    """Return how many containers each sandbox uid has, over all hosts."""
    shown = (each.docker("ps", "-a", "--format", '{{.Label "paddock.uid"}}').split() for each in hosts)
    return Counter(uid for found in shown for uid in found if "-" in uid)


def test_a_claim_through_any_daemon(daemons: dict[str, RunningDaemon], clients: list[httpx.Client]) -> None:
    """Of a warm one of the daemon's host, of one of another host, and with the refills of those before under way."""
    daemons["one"].apply(_FAR)
    for kind, template, refilled in (
        ("at hand", "tiny", True),
        ("elsewhere", "far", True),
        ("refilling", "tiny", False),
    ):
        fill(clients)
        taken = []
        for at in range(12):
            client = clients[at % 3 if template == "tiny" else 1 + at % 2]
            if refilled:
                fill(clients)
                fill(clients, "far", FAR)
            taken.append(warm(client, f"{kind.split()[-1]}-{at}", template))
        print(
            f"a warm claim through any daemon, {kind}: p50 {statistics.median(taken) * 1000:.0f} ms (60), "
            f"most {max(taken):.2f} s"
        )
    clear(clients)
    daemons["one"].paddock("delete", "sandboxpool", "far")


def warm(client: httpx.Client, name: str, template: str) -> float:
    """Seconds from the request to Ready."""
    began, path = time.monotonic(), f"sandboxes/{name}"
    claim(client, name, template)
    ready: dict[str, object] = {}
    while ready.get("Ready") != "True":
        assert time.monotonic() < began + 60, f"{name} is not Ready in a minute: {ready}"
        ready = status(client, path)
    assert ready["launchType"] == "Warm"
    return time.monotonic() - began


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
        found = [status(clients[2], f"sandboxes/{name}").get("Ready") == "True" for name in names]
        assert sum(found) <= 10
        return sum(found)

    wait_for("as many as may", lambda: ready() == 10)
    clear(clients)


def test_a_pools_bound_holds_for_all_hosts(
    hosts: Fleet, daemons: Mapping[str, RunningDaemon], clients: list[httpx.Client]
) -> None:
    """Three times as many sandboxes as may come from the pool, all of which need one of it."""
    daemons["three"].apply(_BOUNDED)
    fill(clients, "few", MOST)
    seen: list[int] = []
    over = threading.Event()
    watching = threading.Thread(target=lambda: _sample(hosts, seen, over))
    watching.start()
    try:
        names = [f"few-{at}" for at in range(3 * MOST)]
        with ThreadPoolExecutor(9) as threads:
            list(
                threads.map(
                    lambda pair: claim(clients[pair[0] % 3], pair[1], "few", poolPolicy="Require"), enumerate(names)
                )
            )
        left = set(names)
        while left:
            wait_for(
                "as many as may are Ready", lambda: len(_ready(clients, left)) == min(MOST, len(left)), seconds=120
            )
            assert len(_ready(clients, left)) <= MOST
            gone = min(_ready(clients, left))
            clients[len(left) % 3].delete(f"{_NAMESPACE}/sandboxes/{gone}")
            left.discard(gone)
        fill(clients, "few", MOST)
    finally:
        over.set()
        watching.join()
    print(f"members of a pool of {MOST} over three hosts: at most {max(seen)} of {len(seen)} samples")
    assert max(seen) == MOST
    found = status(clients[0], "sandboxpools/few")
    assert (found["replicas"], found["used"]) == (MOST, {"memory": f"{8 * MOST}Mi"})
    daemons["one"].paddock("delete", "sandboxpool", "few")


def _ready(clients: list[httpx.Client], names: set[str]) -> list[str]:
    items = clients[0].get(f"{_NAMESPACE}/sandboxes").json()["items"]
    states = {
        each["metadata"]["name"]: {one["type"]: one["status"] for one in each.get("status", {}).get("conditions", ())}
        for each in items
    }
    return [name for name in names if states.get(name, {}).get("Ready") == "True"]


def _sample(hosts: Fleet, seen: list[int], over: threading.Event) -> None:
    """Count the running containers of the bounded pool on all hosts, one host after the other."""
    while not over.is_set():
        shown = (each.docker("ps", "--no-trunc", "--format", "{{.Command}}") for each in hosts)
        seen.append(sum(each.count("1000002") for each in shown))
