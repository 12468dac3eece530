"""Deeds of a soak: one thing at a time, drawn by chance, as users, programs and people with Docker would."""

import contextlib
import random
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping

import httpx

from paddock._client.errors import ClientError, Refused
from tests.daemon import RunningDaemon
from tests.lab.engine import PrivateEngine
from tests.raw_client import Paddock

NAMES = tuple(f"box-{number}" for number in range(12))
POOL = """\
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: warm}
spec:
  image: "paddock/test-tiny:1"
  command: ["sh", "-c", "while :; do echo tick; sleep 1; done"]
  resources: {limits: {cpu: 200m, memory: 32Mi, pids: 64}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: warm}, warmReplicas: %d, shutdownGracePeriodSeconds: 0}
"""
_CLAIM = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec: {templateRef: {name: warm}, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""
_SANDBOX = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template:
    image: "paddock/test-tiny:1"
    command: ["sh", "-c", "while :; do echo tick; sleep 1; done"]
    env: [{name: LETTER, value: "%s"}]
    tmpfs: [{mountPath: /tmp, size: 8Mi}]
  resources: {limits: {cpu: 200m, memory: %dMi, pids: 64}}
  runState: %s
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
_HAND_SECONDS = 20.0  # then somebody at the host presses ^C
# What may be answered to somebody who asks by chance: not there, in between, too many.
_EXPECTED = frozenset((404, 409, 422, 429))
_IN_SANDBOXES = ("exec", "exec_left", "detach", "log_left", "files")


class Deeds:
    """One worker's: its own client and its own chance. `done` counts; `wrong` is what nobody should have been told."""

    def __init__(self, daemon: RunningDaemon, engine: PrivateEngine, seed: int) -> None:
        self._daemon, self._engine = daemon, engine
        self._chance = random.Random(seed)
        self._paddock = Paddock(f"unix://{daemon.socket}")
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._all: Mapping[Callable[[], None], int] = {
            self._apply: 30,
            self._claim: 10,
            self._delete: 12,
            self._exec: 20,
            self._exec_left: 5,
            self._detach: 4,
            self._log_left: 8,
            self._watch_left: 8,
            self._files: 8,
            self._half_a_request: 5,
            self._meddle: 4,
            self._pool: 2,
            self._token: 3,
            self._backup: 1,
            self._read: 10,
        }

    def one(self) -> None:
        """Do one thing."""
        (deed,) = self._chance.choices(list(self._all), list(self._all.values()))
        name = deed.__name__.strip("_")
        try:
            deed()
            self.done[name] += 1
        except Refused as error:
            self.refused[name] += 1
            if error.code not in _EXPECTED and not (name in _IN_SANDBOXES and _going(error)):
                self.wrong.append(f"{name}: {error.code} {error.message}")
        except ClientError as error:  # a sandbox may go under what is done in it; the daemon's own answers may not
            self.refused[name] += 1
            if name in ("apply", "claim", "delete", "read", "token", "pool", "backup"):
                self.wrong.append(f"{name}: {error.message}")

    def close(self) -> None:
        self._paddock.close()

    def _name(self) -> str:
        return self._chance.choice(NAMES)

    def _apply(self) -> None:
        letter, memory = self._chance.choice("aaaab"), self._chance.choice((16, 24, 32))
        state = self._chance.choices(("Running", "Suspended", "Paused"), (8, 1, 1))[0]
        self._paddock.apply(_SANDBOX % (self._name(), letter, memory, state))

    def _claim(self) -> None:
        self._paddock.apply(_CLAIM % self._name())

    def _delete(self) -> None:
        self._paddock.delete("sandboxes", self._name())

    def _exec(self) -> None:
        self._paddock.sandbox(self._name()).exec(["sh", "-c", "echo hello; echo $$"], timeout_seconds=20)

    def _exec_left(self) -> None:
        with self._paddock.sandbox(self._name()).start(["sh", "-c", "yes"], timeout_seconds=20) as running:
            for _ in range(self._chance.randrange(5)):
                next(running, None)  # its sandbox may be gone

    def _detach(self) -> None:
        sandbox = self._paddock.sandbox(self._name())
        started = sandbox.detach(["sleep", str(self._chance.randrange(20))], timeout_seconds=30)
        if self._chance.random() < 0.5:
            sandbox.kill_exec(started.id)

    def _log_left(self) -> None:
        with self._paddock.sandbox(self._name()).logs(follow=self._chance.random() < 0.5, tail=5) as pieces:
            next(pieces, b"")

    def _watch_left(self) -> None:
        document = {"watch": "1"}
        with self._paddock.connection.lines("namespaces/default/sandboxes", document, seconds=1.0) as lines:
            for _ in range(self._chance.randrange(4)):
                next(lines, "")

    def _files(self) -> None:
        files = self._paddock.sandbox(self._name()).files
        files.write("/tmp/soak", bytes(self._chance.randrange(200_000)))
        files.read("/tmp/soak")
        files.remove("/tmp/soak")

    def _half_a_request(self) -> None:
        """A client that breaks off, wherever it is."""
        sent = b"POST /apis/paddock/v1alpha1/apply HTTP/1.1\r\nHost: paddock\r\nContent-Length: 100\r\n\r\n{"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.connect(str(self._daemon.socket))
            link.sendall(sent[: self._chance.randrange(len(sent))])

    def _meddle(self) -> None:
        """Do as people do with Docker, past Paddock."""
        parts = self._engine.docker("ps", "-q", "--filter", "label=paddock.instance", check=False).split()
        if parts:
            how = self._chance.choice((["kill"], ["rm", "-f"], ["pause"], ["stop", "-t", "0"], ["update", "-m", "20m"]))
            # An engine's stop that meets the sandbox's next run, begun anew at once, waits for the end of that one.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._engine.docker(*how, self._chance.choice(parts), check=False, seconds=_HAND_SECONDS)

    def _pool(self) -> None:
        self._paddock.apply(POOL % self._chance.randrange(4))

    def _token(self) -> None:
        """Make a token, use it and revoke it: connections that it opened end with it."""
        name = f"t{self._chance.getrandbits(40):x}"
        document = {"name": name, "grant": {"role": "viewer"}, "expirationSeconds": 600}
        created = self._paddock.connection.request("POST", "tokens", json=document)
        transport = httpx.HTTPTransport(uds=str(self._daemon.socket), verify=False)
        headers = {"Authorization": f"Bearer {created['token']}"}
        path = "/apis/paddock/v1alpha1/namespaces/default/sandboxes?watch=1&resourceVersion=0"
        with httpx.Client(transport=transport, base_url="http://paddock", headers=headers, timeout=30) as client:
            try:
                with client.stream("GET", path) as answer:
                    self._paddock.connection.request("DELETE", f"tokens/{name}")
                    for _ in answer.iter_raw():
                        pass
            except httpx.RemoteProtocolError:
                return
            self.wrong.append(f"token: a watch outlived its token ({answer.status_code})")

    def _backup(self) -> None:
        with self._paddock.connection.stream("backup", {}) as pieces:
            size = sum(map(len, pieces))
        assert size

    def _read(self) -> None:
        path = self._chance.choice(("sandboxes", "events", "instances", "sandboxpools"))
        self._paddock.list(path)
        self._paddock.get("sandboxes", self._name())


def _going(error: Refused) -> bool:
    """The sandbox is going just now."""
    return error.code == 503
