"""A private Docker Engine, which tests may stop, kill, freeze and restart.

It lives in a network and a mount namespace of its own (two engines in one network namespace take each other's bridge
and rules), with its own data, state, cgroup and socket. The namespaces are held by a process that does nothing, so
that they outlive the engine: what live-restore keeps running stays mounted and connected. Needs root.

    with private_engine("--live-restore") as engine:
        engine.load("paddock/test-tiny:1")
        engine.end(signal.SIGKILL); engine.start()
"""

import contextlib
import http.client
import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.daemon import wait_for
from tests.forks import enter_network

UP_SECONDS = 90.0
# Set in the lab of a newer engine: its root file system, and options for its image store.
ROOT, OPTIONS = "PADDOCK_LAB_ROOT", "PADDOCK_LAB_OPTIONS"
_CALL_SECONDS = 5.0
_CONTAINERD = re.compile(r"(\S*/)?containerd ")


T = TypeVar("T")


class Namespaces:
    """A network and a mount namespace, there as long as the process `pid` that holds them."""

    engine_options: tuple[str, ...] = ()
    """Options of each dockerd in there: of the lab's image store, if its programs are those of a newer engine."""

    def __init__(self, hostname: str = "") -> None:
        """With a `hostname`, also a namespace in which the machine is called so."""
        self._kinds = ("--net", "--mount", *(("--uts",) if hostname else ()))
        text = f"hostname {hostname} && " if hostname else ""
        # Slave: what the host mounts is seen in here, what is mounted in here is not seen by the host.
        reserved = f"{text}ip link set lo up && echo held && exec sleep infinity"
        self._holder = subprocess.Popen(
            ["unshare", *self._kinds, "--propagation", "slave", "sh", "-c", reserved], stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        with self._holder.stdout as output:
            assert output.readline() == b"held\n", "the namespaces could not be made: are you root?"
        self.pid = self._holder.pid

    def enter(self, *command: str) -> tuple[str, ...]:
        """The command line that runs `command` in there."""
        return ("nsenter", f"--target={self.pid}", *self._kinds, "--", *command)

    def run(self, *command: str) -> str:
        """Run a command in there; its output. AssertionError with what it said if it fails."""
        done = subprocess.run(self.enter(*command), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def within(self, do: Callable[[], T]) -> T:
        """Call `do` in that network, in a thread of this process, with the files of this one."""

        with ThreadPoolExecutor(1, initializer=enter_network, initargs=(self.pid,)) as inside:
            return inside.submit(do).result()

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait(60)


def lab_namespaces() -> Namespaces:
    """Namespaces of an engine: in the lab of a newer one (newer.py) that one's programs are in them."""
    if ROOT not in os.environ:
        return Namespaces()
    rooted: Namespaces = importlib.import_module("tests.lab.newer").Rooted(Path(os.environ[ROOT]))
    rooted.engine_options = lab_options()
    return rooted


def lab_options() -> tuple[str, ...]:
    """Options of dockerd for the lab's image store; none outside of it."""
    return tuple(os.environ.get(OPTIONS, "").split())


class PrivateEngine:
    """One engine over one data folder. `folder` has a short path, as socket paths are limited."""

    def __init__(self, folder: Path, *options: str, namespaces: Namespaces | None = None) -> None:
        """`options` are dockerd's; `namespaces` are the caller's to close, made here when not given."""
        self._cgroup = f"paddock-lab-{uuid.uuid4().hex[:8]}"
        self._own_namespaces = namespaces is None
        self.namespaces = namespaces or lab_namespaces()
        self.folder, self.options = folder, (*self.namespaces.engine_options, *options)
        self._process: subprocess.Popen[bytes] | None = None
        self.base_url = f"unix://{folder}/engine.sock"

    @property
    def pid(self) -> int:
        """dockerd's own."""
        assert self._process is not None
        return self._process.pid

    @property
    def up(self) -> bool:
        """Tell whether dockerd runs, listening or not."""
        return not self._over()

    def launch(self) -> None:
        """Start it, and do not wait."""
        self._end_left_behind()
        with (self.folder / "engine.log").open("ab") as log:
            self._process = subprocess.Popen(self.namespaces.enter(*self._command()), stdout=log, stderr=log)

    def start(self) -> "PrivateEngine":
        """Start it, and wait until it answers."""
        self.launch()
        self.wait_until_up()
        return self

    def wait_until_up(self) -> None:
        wait_for("the engine answers", lambda: self.answers() or self._over(), UP_SECONDS)
        assert not self._over(), f"the engine ended:\n{self.log()}"

    def log(self) -> str:
        """Its last lines."""
        return "\n".join((self.folder / "engine.log").read_text().splitlines()[-30:])

    def answers(self) -> bool:
        """Tell whether it answers a ping."""
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as link:
            link.settimeout(_CALL_SECONDS)
            try:
                link.connect(str(self.folder / "engine.sock"))
                link.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
                answer = http.client.HTTPResponse(link)
                with contextlib.closing(answer):
                    answer.begin()
                    return answer.status == 200
            except (OSError, http.client.HTTPException):
                return False

    def docker(self, *arguments: str, check: bool = True, seconds: float = 120.0) -> str:
        """The docker command on this engine; its output. Raises subprocess.TimeoutExpired after `seconds`."""
        command = ["docker", "-H", self.base_url, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        assert not check or done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
        return done.stdout.strip()

    def load(self, *images: str) -> None:
        """Give it images of the host's engine."""
        saved = self.folder / "images.tar"
        subprocess.run(["docker", "save", "-o", str(saved), *images], check=True, timeout=300)
        self.docker("load", "-q", "-i", str(saved))
        saved.unlink()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End dockerd by this signal, and wait until it is gone; what it leaves behind is left."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(UP_SECONDS)

    def freeze(self) -> None:
        """It hangs: its socket takes connections, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def crash_host(self) -> None:
        """All of it at once, as by a power cut: dockerd, containerd, every container. What is in /run is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in self._groups():
            with contextlib.suppress(OSError):
                (folder / "freezer.state").write_text("THAWED")  # on cgroup v1 what is paused does not even die
        wait_for("all are gone", lambda: not self._processes())
        # What was mounted last first: an engine that was stopped may have left a mount below another.
        mounted = f"cut -d' ' -f2 /proc/mounts | grep '^{self.folder}/' | tac"
        self.namespaces.run("sh", "-c", f"{mounted} | xargs -r umount -l")
        shutil.rmtree(self.folder / "exec", ignore_errors=True)
        for name in ("engine.pid", "engine.sock"):
            (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """End it with all that it runs, and remove what it has written, except `folder` itself."""
        if self._process is not None:
            self.crash_host()
        if self._own_namespaces:
            self.namespaces.close()
        for folder in reversed(self._groups()):
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()

    def _command(self) -> tuple[str, ...]:
        folder = self.folder
        return (
            *("dockerd", "-H", self.base_url, "--pidfile", f"{folder}/engine.pid"),
            *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
            *("--cgroup-parent", f"/{self._cgroup}"),
            *self.options,
        )

    def _over(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _end_left_behind(self) -> None:
        """The containerd of an engine that was killed: it dies with its parent, but not at once."""
        for pid in self._processes(_CONTAINERD):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for("containerd is gone", lambda: not self._processes(_CONTAINERD))
        # Where nobody has collected it yet, dockerd takes what is left of it for one that runs, and waits for it.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def _processes(self, like: re.Pattern[str] | None = None) -> list[int]:
        """Return the processes in the engine's cgroups, and those started with a path below its folder."""
        if like is None:
            inside = {int(pid) for folder in self._groups() for pid in _listed(folder / "cgroup.procs")}
        else:
            inside = set()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if f"{self.folder}/exec" in line and not line.startswith("dockerd") and (not like or like.match(line)):
                    inside.add(int(path.parent.name))
        return sorted(inside)

    def _groups(self) -> list[Path]:
        """Its cgroups, each before those below it; they may go meanwhile."""
        root = Path("/sys/fs/cgroup")
        tops = [path for path in (root / self._cgroup, *root.glob(f"*/{self._cgroup}")) if path.is_dir()]
        return [Path(above) for top in tops for above, _, _ in os.walk(top)]


def _listed(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


@contextmanager
def private_engine(*options: str, images: tuple[str, ...] = ("paddock/test-tiny:1",)) -> Iterator[PrivateEngine]:
    """An engine that is up and has these images, and that is gone with everything at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pdk-"))
    engine = PrivateEngine(folder, *options)
    try:
        engine.start()
        if images:
            engine.load(*images)
        yield engine
    finally:
        engine.close()
        shutil.rmtree(folder)
