"""Large data into a sandbox and out of it: `paddock cp` beside `docker cp`, and a forwarded port beside a plain relay.

`docker cp` sees no tmpfs, and a sandbox here writes nowhere else: it copies to and from the container's own layer,
which is in the page cache as well. Each is timed by turns, and the best of its times counts: the machine is not ours
alone.
"""

import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.bench.engine_cpu import listener, with_children_seconds
from tests.daemon import ROOT, RunningDaemon, docker, running, wait_for

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(900)]
MIB = 1 << 20
SIZE = 1 << 30
ROUNDS = 3
PIECE = bytes(1 << 18)
# Sends so much to whoever asks for it, or takes all there is.
SERVER = f"""
import socket, sys, threading
def serve(c):
    with c:
        if c.recv(1) == b"s":
            for _ in range({SIZE // len(PIECE)}): c.sendall(b"x" * {len(PIECE)})
        else:
            while c.recv({len(PIECE)}): pass
            c.sendall(b".")
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(s.getsockname()[1], flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""
# What anybody would write: two threads for each connection.
RELAY = f"""
import socket, sys, threading
def carry(a, b):
    while data := a.recv({len(PIECE)}): b.sendall(data)
    b.shutdown(socket.SHUT_WR)
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    a, b = s.accept()[0], socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for pair in ((a, b), (b, a)): threading.Thread(target=carry, args=pair, daemon=True).start()
"""
SANDBOX = f"""
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: copy}}
spec:
  template:
    image: paddock/python:1
    command: ["python3", "-c", {json.dumps(SERVER)}, "8500"]
    tmpfs: [{{mountPath: /workspace, size: 2200Mi}}]
  resources: {{limits: {{memory: 3Gi, cpu: "2"}}}}
  lifecycle: {{shutdownGracePeriodSeconds: 0}}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        created.apply(SANDBOX)
        created.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/copy")
        yield created


@pytest.fixture
def container() -> Iterator[str]:
    """One that docker copies to and from."""
    name = "paddock-bench-copy"
    docker("run", "-d", "--name", name, "--network", "none", "paddock/test-tiny:1", "sleep", "1000000")
    try:
        yield name
    finally:
        docker("rm", "-f", name, check=False)


def test_cp_of_a_gibibyte(daemon: RunningDaemon, container: str, tmp_path: Path) -> None:
    source, target = tmp_path / "large", tmp_path / "back"
    with source.open("wb") as file:
        for _ in range(SIZE // MIB):
            file.write(b"0123456789abcdef" * (MIB // 16))
    for message, ours, second in (
        ("in", (source, "copy:/workspace/large"), (source, f"{container}:/large")),
        ("out", ("copy:/workspace/large", target), (f"{container}:/large", target)),
    ):
        usage: tuple[list[float], list[float]] = ([], [])
        ratio, took, bare = by_turns(
            counted(lambda pair=ours: daemon.paddock("cp", *map(str, pair)), daemon.process.pid, usage[0]),  # type: ignore[misc]
            counted(lambda pair=second: docker("cp", *map(str, pair)), listener(), usage[1]),  # type: ignore[misc]
        )
        print(f"\ncp of 1 GiB {message}: {took:.2f} s by Paddock, {bare:.2f} s by docker cp: {ratio:.2f} of its speed")
        of_ours, of_theirs = map(min, usage)
        print(f"of processors, the daemon's among them: {of_ours:.2f} s, {of_theirs:.2f} s by docker cp and its engine")
        assert target.stat().st_size == SIZE if message == "out" else True


def test_a_forwarded_port(daemon: RunningDaemon) -> None:
    with forwarded(daemon) as port, relayed() as relay:
        wait_for("the server listens", lambda: drained(port, 1))
        for message, run in (("out of", drained), ("into", filled)):
            ratio, took, bare = by_turns(lambda do=run: do(port), lambda do=run: do(relay))  # type: ignore[misc]
            print(
                f"\n1 GiB {message} a box by its port: {took:.2f} s, by a plain relay {bare:.2f} s: {ratio:.2f} of it"
            )


def counted(run: Callable[[], object], daemon: int, used: list[float]) -> Callable[[], None]:
    """The same, which notes the seconds of processors that it and a daemon take: these do not hang on others' load."""

    def seconds() -> float:
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ours.ru_utime + ours.ru_stime + with_children_seconds(daemon)

    def do() -> None:
        before = seconds()
        run()
        used.append(seconds() - before)

    return do


def by_turns(ours: Callable[[], object], bare: Callable[[], object]) -> tuple[float, float, float]:
    """The share of its speed that ours has, and the seconds of both."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for times, run in zip(took, (ours, bare), strict=True):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    mine, second = map(min, took)
    return second / mine, mine, second


def drained(port: int, most: int = SIZE) -> bool:
    """Read what is sent there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"s")
        count = 0
        while count < most and (data := link.recv(1 << 18)):
            count += len(data)
        return count >= most
    return False


def filled(port: int) -> None:
    """Send it there, until all of it has been taken."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"t")
        for _ in range(SIZE // len(PIECE)):
            link.sendall(PIECE)
        link.shutdown(socket.SHUT_WR)
        assert link.recv(1) == b"."


@contextmanager
def relayed() -> Iterator[int]:
    """The port of a plain relay to the same server, outside of any sandbox."""
    with ExitStack() as stack:
        server = stack.enter_context(process("-c", SERVER, "0"))
        yield int(stack.enter_context(process("-c", RELAY, server)))


@contextmanager
def forwarded(daemon: RunningDaemon) -> Iterator[int]:
    """The port on this machine of `paddock port-forward`."""
    with process("-m", "controller", "port-forward", "copy", ":8500", env=daemon.environment) as answer:
        yield int(answer.split(" ->")[0].rpartition(":")[2])


@contextmanager
def process(*words: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """A Python of its own; gives the first line that it says."""
    started = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    with started:
        try:
            yield started.stdout.readline().strip()
        finally:
            started.kill()
