"""Containers for which the engine hangs, on an engine of the test's own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, start_daemon, wait_for
from tests.lab.engine import PrivateEngine, private_engine
from tests.lab.hanging import frozen

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
HUNG = ("hung-1", "hung-2", "hung-3", "hung-4", "hung-5", "hung-6")


def sandbox(name: str) -> str:
    return f"""
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: {name}}}
spec:
  template: {{image: "paddock/test-tiny:1", command: ["sleep", "100000"]}}
  resources: {{limits: {{memory: 16Mi, cpu: 100m, pids: 16}}}}
---
"""


@pytest.fixture
def private() -> Iterator[PrivateEngine]:
    with private_engine() as created:
        yield created


@pytest.fixture
def daemon(private: PrivateEngine, tmp_path: Path) -> Iterator[RunningDaemon]:
    created = start_daemon(tmp_path / "state", PADDOCK_DOCKER_HOST=private.base_url, PADDOCK_ENGINE_TIMEOUT_SECONDS="5")
    try:
        yield created
    finally:
        created.stop()


def ready(daemon: RunningDaemon, name: str) -> str:
    return str(daemon.condition(name, "Ready").get("status"))


def container(daemon: RunningDaemon, name: str) -> str:
    return str(daemon.get(name)["status"]["instanceRef"]["containerID"])


def test_six_hung_containers_do_not_stop_the_others(
    daemon: RunningDaemon, private: PrivateEngine, tmp_path: Path
) -> None:
    daemon.apply("".join(sandbox(name) for name in (*HUNG, "other")))
    for entry in (*HUNG, "other"):
        wait_for(f"{entry} is ready", lambda each=entry: ready(daemon, each) == "True", 90)
    hung, second = [container(daemon, name) for name in HUNG], container(daemon, "other")
    with frozen(private, *hung):
        daemon.paddock("delete", "sandbox", HUNG[0], "--wait=false")
        private.docker("kill", second)
        wait_for("the other is back", lambda: daemon.get("other")["status"].get("restartCount") == 1, 60)
        wait_for("the other is ready", lambda: ready(daemon, "other") == "True", 60)
        # Nobody has asked the engine for them since they hang.
        with ThreadPoolExecutor(len(HUNG)) as pool:
            processes = pool.map(lambda each: daemon.paddock("exec", each, "--", "true", check=False), HUNG[1:])
        assert all(process.returncode for process in processes)
        for text in HUNG[1:]:
            wait_for(f"{text} is Unknown", lambda each=text: ready(daemon, each) == "Unknown", 60)
        output = daemon.paddock("exec", HUNG[1], "--", "true", check=False)
        assert output.returncode != 0
        assert "Unreadable" in output.stderr
        assert daemon.stop() == 0
        later = start_daemon(tmp_path / "state", PADDOCK_DOCKER_HOST=private.base_url)
        try:
            # All of these wait for the engine's word, and none of them gets any.
            assert [ready(later, name) for name in HUNG[1:]] == ["Unknown"] * 5
            later.paddock("set", "run-state", "sandbox/other", "Suspended")
            later.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/other")
            assert private.docker("inspect", "-f", "{{.State.Running}}", second) == "false"
        except BaseException:
            later.stop()
            raise
    try:
        wait_for("the deleted one is gone", lambda: not later.get(HUNG[0]), 90)
        for one_name in HUNG[1:]:
            wait_for(f"{one_name} is ready again", lambda each=one_name: ready(later, each) == "True", 90)
    finally:
        later.stop()
