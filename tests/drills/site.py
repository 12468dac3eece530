"""Site of the drills: a daemon over an engine of its own, some sandboxes, and what became of them after a fault."""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from controller.store.sql_store import SqlStore
from tests.daemon import RunningDaemon, start_daemon, wait_for
from tests.lab.engine import PrivateEngine, private_engine

SANDBOXES = 8
RECOVERS_SECONDS = 120.0
_NAMES = tuple(f"box-{index}" for index in range(SANDBOXES))
_SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {cpu: 100m, memory: 16Mi, pids: 16}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container as the engine has it."""

    id: str
    pid: int
    running: bool


class Site:
    """`daemon` is replaced when a drill ends it and starts the next."""

    def __init__(self, folder: Path, engine: PrivateEngine, **settings: str) -> None:
        self.folder, self.engine = folder, engine
        self._settings = {
            "PADDOCK_DOCKER_HOST": engine.base_url,
            "PADDOCK_ENGINE_TIMEOUT_SECONDS": "3",
            "PADDOCK_RESYNC_SECONDS": "5",
            **settings,
        }
        self.daemons: list[RunningDaemon] = []
        self.daemon = self.start_daemon()

    def start_daemon(self, *, ready: bool = True, folder: Path | None = None, **settings: str) -> RunningDaemon:
        """One more daemon; it is the one that is asked from now on."""
        self.daemon = start_daemon(folder or self.folder, ready=ready, **{**self._settings, **settings})
        self.daemons.append(self.daemon)
        return self.daemon

    def furnish(self) -> "Site":
        """Apply the sandboxes, and wait until all are as asked."""
        self.daemon.apply("---".join(_SANDBOX % name for name in _NAMES))
        wait_for("the sandboxes are Ready", self.well, RECOVERS_SECONDS)
        return self

    def get(self, path: str) -> tuple[int, Any]:
        """The daemon's answer: status and body, parsed where it is JSON. (0, "") when nobody answers."""
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as link:
            link.settimeout(20)
            try:
                link.connect(str(self.daemon.socket))
                link.sendall(f"GET {path} HTTP/1.0\r\nHost: paddock\r\n\r\n".encode())
                answer = HTTPResponse(link)
                with closing(answer):
                    answer.begin()
                    body = answer.read().decode()
            except (OSError, HTTPException):
                return 0, ""
        with suppress(ValueError):
            return answer.status, json.loads(body)
        return answer.status, body

    def ready_words(self) -> dict[str, str]:
        """Each sandbox's Ready condition: `True Running`."""
        _, listed = self.get("/apis/paddock/v1alpha1/namespaces/default/sandboxes")
        document = {}
        for entry in listed["items"] if listed else ():
            conditions = entry.get("status", {}).get("conditions", ())
            document[entry["metadata"]["name"]] = next(
                (f"{it['status']} {it['reason']}" for it in conditions if it["type"] == "Ready"), ""
            )
        return document

    def all_are(self, words: str) -> bool:
        ready_words = self.ready_words()
        return len(ready_words) == SANDBOXES and all(
            ready_word.startswith(words) for ready_word in ready_words.values()
        )

    def well(self) -> bool:
        """Return True if the daemon is ready, every sandbox is Ready, and exactly those containers run."""
        if self.get("/readyz")[0] != 200 or not self.all_are("True"):
            return False
        containers = self.containers()
        return len(containers) == SANDBOXES and all(sandbox.running for sandbox in containers.values())

    def containers(self) -> Mapping[str, RunningContainer]:
        """Our containers by name; fails the drill when an object has two."""
        ids = self.engine.docker("ps", "-aq", "--filter", "label=paddock.instance", check=False).split()
        output = self.engine.docker("inspect", *ids, check=False) if ids else "[]"
        try:
            listed = json.loads(output or "[]")
        except ValueError:
            return {}
        names = [entry["Config"]["Labels"]["paddock.name"] for entry in listed]
        assert len(names) == len(set(names)), f"two containers of one object: {sorted(names)}"
        states = [entry["State"] for entry in listed]
        return {
            name: RunningContainer(entry["Id"], state["Pid"], state["Status"] == "running")
            for name, entry, state in zip(names, listed, states, strict=True)
        }

    def recovered(
        self, before: Mapping[str, RunningContainer], *, begun: float | None = None, crashes: int = 0
    ) -> tuple[float, str]:
        """Wait until all is well: seconds since `begun` (time.monotonic(); default: now), and what was lost.

        `crashes` is how many ends were the sandboxes' own: of all others no back-off may grow.
        """
        start = time.monotonic() if begun is None else begun
        wait_for("all is well again", self.well, RECOVERS_SECONDS)
        seconds = time.monotonic() - start
        assert self.crashes() <= crashes, "back-off has grown"
        return seconds, compare(before, self.containers())

    def crashes(self) -> int:
        """Ends and failed calls that anything is backed off for, by the store's own records."""
        store = SqlStore(self.daemon.environment.get("PADDOCK_DATABASE_URL") or f"sqlite:///{self.folder}/paddock.db")
        store.open()
        try:
            return sum(
                instance.state.runs.crashes + bool(instance.state.backoff.failure) for instance in store.instances()
            )
        finally:
            store.close()

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.kill()


@contextmanager
def site(folder: Path, *options: str, **settings: str) -> Iterator[Site]:
    """A furnished site over an engine with these options."""
    with private_engine(*options) as engine:
        created = Site(folder, engine, **settings)
        try:
            yield created.furnish()
        finally:
            created.close()


def compare(before: Mapping[str, RunningContainer], after: Mapping[str, RunningContainer]) -> str:
    """Return the losses, in words."""
    made_anew = sum(after[name].id != sandbox.id for name, sandbox in before.items())
    started_anew = sum(after[name].pid != sandbox.pid for name, sandbox in before.items())
    if not started_anew:
        return "nothing"
    message = f"{started_anew} of {len(before)} processes"
    return f"{message}, {made_anew} containers" if made_anew else f"{message}; no container"
