"""A Docker Engine of the test's own, in a network and mount namespace of its own: it may be stopped and killed."""

import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import docker
import docker.errors

from tests.contract.engine_worlds import SOCKET, TINY

_UP_SECONDS = 60.0
_POLL_SECONDS = 0.1


class PrivateEngine:
    """One engine over one data folder, started and ended at will. Needs root; `close` leaves nothing behind."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder, self._options = folder, options
        self._cgroup = f"/paddock-test-{uuid.uuid4().hex[:8]}"
        self._process: subprocess.Popen[bytes] | None = None
        self.base_url = f"unix://{folder}/engine.sock"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "engine.log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        deadline = time.monotonic() + _UP_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._folder / "engine.log").read_text())
            time.sleep(_POLL_SECONDS)

    def _command(self) -> Sequence[str]:
        folder = self._folder
        return (
            *("unshare", "--net", "--mount", "--propagation", "slave", "dockerd", "-H", self.base_url),
            *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/engine.pid"),
            *("--cgroup-parent", self._cgroup, "--bridge", "none", "--iptables=false", "--ip-forward=false"),
            *self._options,
        )

    def _answers(self) -> bool:
        api = docker.APIClient(base_url=self.base_url, version="1.41", timeout=5)
        try:
            return bool(api.ping())
        except (docker.errors.DockerException, OSError):
            return False
        finally:
            api.close()

    def load(self) -> None:
        """Give it the tiny image of the host's engine."""
        source = docker.APIClient(base_url=SOCKET, version="1.41")
        target = docker.APIClient(base_url=self.base_url, version="1.41")
        try:
            for _ in target.load_image(b"".join(source.get_image(TINY))):
                pass
        finally:
            source.close()
            target.close()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End its process by this signal, and wait for it."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)

    def close(self) -> None:
        """End it with all that it runs, and remove what it has written."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self.start()
        api = docker.APIClient(base_url=self.base_url, version="1.41")
        for each in api.containers(all=True):
            api.remove_container(each["Id"], force=True)
        api.close()
        self.end()
        self._end_containerd()
        shutil.rmtree(self._folder, ignore_errors=True)
        for mount in Path("/sys/fs/cgroup").glob(f"*{self._cgroup}"):
            mount.rmdir()

    def _end_containerd(self) -> None:
        """One that outlived an engine that was killed."""
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = found.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"containerd") and f"{self._folder}/exec".encode() in b" ".join(words):
                subprocess.run(["kill", found.parent.name], check=False)
