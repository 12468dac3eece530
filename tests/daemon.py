"""A real daemon for tests: `paddock serve` as its own process, with a state folder, socket and ports of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.kinds.runtime.snapshot import IMAGE_REPOSITORY
from paddock._client.errors import ClientError
from tests.forks import ForkedPaddock, run_paddock, start_paddock
from tests.migrated import place_migrated
from tests.mounts import unmount_below
from tests.raw_client import Paddock

ROOT = Path(__file__).resolve().parents[1]
# Where figures are taken, commands are as users start them, and nothing is seen late.
_TIMED = bool(os.environ.get("PADDOCK_BENCH") or os.environ.get("PADDOCK_DRILLS"))
_MOST_REST_SECONDS = 0.01 if _TIMED else 0.1


def wait_for(what: str, true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true answer of `true`, asked again and again; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    pause, number = threading.Event(), 0.002
    while True:
        observed = true()
        if observed:
            return observed
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for: {what}"
        pause.wait(number)
        number = min(2 * number, _MOST_REST_SECONDS)  # what takes long is not slowed down by asking


@dataclass
class RunningDaemon:
    """One `paddock serve`. `log` fills as it writes; `paddock` runs a command against it."""

    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[str] | ForkedPaddock
    log: list[str] = field(default_factory=list)
    periods: Mapping[str, float] = field(default_factory=dict)  # of its background work, where they are not as built
    elsewhere: "RunningDaemon | None" = None  # the daemon whose host has its sandboxes, if that is another one
    _instance_id: str = ""

    @property
    def works_at(self) -> "RunningDaemon":
        """The daemon whose host has its sandboxes: whoever looks at processes, metrics or logs looks there."""
        return self.elsewhere or self

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.environment.get("PADDOCK_HOST_NAME", "host")

    @property
    def socket(self) -> Path:
        return self.folder / "paddock.sock"

    @property
    def run(self) -> tuple[str, ...]:
        """`run`, and the host that has its sandboxes: what names none there waits for a person, and `run` does not."""
        return ("run", "--host", self.elsewhere.host) if self.elsewhere else ("run",)

    def paddock(
        self, *arguments: str, stdin: str | None = None, check: bool = True, seconds: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `paddock ARGUMENTS` against this daemon, for `seconds` at most."""
        run = start_paddock if _TIMED else run_paddock
        done = run(arguments, environment=self.environment, cwd=ROOT, stdin=stdin, seconds=seconds)
        assert not check or done.returncode == 0, f"paddock {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    def apply(self, text: str) -> str:
        return self.paddock("apply", "-f", "-", stdin=text).stdout

    def get(self, name: str) -> dict[str, Any]:
        """The sandbox as JSON; empty when there is none, and while nobody answers."""
        try:
            with Paddock(f"unix://{self.socket}") as paddock:
                return paddock.get("sandboxes", name)
        except ClientError:
            return {}

    def object(self, plural: str, name: str) -> dict[str, Any]:
        """Return an object as JSON, asked in this process: a command takes many times the processor time."""
        with Paddock(f"unix://{self.socket}") as paddock:
            return paddock.get(plural, name)

    def objects(self, plural: str, namespace: str = "default") -> list[dict[str, Any]]:
        """Return all objects of a kind as JSON, asked in this process; those of the host are in the namespace ""."""
        with Paddock(f"unix://{self.socket}", namespace=namespace) as paddock:
            return paddock.list(plural)

    def condition(self, name: str, type_: str) -> dict[str, Any]:
        conditions = self.get(name).get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == type_), {})

    def served(self) -> dict[str, Any]:
        """The log line that says where it serves."""
        lines = [json.loads(line) for line in self.log if line.startswith("{")]
        return next((line for line in lines if line.get("event") == "serving"), {})

    def ready_page(self) -> str:
        """Return what /readyz says of each check; "" if nobody answers."""
        where = ["--unix-socket", str(self.socket), "http://localhost/readyz"]
        command = ["curl", "-s", "--max-time", "10", *where]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def is_ready(self) -> bool:
        """Return True if it has planned on what it sees of its engine."""
        return self.ready_page().endswith("\nready\n")

    def metrics_url(self) -> str:
        return str(self.served()["metrics"])

    def scrape(self) -> str:
        """Return all metrics as text."""
        with urllib.request.urlopen(self.metrics_url(), timeout=60) as response:
            return str(response.read(), "utf-8")

    def instance_id(self) -> str:
        """Return the label by which its containers are known, asked of its own database once."""
        if not self._instance_id:
            from controller.store.sql_store import SqlStore

            store = SqlStore(self.environment.get("PADDOCK_DATABASE_URL") or f"sqlite:///{self.folder / 'paddock.db'}")
            store.open()
            try:
                self._instance_id = store.instance_id
            finally:
                store.close()
        return self._instance_id

    def kill(self) -> None:
        """kill -9: no chance to clean up."""
        self.process.kill()
        self.process.wait(30)

    def start_again(self, **settings: str) -> None:
        """Start it anew once it has ended, with its settings and these."""
        sent = {key: value for key, value in self.environment.items() if key.startswith("PADDOCK_")}
        later = start_daemon(self.folder, periods=self.periods, **sent | settings)
        self.environment |= settings
        self.process, self.log = later.process, later.log

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def start_daemon(
    folder: Path,
    *,
    ready: bool = True,
    prefix: Sequence[str] | None = None,
    network_of: int | None = None,
    periods: Mapping[str, float] | None = None,
    **settings: str,
) -> RunningDaemon:
    """Start `paddock serve`; with `ready`, wait until it serves.

    `periods` are other seconds between two runs of its background work, by job id (controller/loop): a test
    waits for such work, not for its time. They need a forked daemon.

    With a `prefix`, be it empty, it is a new interpreter's, by a command that begins so; else it is forked off. It runs
    in the network namespace of the process `network_of`, if one is given.
    In an empty folder its store is there already, and empty: how one is made is tests/store's and tests/deploy's.
    """
    if ready and "PADDOCK_DATABASE_URL" not in settings and not (folder.exists() and any(folder.iterdir())):
        place_migrated(folder / "paddock.db")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PADDOCK_")},
        "PADDOCK_STATE_DIR": str(folder),
        "PADDOCK_SOCKET": str(folder / "paddock.sock"),
        "PADDOCK_SERVER": f"unix://{folder / 'paddock.sock'}",
        "PADDOCK_METRICS_PORT": "0",
        "PADDOCK_E2B_ADDRESS": "",
        "PADDOCK_LOG_FORMAT": "json",
        "PADDOCK_BUILD_IMAGES": "off",  # a test that names a missing image waits for no build
        "PADDOCK_HIBERNATION_BYTES": "0",  # what idleness does is the same on each machine; tests of it set this
        "PADDOCK_PACKAGE_SOURCES": '["apt"]',  # no test depends on this host's pip and npm, or waits for their answers
        **settings,
    }
    process: subprocess.Popen[str] | ForkedPaddock
    if prefix is None and not _TIMED:
        process = ForkedPaddock(["serve"], environment=environment, cwd=ROOT, network_of=network_of, periods=periods)
    else:
        network = () if network_of is None else ("nsenter", f"--target={network_of}", "--net", "--")
        command = [*network, *(prefix or ()), sys.executable, "-m", "controller", "serve"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    daemon = RunningDaemon(folder, environment, process, periods=periods or {})

    def drain() -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                daemon.log.append(line)

    threading.Thread(target=drain, daemon=True).start()
    if ready:
        try:
            wait_for("the daemon serves", lambda: daemon.served() or process.poll() is not None, 120)
        except AssertionError:
            daemon.kill()
            raise
        assert process.poll() is None, "".join(daemon.log)
    return daemon


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[RunningDaemon]:
    """A daemon that is gone at the end, with every container it made; started as by `start_daemon`.

    With PADDOCK_TEST_FOREIGN it is one of two, and what it is asked to make is on the other's host.
    """
    if os.environ.get("PADDOCK_TEST_FOREIGN") and "PADDOCK_DATABASE_URL" not in settings:
        from tests.foreign import foreign

        with foreign(folder, **settings) as requested:
            yield requested
        return
    daemon = start_daemon(folder, **settings)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.stop()
        instance_id = daemon.instance_id()
        remove_containers(instance_id)
        for snapshot in (folder / "snapshots").glob("*"):  # the names of their images outlive the daemon
            docker("rmi", "--no-prune", f"{IMAGE_REPOSITORY}:{snapshot.name}", check=False)
        for claim in Path("/run/paddock/claims").glob(f"{instance_id}-*"):  # of one that was killed
            claim.unlink()


def docker(*arguments: str, check: bool = True) -> str:
    """The docker command, as a person would use it behind Paddock's back."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


def remove_image(image: str, base_url: str = "unix:///var/run/docker.sock") -> None:
    """Have an engine remove an image. It asks every container first, one of which may hang: that is not waited for."""
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(["docker", "-H", base_url, "rmi", "-f", image], capture_output=True, timeout=10, check=False)


def remove_containers(instance_id: str) -> None:
    """Remove the containers and mounts of one test store, whose daemon is gone; nothing else bears its id."""
    parts = docker("ps", "-aq", "--filter", f"label=paddock.instance={instance_id}").split()
    if parts:
        docker("rm", "-f", *parts, check=False)
    unmount_below(Path("/run/paddock/mounts") / instance_id)
