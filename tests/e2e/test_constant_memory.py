"""Large transfers both ways by the command line and HTTP: no side uses more memory than for a MiB.

PADDOCK_TEST_MIB says how much: by default ten times what may be kept, and 1024 at most.
"""

import filecmp
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import ROOT, RunningDaemon, running

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
MIB = 1 << 20
LITTLE, MUCH = MIB, int(os.environ.get("PADDOCK_TEST_MIB", "256")) * MIB
MORE_BYTES = 24 * MIB  # than for a little, of which nobody can say where the interpreter put it
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: large}
spec:
  template:
    image: paddock/test-tiny:1
    command: ["sleep", "1000000"]
    tmpfs: [{mountPath: /workspace, size: 1100Mi}]
  resources: {limits: {memory: 1400Mi, cpu: "2"}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
# The same without what clients on this host have instead of HTTP.
OVER_HTTP = """
import sys
from tests.raw_client import Paddock
_, server, source, target = sys.argv
def read(file):
    while piece := file.read(1 << 18): yield piece
with Paddock(server) as paddock:
    files = paddock.sandbox("large").files
    if target.startswith("/workspace"):
        with open(source, "rb") as file: files.write(target, read(file))
    else:
        with open(target, "wb") as file, files.open(source) as answer:
            for piece in answer.pieces(): file.write(piece)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    # A disk that writes back so much may hold up a client for longer than a daemon waits for one.
    with running(tmp_path_factory.mktemp("daemon"), prefix=(), PADDOCK_STALL_SECONDS="60") as created:
        created.apply(SANDBOX)
        created.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/large")
        yield created


def made(path: Path, size: int) -> Path:
    """Create a sparse file."""
    with path.open("wb") as file:
        for at in range(0, size, size // 16):
            file.seek(at + 12_345)
            file.write(os.urandom(5000))
        file.truncate(size)
    return path


def most_bytes(daemon: RunningDaemon, *words: str) -> list[int]:
    """Run a command; return its and the daemon's peak memory."""
    Path(f"/proc/{daemon.process.pid}/clear_refs").write_text("5")  # forget the highest so far
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=daemon.environment)
    _, status, struct_rusage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    highest = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    return [struct_rusage.ru_maxrss << 10, highest]


@pytest.mark.parametrize("way", ["cp", "http"])
def test_large_transfers_use_constant_memory(daemon: RunningDaemon, tmp_path: Path, way: str) -> None:
    begin = ["-m", "controller", "cp"] if way == "cp" else ["-c", OVER_HTTP, f"unix://{daemon.socket}"]
    text, back = "/workspace/file", tmp_path / "back"
    name = f"large:{text}" if way == "cp" else text
    document: dict[int, list[list[int]]] = {}
    try:
        for size in (LITTLE, MUCH):
            source = made(tmp_path / "source", size)
            document[size] = [
                most_bytes(daemon, *begin, str(source), name),
                most_bytes(daemon, *begin, name, str(back)),
            ]
            assert filecmp.cmp(source, back, shallow=False)
    finally:
        for path in (back, tmp_path / "source"):
            path.unlink(missing_ok=True)
    for little, much in zip(document[LITTLE], document[MUCH], strict=True):
        for before, after in zip(little, much, strict=True):
            assert after - before < MORE_BYTES, document
