"""A warm pool on the real engine: filled, claimed, refilled, deleted."""

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import docker as docker_py
import pytest

from tests.daemon import RunningDaemon, remove_image, running, wait_for
from tests.registry import registry

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]

POOL = """\
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t}
spec: {image: "paddock/test-tiny:1", command: [sleep, infinity]}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: p}
spec: {templateRef: {name: t}, warmReplicas: 2, shutdownGracePeriodSeconds: 0}
"""
CLAIM = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: a}
spec:
  templateRef: {name: t}
  resources: {limits: {memory: 128Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
LIFETIME_SECONDS = 5


AT_ONCE = 8


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


def test_a_pool_serves_a_claim_and_is_refilled(daemon: RunningDaemon) -> None:
    daemon.apply(POOL)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/p")
    daemon.apply(CLAIM)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/a")
    sandbox = daemon.get("a")["status"]
    assert (sandbox["launchType"], sandbox["resources"]["limits"]["memory"]) == ("Warm", "128Mi")
    assert daemon.paddock("exec", "sandbox/a", "--", "sh", "-c", "echo $HOSTNAME $(hostname)").stdout.startswith("p-")
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/p")
    daemon.paddock("delete", "sandbox/a", "sandboxtemplate/t", "sandboxpool/p", "--timeout=60s")
    assert "no " in daemon.paddock("get", "sandboxpools,sandboxtemplates").stderr.lower()


def test_a_claimed_sandbox_has_its_whole_lifetime(tmp_path: Path) -> None:
    """Its member ran before, and its daemon is started again meanwhile."""
    with running(tmp_path) as daemon:
        daemon.apply(POOL.replace("warmReplicas: 2", "warmReplicas: 1"))
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/p")
        filled_at = time.monotonic()
        wait_for("its member is some seconds old", lambda: time.monotonic() > filled_at + 2)
        daemon.apply(CLAIM.replace("lifecycle: {", f"lifecycle: {{activeDeadlineSeconds: {LIFETIME_SECONDS}, "))
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/a")
        sandbox = daemon.get("a")
        assert sandbox["status"]["launchType"] == "Warm"
        created = datetime.fromisoformat(sandbox["metadata"]["creationTimestamp"])
        assert datetime.fromisoformat(sandbox["status"]["startTime"]) >= created
        daemon.works_at.stop()
        daemon.works_at.start_again()
        daemon.paddock("wait", "--for=condition=Finished", "--timeout=60s", "sandbox/a")
        end = daemon.get("a")["status"]["lastTermination"]
        assert end["reason"] == "DeadlineExceeded"
        lived = (datetime.fromisoformat(end["finishedTime"]) - created).total_seconds()
        assert LIFETIME_SECONDS - 1 <= lived < LIFETIME_SECONDS + 20


def test_claims_at_once_are_served_and_refilled(daemon: RunningDaemon) -> None:
    """By one file of claims; the metrics of their pool tell both."""
    small = "command: [sleep, infinity], resources: {limits: {memory: 32Mi, cpu: 20m, pids: 16}}"
    pool = POOL.replace("command: [sleep, infinity]", small).replace("name: p}", "name: many}")
    daemon.apply(pool.replace("warmReplicas: 2", f"warmReplicas: {AT_ONCE}"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=110s", "sandboxpool/many")
    assert samples(daemon.works_at, "paddock_pool_containers", "many")["ready"] == AT_ONCE
    claim = CLAIM.replace("  resources: {limits: {memory: 128Mi}}\n", "")
    daemon.apply("---\n".join(claim.replace("name: a", f"name: box-{index}") for index in range(AT_ONCE)))
    names = [f"box-{index}" for index in range(AT_ONCE)]
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", *(f"sandbox/{name}" for name in names))
    assert {daemon.get(name)["status"]["launchType"] for name in names} == {"Warm"}
    assert samples(daemon, "paddock_pool_claims_total", "many") == {"": AT_ONCE}
    assert samples(daemon, "paddock_pool_claim_misses_total", "many") == {}

    def ready_count() -> float:
        return samples(daemon.works_at, "paddock_pool_containers", "many")["ready"]

    wait_for("refilled", lambda: ready_count() == AT_ONCE, seconds=110)
    assert daemon.object("sandboxpools", "many")["status"]["claimedReplicas"] == AT_ONCE


def samples(daemon: RunningDaemon, name: str, pool: str) -> dict[str, float]:
    """The values of a metric of a pool by state ("" where it has none)."""
    with urllib.request.urlopen(daemon.metrics_url(), timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    matches = [re.match(rf'{name}{{(?:.*state="(\w+)")?.*}} (\S+)', line) for line in lines if f'"{pool}"' in line]
    return {match[1] or "": float(match[2]) for match in matches if match}


def test_empty_pools_pull_their_image_once(tmp_path: Path) -> None:
    """Images are pulled when pools are applied, not at the first claim; again only where one is gone."""
    client = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    with registry("paddock/preload:1") as source, closing(client):
        nothing_warm = POOL.replace("paddock/test-tiny:1", source.image).replace("warmReplicas: 2", "warmReplicas: 0")
        name = source.image.partition("/")[0]
        listed = {"PADDOCK_LOCAL_REGISTRIES": json.dumps([name])}
        try:
            with running(tmp_path) as daemon:
                output = daemon.paddock("apply", "-f", "-", stdin=nothing_warm, check=False)
                assert f"`{name}` is an address" in output.stderr
            with running(tmp_path, **listed) as daemon:
                daemon.apply(nothing_warm)
                daemon.apply(nothing_warm.replace("name: p", "name: other").split("---")[1])
                wait_for("the image is here", lambda: here(client, source.image))
                daemon.works_at.stop()
                daemon.works_at.start_again()
                wait_for("it has looked again", lambda: "paddock_docker_requests_total" in scraped(daemon.works_at))
            assert len(source.fetched) == 1
        finally:
            if here(client, source.image):
                remove_image(source.image)


def here(client: docker_py.DockerClient, image: str) -> bool:
    return bool(client.api.images(name=image))


def scraped(daemon: RunningDaemon) -> str:
    """Return the daemon's image count once it has observed images."""
    with urllib.request.urlopen(daemon.metrics_url(), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return "".join(line for line in lines if "images.inspect" in line and not line.endswith(" 0.0"))
