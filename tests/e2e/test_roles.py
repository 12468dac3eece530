"""Daemons with some roles only: one that answers and keeps no host, and a host that only other daemons reach."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.fleet_files import Authority
from tests.postgres import new_database
from tests.two_hosts import host

pytestmark = [pytest.mark.docker, pytest.mark.postgres]
_POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"], resources: {limits: {memory: 32Mi}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 1, host: b, shutdownGracePeriodSeconds: 0}
"""
_CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: NAME}
spec: {templateRef: {name: tiny}, host: b, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""


@contextmanager
def front_and_host(folder: Path) -> Iterator[tuple[RunningDaemon, RunningDaemon]]:
    """A daemon `front` with the role api alone and no engine in reach, and host b, which serves other daemons alone."""
    authority = Authority(folder / "authority")
    with ExitStack() as stack:
        database = stack.enter_context(new_database())
        nowhere = {"PADDOCK_DOCKER_HOST": f"unix://{folder}/no.sock", "PADDOCK_FLEET_ADDRESS": ""}
        front = stack.enter_context(
            host(folder / "front", "front", database, authority, PADDOCK_ROLES='["api"]', **nowhere)
        )
        roles = {"PADDOCK_ROLES": '["host", "fleet"]'}
        b = stack.enter_context(host(folder / "b", "b", database, authority, **roles))
        wait_for("the host is known", lambda: [document["metadata"]["name"] for document in _hosts(front)] == ["b"])
        yield front, b


def _hosts(daemon: RunningDaemon) -> list[dict[str, dict[str, str]]]:
    """Return the hosts that report an address."""
    listed = daemon.objects("hosts", "")
    return [entry for entry in listed if entry["status"].get("address")]


def graded(daemon: RunningDaemon) -> dict[str, str]:
    """Return the grades of what `paddock doctor` finds."""
    done = daemon.paddock("doctor", "-o", "json", check=False)
    return {entry["check"]: entry["grade"] for entry in json.loads(done.stdout)}


def test_a_daemon_without_a_host_serves_all(tmp_path: Path) -> None:
    with front_and_host(tmp_path) as (front, b):
        assert not b.socket.exists(), "it serves other daemons alone"
        front.apply(_POOL)
        front.paddock("wait", "--for=jsonpath={.status.readyReplicas}=1", "--timeout=60s", "sandboxpool/warm")
        front.apply(_CLAIM.replace("NAME", "claimed"))
        front.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/claimed")
        status = front.get("claimed")["status"]
        assert (status["launchType"], status["host"]) == ("Warm", "b")
        assert front.paddock("exec", "claimed", "--", "echo", "there").stdout == "there\n"
        assert "claimed" in front.paddock("attest", "claimed").stdout
        assert [line.split()[:2] for line in front.paddock("top").stdout.splitlines()][1:] == [["claimed", "b"]]
        images = front.paddock("image", "list")
        assert ["paddock/test-tiny:1", "b"] in [line.split()[:2] for line in images.stdout.splitlines()]
        assert images.stderr == front.paddock("image", "pull", "x:1", "--host", "front", check=False).stdout == ""
        assert "keeps no host; name one" in front.paddock("image", "pull", "x:1", check=False).stderr
        assert front.paddock("get", "volumes").stderr == "No resources found in default namespace.\n"
        listed = json.loads(front.paddock("audit", "-o", "json").stdout)["items"]
        assert [entry["writer"] for entry in listed if entry["verb"] == "exec"] == ["api/front"]
        assert [line.split()[0] for line in front.paddock("host", "list").stdout.splitlines()] == ["NAME", "b"]
        observed = graded(front)
        assert (observed["daemon"], observed["store"], observed["host/b"], observed["certificate"]) == ("ok",) * 4
        assert not observed.keys() & {"engine", "cgroups", "live-restore", "engine-socket"}, "it has no engine"
        assert graded(b)["daemon"] == "ok", "it has no socket, and holds its lease"

        b.kill()
        output = front.paddock("exec", "claimed", "--", "true", check=False)
        assert "its host `b` can't be reached" in output.stderr
        front.paddock("delete", "sandbox", "claimed", "--no-wait")
        assert front.get("claimed")["metadata"]["deletionTimestamp"], "it is saved, for its host"
