"""Hibernation on a real engine with compressed swap: memory leaves, a use brings it back, and no crash loses it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.kernel.cgroups import Cgroups, folder_of
from paddock import Paddock
from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.zram import zram_swap

pytestmark = pytest.mark.docker

# A program that keeps a secret of its own, and some MiB, in its memory alone.
PROGRAM = """
import os, secrets, socket, sys
token, data = secrets.token_hex(8), bytearray(os.urandom(int(sys.argv[1]) << 20))
total = sum(data[::4096])
listener = socket.socket(socket.AF_UNIX)
listener.bind("/tmp/state")
listener.listen()
while True:
    caller, _ = listener.accept()
    caller.sendall(f"{token} {os.getpid()} {sum(data[::4096]) == total}".encode())
    caller.close()
"""
ASK = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/tmp/state'); print(s.recv(99).decode())"
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template:
    image: "paddock/python:1"
    command: [python3, -c, %s, "%d"]
    tmpfs: [{mountPath: /tmp, size: 16Mi}]
  resources: {limits: {memory: 512Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 1, %s}
"""
NEVER = "idleTimeoutSeconds: 86400"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with zram_swap("1G"), running(tmp_path_factory.mktemp("daemon"), PADDOCK_HIBERNATION_BYTES=str(1 << 30)) as created:
        yield created


def apply(daemon: RunningDaemon, name: str, lifecycle: str, mebibytes: int = 40) -> str:
    """Make a sandbox, and return what it says of its state."""
    daemon.apply(SANDBOX % (name, json.dumps(PROGRAM), mebibytes, lifecycle))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")
    wait_for(
        "it listens",
        lambda: daemon.paddock("exec", name, "--", "test", "-S", "/tmp/state", check=False).returncode == 0,
    )
    return ask(daemon, name)


def ask(daemon: RunningDaemon, name: str) -> str:
    return daemon.paddock("exec", name, "--", "python3", "-c", ASK).stdout.strip()


def is_hibernated(daemon: RunningDaemon, name: str) -> bool:
    return daemon.condition(name, "Ready").get("reason") == "Hibernated"


def container(daemon: RunningDaemon, name: str) -> tuple[str, int]:
    own_texts = ("--filter", f"label=paddock.name={name}", "--filter", f"label=paddock.instance={daemon.instance_id()}")
    id_ = docker("ps", "-a", "--no-trunc", *own_texts, "--format", "{{.ID}}")
    return id_, int(docker("inspect", id_, "--format", "{{.State.Pid}}"))


def memory_file(daemon: RunningDaemon, name: str, v1: str, v2: str) -> Path:
    id_, pid = container(daemon, name)
    folder = folder_of(Cgroups().folders(Path(f"/proc/{pid}/cgroup").read_text(), id_), "memory")
    return Path(folder.path) / (v1 if folder.version == 1 else v2)


def resident_bytes(daemon: RunningDaemon, name: str) -> int:
    return int(memory_file(daemon, name, "memory.usage_in_bytes", "memory.current").read_text())


def swap_allowed(daemon: RunningDaemon, name: str) -> Path:
    return memory_file(daemon, name, "memory.swappiness", "memory.swap.max")


def test_idleness_hibernates_and_an_exec_wakes(daemon: RunningDaemon) -> None:
    before = apply(daemon, "idle", "idleTimeoutSeconds: 3")
    assert resident_bytes(daemon, "idle") > 40 << 20
    wait_for("it is hibernated", lambda: is_hibernated(daemon, "idle"))
    assert resident_bytes(daemon, "idle") < 4 << 20
    assert swap_allowed(daemon, "idle").read_text().strip() == "0"
    ready = daemon.condition("idle", "Ready")
    assert (ready["status"], "in swap" in ready["message"]) == ("False", True)
    assert "Hibernated" in daemon.paddock("get", "sandboxes").stdout
    metrics = daemon.scrape()
    assert 'paddock_sandbox_hibernated_resident_bytes{namespace="default",sandbox="idle"}' in metrics
    assert "paddock_host_swap_size_bytes " in metrics
    assert "paddock_host_swap_free_bytes " in metrics
    assert 'paddock_sandbox_hibernated_swapped_bytes{namespace="default",sandbox="idle"}' in metrics
    assert ask(daemon, "idle") == before
    wait_for("the wake is counted", lambda: "paddock_sandbox_wake_seconds_count 1" in daemon.scrape())
    status = daemon.get("idle")["status"]
    assert (status["restartCount"], status.get("lastTermination")) == (0, None)


def test_a_person_hibernates_and_a_use_resumes(daemon: RunningDaemon) -> None:
    before = apply(daemon, "asked", NEVER)
    daemon.paddock("exec", "asked", "--", "sh", "-c", "echo asleep > /tmp/file")
    daemon.paddock("set", "run-state", "sandbox/asked", "Hibernated")
    wait_for("it is hibernated", lambda: is_hibernated(daemon, "asked"))
    daemon.paddock("snapshot", "create", "asleep", "--from", "sandbox/asked")
    assert is_hibernated(daemon, "asked"), "a capture wakes nobody"
    daemon.paddock("fork", "asked", "--snapshot", "asleep", "--name-prefix", "awake")
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/awake-1")
    assert daemon.paddock("exec", "awake-1", "--", "cat", "/tmp/file").stdout == "asleep\n"
    assert ask(daemon, "asked") == before
    assert daemon.get("asked")["spec"]["runState"] == "Running"


def test_code_finds_its_variables_after_a_wake(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock, paddock.sandboxes.create() as sandbox:
        data = "import os; data = os.urandom(40 << 20); total = sum(data[::4096]); asleep = 'kept'"
        sandbox.run_code(data, check=True)
        sandbox.hibernate()
        wait_for("it is hibernated", lambda: is_hibernated(daemon, sandbox.name))
        assert resident_bytes(daemon, sandbox.name) < 8 << 20
        assert sandbox.run_code("asleep, sum(data[::4096]) == total").text == "('kept', True)"


def test_a_daemon_killed_while_it_hibernates(daemon: RunningDaemon) -> None:
    before = apply(daemon, "half", NEVER, 200)
    path = swap_allowed(daemon, "half")
    daemon.paddock("set", "run-state", "sandbox/half", "Hibernated")
    wait_for("its memory is being moved", lambda: path.read_text().strip() != "0", 20)
    daemon.kill()
    daemon.start_again()
    wait_for("it is hibernated", lambda: is_hibernated(daemon, "half"))
    assert path.read_text().strip() == "0"
    assert resident_bytes(daemon, "half") < 8 << 20
    assert ask(daemon, "half") == before


def test_a_daemon_killed_while_it_wakes(daemon: RunningDaemon) -> None:
    before = apply(daemon, "waking", NEVER, 100)
    daemon.paddock("set", "run-state", "sandbox/waking", "Hibernated")
    wait_for("it is hibernated", lambda: is_hibernated(daemon, "waking"))
    caller = threading.Thread(target=lambda: daemon.paddock("exec", "waking", "--", "true", check=False))
    caller.start()
    wait_for("it is to run", lambda: daemon.get("waking")["spec"]["runState"] == "Running")
    daemon.kill()
    caller.join()
    daemon.start_again()
    wait_for("it runs", lambda: daemon.condition("waking", "Ready").get("status") == "True")
    assert ask(daemon, "waking") == before


def test_hibernated_too_long_is_suspended(daemon: RunningDaemon) -> None:
    apply(daemon, "long", "idleTimeoutSeconds: 2, suspendAfterSeconds: 2")
    daemon.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/long")
    assert daemon.get("long")["status"]["lastTermination"]["reason"] == "IdleReaped"


POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: asleep}
spec:
  image: "paddock/python:1"
  command: [python3, -c, %s, "30"]
  tmpfs: [{mountPath: /tmp, size: 16Mi}]
  readiness: {exec: {command: [test, -S, /tmp/state]}, periodSeconds: 1, failureThreshold: 60}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: asleep}
spec: {templateRef: {name: asleep}, warmReplicas: 1, warmState: Hibernated, shutdownGracePeriodSeconds: 0}
"""
CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: claimed}
spec: {templateRef: {name: asleep}, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""


def test_a_claim_wakes_a_hibernated_member(daemon: RunningDaemon) -> None:
    daemon.apply(POOL % json.dumps(PROGRAM))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/asleep")
    own_texts = ("--filter", f"label=paddock.instance={daemon.instance_id()}", "--filter", "name=asleep")
    assert docker("ps", *own_texts, "--format", "{{.State}}") == "paused"
    daemon.apply(CLAIM)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/claimed")
    assert daemon.get("claimed")["status"]["launchType"] == "Warm"
    assert ask(daemon, "claimed").endswith("True")
    daemon.paddock("delete", "sandboxpool/asleep", "sandbox/claimed")
