"""Usage metrics against two witnesses: a load of known size in a real container, and the engine's own stats."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker as docker_py
import pytest

from controller.engine.docker.inspect import container_of
from controller.engine.usage.cgroup import CgroupUsage
from controller.engine.usage.writable_layers import tree_bytes
from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import Usage
from tests.daemon import docker, wait_for
from tests.lab.engine_stats import usage_from_stats

pytestmark = pytest.mark.docker
MIB = 1 << 20
PYTHON = "paddock/python:1"


class RunningContainer:
    """A running container, read both ways."""

    def __init__(self, name: str, api: Any) -> None:
        self.name, self._api = name, api
        self._files = CgroupUsage()

    @property
    def container(self) -> Container:
        return container_of(self._api.inspect_container(self.name), swap_limit=True)[0]

    def files(self) -> Usage:
        """Read the cgroup files, like a scrape."""
        container = self.container
        observed = self._files.read([container])
        assert container.id in observed, "the files can be read"
        return observed[container.id]

    def engine(self) -> Usage:
        """Read the engine's stats."""
        usage = usage_from_stats(self._api.stats(self.name, stream=False, one_shot=True), self.container)
        assert usage is not None
        return usage

    def says(self, word: str) -> None:
        """Wait until it has written that."""
        wait_for(f"{self.name} says {word}", lambda: word in docker("logs", self.name).splitlines(), 120)

    def address(self) -> str:
        return docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", self.name)

    def close(self) -> None:
        self._files.close()


@pytest.fixture(scope="module")
def api() -> Iterator[Any]:
    client = docker_py.APIClient(version="auto")
    yield client
    client.close()


@pytest.fixture
def run(api: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., RunningContainer]]:
    """Start a container with that Python program in it."""
    sandboxes: list[RunningContainer] = []

    def start(program: str, *options: str) -> RunningContainer:
        name = f"witness-{abs(hash(request.node.nodeid)) % 10**8}-{len(sandboxes)}"
        docker("run", "-d", "--name", name, "--init", *options, PYTHON, "python3", "-uc", program)
        sandboxes.append(RunningContainer(name, api))
        return sandboxes[-1]

    yield start
    for sandbox in sandboxes:
        sandbox.close()
        docker("rm", "-f", sandbox.name, check=False)


REST = "; import time; time.sleep(10**6)"
# When it is told to: what an interpreter's start takes depends on the machine.
SPIN = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready')
signal.sigwait([signal.SIGUSR1])
end = time.process_time() + %g
while time.process_time() < end: pass
print('done')
time.sleep(10**6)
"""


def test_cpu_of_a_spin_of_known_length(run: Callable[..., RunningContainer]) -> None:
    sandbox = run(SPIN % 2)
    sandbox.says("ready")
    before = sandbox.files().cpu_usage_seconds
    docker("kill", "--signal", "USR1", sandbox.name)
    sandbox.says("done")
    files, engine = sandbox.files(), sandbox.engine()
    assert 2 <= files.cpu_usage_seconds - before < 2.5, "the spin, and what starts and ends it"
    assert files.cpu_usage_seconds == pytest.approx(engine.cpu_usage_seconds, abs=0.1)
    assert files.cpu_user_seconds == pytest.approx(engine.cpu_user_seconds, abs=0.1)
    assert files.cpu_system_seconds == pytest.approx(engine.cpu_system_seconds, abs=0.1)
    assert files.cpu_user_seconds + files.cpu_system_seconds == pytest.approx(files.cpu_usage_seconds, abs=0.3)


def test_memory_of_a_known_allocation(run: Callable[..., RunningContainer]) -> None:
    program = f"held = bytearray(b'x' * {64 * MIB}); print('held'){REST}"
    sandbox = run(program, "--memory", "256m", "--memory-swap", "256m")
    sandbox.says("held")
    files, engine = sandbox.files(), sandbox.engine()
    assert 64 * MIB <= files.memory_rss_bytes < 90 * MIB
    assert 64 * MIB <= files.memory_working_set_bytes < 110 * MIB
    assert (files.memory_peak_bytes or 10**12) >= files.memory_rss_bytes
    assert files.memory_limit_bytes == engine.memory_limit_bytes == 256 * MIB
    assert files.memory_major_faults == engine.memory_major_faults
    for name in ("memory_usage_bytes", "memory_working_set_bytes", "memory_rss_bytes", "memory_cache_bytes"):
        assert getattr(files, name) == pytest.approx(getattr(engine, name), abs=2 * MIB), name


def test_network_of_known_transfers_in_each_direction(run: Callable[..., RunningContainer]) -> None:
    program = (
        "import socket\nserver = socket.create_server(('', 7000))\nprint('listens')\n"
        "while True:\n c, _ = server.accept()\n n = 0\n"
        f" while n < {5 * MIB}: n += len(c.recv(65536))\n"
        f" c.sendall(b'x' * {2 * MIB})\n c.close()\n"
    )
    sandbox = run(program)
    sandbox.says("listens")
    before = sandbox.files().network
    assert before is not None
    with socket.create_connection((sandbox.address(), 7000), timeout=30) as peer:
        peer.sendall(b"x" * (5 * MIB))
        received = 0
        while chunk := peer.recv(65536):
            received += len(chunk)
    assert received == 2 * MIB

    def agree() -> bool:
        return sandbox.files().network == sandbox.engine().network

    wait_for("both witnesses agree to the byte once all is quiet", agree)
    after = sandbox.files().network
    assert after is not None
    assert 5 * MIB <= after.receive_bytes - before.receive_bytes < 5.5 * MIB
    assert 2 * MIB <= after.transmit_bytes - before.transmit_bytes < 2.5 * MIB


DIRECT = f"""
import mmap, os
block = mmap.mmap(-1, {MIB}); block.write(b'x' * {MIB})
out = os.open('/disk/work.bin', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
for _ in range(8): os.write(out, block)
os.fsync(out); os.lseek(out, 0, 0)
for _ in range(4): assert os.readv(out, [block]) == {MIB}
print('moved')
"""


def disk_of(folder: str) -> str:
    """The whole disk that holds it."""
    device = os.stat(folder).st_dev
    resolve = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    return f"/dev/{(resolve.parent if (resolve / 'partition').exists() else resolve).name}"


@pytest.fixture
def disk() -> Iterator[Path]:
    """Return a folder of this host's disk: the engine may have its data in memory."""
    with tempfile.TemporaryDirectory(dir="/srv") as folder:
        yield Path(folder)


def test_disk_io_of_known_size(run: Callable[..., RunningContainer], disk: Path) -> None:
    # With cgroup v1, kernels from 6.10 on count nothing until somebody sets a limit of the device: here, one never met.
    limit = f"{disk_of(str(disk))}:1tb"
    wide = ("--device-write-bps", limit, "--device-read-bps", limit)
    sandbox = run(DIRECT + REST.lstrip("; "), "--user", "0:0", "-v", f"{disk}:/disk", *wide)
    sandbox.says("moved")
    files, engine = sandbox.files(), sandbox.engine()
    assert files.fs_write_bytes is not None
    assert files.fs_read_bytes is not None
    assert 8 * MIB <= files.fs_write_bytes < 10 * MIB, "the file, and a little of the file system's own"
    assert 4 * MIB <= files.fs_read_bytes < 40 * MIB, "the file, and the interpreter where it was not in the cache"
    assert (files.fs_read_bytes, files.fs_write_bytes) == (engine.fs_read_bytes, engine.fs_write_bytes)
    if files.source == "cgroup1":
        assert (files.fs_reads, files.fs_writes) == (engine.fs_reads, engine.fs_writes)
    else:  # of cgroup v2 the engine tells no requests
        assert (engine.fs_reads, engine.fs_writes) == (None, None)
        assert (files.fs_reads or 0) >= 4
        assert (files.fs_writes or 0) >= 8


def test_processes(run: Callable[..., RunningContainer]) -> None:
    program = (
        f"import subprocess\nheld = [subprocess.Popen(['sleep', '1000000']) for _ in range(9)]\nprint('held'){REST}"
    )
    sandbox = run(program, "--pids-limit", "64")
    sandbox.says("held")
    files, engine = sandbox.files(), sandbox.engine()
    assert files.pids == engine.pids == 11, "nine, their parent, and init"
    assert files.pids_limit == engine.pids_limit == 64


def test_forks_refused_at_the_limit(run: Callable[..., RunningContainer]) -> None:
    program = (
        "import subprocess\nheld = []\ntry:\n while True: held.append(subprocess.Popen(['sleep', '1000000']))\n"
        f"except OSError: print('refused'){REST}"
    )
    sandbox = run(program, "--pids-limit", "16")
    sandbox.says("refused")
    files = sandbox.files()
    assert files.pids == 16
    assert files.pids_limit_hits is None or files.pids_limit_hits >= 1


def test_a_process_killed_for_want_of_memory(run: Callable[..., RunningContainer]) -> None:
    program = (
        "import subprocess, sys\n"
        f"ended = subprocess.run([sys.executable, '-c', \"b'x' * {512 * MIB}\"]).returncode\n"
        f"print('killed' if ended == -9 else ended){REST}"
    )
    sandbox = run(program, "--memory", "64m", "--memory-swap", "64m")
    sandbox.says("killed")
    files = sandbox.files()
    assert files.oom_kills == 1
    assert files.memory_peak_bytes == 64 * MIB
    # Some kernels with cgroup v1 (6.18) leave failcnt at 0 all the same: the figure is the file's.
    assert files.memory_limit_hits is not None
    assert files.memory_rss_bytes < 64 * MIB, "the one that was killed is gone; the container lives"


def test_throttling(run: Callable[..., RunningContainer]) -> None:
    sandbox = run(SPIN % 0.4)
    sandbox.says("ready")
    before = sandbox.files()
    assert before.cpu_periods is None, "nothing holds it back yet"
    docker("update", "--cpus", "0.05", sandbox.name)  # so little that a busy host gives it that much all the same
    docker("kill", "--signal", "USR1", sandbox.name)
    sandbox.says("done")
    files = sandbox.files()

    def agree() -> bool:
        first, engine = sandbox.files(), sandbox.engine()
        figures = ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_seconds")
        return all(getattr(first, name) == pytest.approx(getattr(engine, name)) for name in figures)

    wait_for("both witnesses agree once all is quiet", agree)
    assert files.cpu_limit_cores == 0.05
    assert (files.cpu_periods or 0) >= 70, "0.4 s of CPU at 5 ms a period takes eighty of them"
    assert 0 < (files.cpu_throttled_periods or 0) <= (files.cpu_periods or 0)
    assert (files.cpu_throttled_seconds or 0) > 0.1
    assert 0.4 <= files.cpu_usage_seconds - before.cpu_usage_seconds < 0.8


def test_no_network_metrics_without_a_network(run: Callable[..., RunningContainer]) -> None:
    for network in ("none", "host"):
        sandbox = run(REST.lstrip("; "), "--network", network)
        assert (sandbox.files().network, sandbox.engine().network) == (None, None)


def test_waiting_for_a_processor(api: Any, run: Callable[..., RunningContainer]) -> None:
    """Two that spin on one processor. The scheduler's count is the witness: both may wait at once, for a third.

    What started the container waited, too, and is in no count of the two: so only what came after their start counts.
    """
    program = (
        "import os, signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "def waited(): return int(open('/proc/self/schedstat').read().split()[1])\n"
        "before = waited()\nprint('ready')\nsignal.sigwait([signal.SIGUSR1])\nbefore = before if os.fork() else 0\n"
        "end = time.process_time() + 1\nwhile time.process_time() < end: pass\n"
        # One write each: two that print at once mix their lines.
        "os.write(1, b'%d\\n' % (waited() - before))\ntime.sleep(10**6)"
    )
    sandbox = run(program, "--cpuset-cpus", "0")
    sandbox.says("ready")
    before = stalled(sandbox)
    docker("kill", "--signal", "USR1", sandbox.name)

    def both() -> list[int] | None:
        numbers = [int(line) for line in docker("logs", sandbox.name).splitlines()[1:]]
        return numbers if len(numbers) == 2 else None

    waited = sum(wait_for("both have spun", both, 120)) / 1e9
    observed = stalled(sandbox)
    assert (observed.cpu_stalled_seconds or 0) <= (observed.cpu_waiting_seconds or 0)
    assert waited > 0.5
    waiting_seconds = (observed.cpu_waiting_seconds or 0) - (before.cpu_waiting_seconds or 0)
    assert 0.9 * waited / 2 < waiting_seconds < 1.1 * waited


def test_waiting_for_the_disk(run: Callable[..., RunningContainer], disk: Path) -> None:
    """Each write past the cache is waited for, by the only process there is: what it counts itself is the witness."""
    timed = DIRECT.replace("for _ in range(8)", "import time; began = time.monotonic()\nfor _ in range(64)")
    sandbox = run(
        timed.replace("print('moved')", "print('moved', time.monotonic() - began)") + REST.lstrip("; "),
        *("--user", "0:0", "-v", f"{disk}:/disk"),
    )
    line = wait_for("it has moved them", lambda: docker("logs", sandbox.name).strip())
    observed = stalled(sandbox)
    assert observed.io_waiting_seconds is not None
    assert 0 < observed.io_waiting_seconds < float(line.split()[1]) + 1, "no longer than it took, and the start"


def test_waiting_for_memory(run: Callable[..., RunningContainer], disk: Path) -> None:
    """A file that is larger than the limit: its pages are given up, over and over, to read on."""
    program = (
        f"out = open('/disk/work.bin', 'wb')\nfor _ in range(96): out.write(b'x' * {MIB})\nout.close()\n"
        "for _ in range(4):\n with open('/disk/work.bin', 'rb') as file:\n  while file.read(1 << 20): pass\n"
        "print('read')"
    )
    sandbox = run(program + REST, "--memory", "32m", "--memory-swap", "32m", "--user", "0:0", "-v", f"{disk}:/disk")
    sandbox.says("read")
    observed = stalled(sandbox)
    assert observed.memory_waiting_seconds is not None
    assert observed.memory_waiting_seconds > 0
    assert (observed.memory_stalled_seconds or 0) <= observed.memory_waiting_seconds
    assert observed.memory_limit_hits is not None


def stalled(sandbox: RunningContainer) -> Usage:
    """As a scrape with every detail reads it."""
    reader = CgroupUsage(stalls=True)
    try:
        observed = reader.read([sandbox.container])[sandbox.container.id]
    finally:
        reader.close()
    if observed.cpu_waiting_seconds is None:
        pytest.skip("this kernel or engine keeps no PSI of containers")
    return observed


def test_sizes_of_layer_and_log(api: Any, run: Callable[..., RunningContainer]) -> None:
    lines, line = 2000, "x" * 99
    program = (
        f"import os, sys\nopen('/work.bin', 'wb').write(os.urandom({8 * MIB}))\nos.symlink('/usr', '/link')\n"
        f"os.sync()\nfor _ in range({lines}): print('{line}')\nprint('written'){REST}"
    )
    sandbox = run(program, "--user", "0:0")
    sandbox.says("written")
    container = sandbox.container
    engine = api.inspect_container(sandbox.name)["Id"]
    (reported,) = [entry["SizeRw"] for entry in api.containers(size=True, filters={"id": engine})]
    # The containerd image store has no folder of its own for a layer: there the engine's figure counts.
    content = tree_bytes(container.layer_path) if container.layer_path else reported
    assert 8 * MIB <= content < 9 * MIB
    assert content == pytest.approx(reported, abs=MIB // 2)
    log = sandbox.files().log_bytes
    assert log is not None
    assert lines * (len(line) + 1) < log < lines * (len(line) + 100), "each line, and what the engine notes beside it"
