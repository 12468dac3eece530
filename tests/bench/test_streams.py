"""Cost of a hundred open streams to everybody else: a list and a command with them and without, by turns.

So does the engine's own door: what it takes longer for the same command then is none of Paddock's.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker as docker_py
import pytest

from tests.daemon import ROOT, RunningDaemon, running, wait_for
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(900)]
ROUNDS, EACH = 4, 15
# Half of them say something ten times a second, the others nothing.
STREAMS = """
import sys, threading
from contextlib import ExitStack
from tests.raw_client import Paddock
def drain(source):
    for _ in source: pass
with Paddock(sys.argv[1]) as paddock, ExitStack() as held:
    box, sources = paddock.sandbox("streams"), []
    for number in range(34):
        sources.append(held.enter_context(box.logs(follow=True, tail=1)))
        words = ["tail", "-f", "/tmp/ticks"] if number % 2 else ["sleep", "1000000"]
        if number < 32: sources.append(held.enter_context(box.start(words)))
        sources.append(iter(held.enter_context(box.connect(8500)).receive, b""))
    for source in sources:
        threading.Thread(target=drain, args=(source,), daemon=True).start()
    print(len(sources), flush=True)
    sys.stdin.read()
"""
SERVER = """
import socket, sys, threading, time
def serve(c, number):
    while True:
        time.sleep(0.1)
        if number % 2: c.sendall(b"x")
def accept():
    s, number = socket.create_server(("127.0.0.1", 8500), backlog=128), 0
    while True:
        number += 1
        threading.Thread(target=serve, args=(s.accept()[0], number), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
with open("/tmp/ticks", "w") as ticks:
    while True:
        time.sleep(0.1)
        for each in (ticks, sys.stdout): print("x", file=each, flush=True)
"""
SANDBOX = f"""
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: streams}}
spec:
  template: {{image: paddock/python:1, command: ["python3", "-c", {json.dumps(SERVER)}]}}
  resources: {{limits: {{memory: 512Mi, cpu: "1", pids: 512}}}}
  lifecycle: {{shutdownGracePeriodSeconds: 0}}
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: other}}
spec:
  template: {{image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}}
  resources: {{limits: {{memory: 64Mi, cpu: "1"}}}}
  lifecycle: {{shutdownGracePeriodSeconds: 0}}
"""


def test_a_hundred_open_streams(tmp_path: Path) -> None:
    with (
        closing(docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)) as reserved,
        running(tmp_path, PADDOCK_EXEC_PER_SANDBOX="64") as daemon,
        Paddock(f"unix://{daemon.socket}") as paddock,
    ):
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/streams", "sandbox/other")
        wait_for("it listens", lambda: listens(paddock))
        sandbox = paddock.sandbox("other")
        container = reserved.containers.get(daemon.get("other")["status"]["instanceRef"]["name"])
        document: dict[str, Callable[[], object]] = {
            "list": lambda: paddock.list("sandboxes"),
            "exec of true": lambda: sandbox.exec(["true"]),
            "exec of true by docker-py": lambda: container.exec_run(["true"], demux=True),
        }
        took: dict[tuple[str, bool], list[float]] = {(word, full): [] for word in document for full in (False, True)}
        for _ in range(ROUNDS):
            measure(document, took, full=False)
            with streams(daemon) as open_:
                measure(document, took, full=True)
    for word in document:
        alone, among = (statistics.median(took[word, full]) * 1000 for full in (False, True))
        print(f"\n{word}, p50: {alone:.1f} ms alone, {among:.1f} ms beside {open_} open streams: {among / alone:.2f}")


def listens(paddock: Paddock) -> bool:
    try:
        paddock.sandbox("streams").connect(8500).close()
    except Exception:
        return False
    return True


def measure(asked: dict[str, Callable[[], object]], took: dict[tuple[str, bool], list[float]], *, full: bool) -> None:
    for _ in range(EACH):
        for word, ask in asked.items():
            start = time.perf_counter()
            ask()
            took[word, full].append(time.perf_counter() - start)


@contextmanager
def streams(daemon: RunningDaemon) -> Iterator[int]:
    """A process of its own that holds them open; gives how many."""
    command = [sys.executable, "-c", STREAMS, f"unix://{daemon.socket}"]
    with subprocess.Popen(
        command, cwd=ROOT, env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()
