"""Published ports of a Compose project: forwarded by a process of the user's own, at the loopback of this machine.

It holds a lock on the project's file as long as it runs; the file has its id and its ports.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from controller.cli.client import Client, sandbox_path
from controller.cli.errors import CliError
from controller.cli.relays import ssh
from paddock._client.errors import ClientError, Refused
from paddock._client.port_forward import Forwarding, open_port

_CHECK_SECONDS = 10.0
_STOP_SECONDS = 10.0
_START_SECONDS = 30.0

Port = tuple[str, int, int]  # sandbox, local (0: a free one), remote


def state_file(server: str, namespace: str, project: str) -> Path:
    """Return the file of the project's forwarder: of this user, and of that daemon."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    digest = hashlib.sha256(f"{server}/{namespace}/{project}".encode()).hexdigest()[:12]
    return base / "paddock" / "compose" / f"{project[:40]}-{digest}.json"


def running(path: Path) -> Mapping[str, Any]:
    """Return what the forwarder's file says; empty if none runs."""
    try:
        with path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                state: Mapping[str, Any] = json.loads(file.read() or "{}")
                return state
    except (FileNotFoundError, ValueError):
        pass
    return {}


def stop(path: Path) -> None:
    """End the forwarder, if one runs."""
    if not (state := running(path)):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(state["pid"]), signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while running(path) and time.monotonic() < deadline:
        time.sleep(0.02)


def start(path: Path, namespace: str, ports: Sequence[Port], environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Start a forwarder in the background; return what it opened (`ports`, `errors`). Raises CliError."""
    stop(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [*ssh.program(), "compose", "forward", str(path)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin:
        process.stdin.write(json.dumps({"namespace": namespace, "ports": ports}).encode())
    timer = threading.Timer(_START_SECONDS, process.kill)
    timer.start()
    with process.stdout:
        line = process.stdout.readline()
    timer.cancel()
    if not line:
        process.wait()
        raise CliError("ports: the process that opens them ended; `paddock port-forward NAME PORT` shows why")
    process.returncode = 0  # it goes on when this command has ended: nobody waits for it
    opened: Mapping[str, Any] = json.loads(line)
    return opened


def forward(client: Client, path: Path, request: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    """Forward ports until SIGTERM, or until their sandboxes are gone."""
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: start_new_thread(over.set, ()))
    namespace, ports = (
        request["namespace"],
        [(str(name), int(local), int(remote)) for name, local, remote in request["ports"]],
    )
    with path.open("a+") as file, listening(client, namespace, ports) as (opened, errors):
        fcntl.flock(file, fcntl.LOCK_EX)
        state = {"pid": os.getpid(), "ports": opened, "errors": errors}
        file.truncate(0)
        file.write(json.dumps(state))
        file.flush()
        tell(json.dumps(state))
        while opened and not over.wait(_CHECK_SECONDS):
            if not any(_exists(client, namespace, name) for name in {port[0] for port in ports}):
                break
        file.truncate(0)


@contextlib.contextmanager
def listening(client: Client, namespace: str, ports: Sequence[Port]) -> Iterator[tuple[list[Port], list[str]]]:
    """Listen at these ports; yield those that are open, and why the others are not."""
    opened: list[Port] = []
    errors: list[str] = []
    with contextlib.ExitStack() as stack:
        for name, local, remote in ports:
            try:
                open_ = partial(open_port, client.server, sandbox_path(namespace, name))
                forwarding = stack.enter_context(Forwarding(open_, remote, local=local))
            except (OSError, ClientError) as error:
                errors.append(f"127.0.0.1:{local or 'any'} for {name}:{remote}: {error}")
            else:
                opened.append((name, forwarding.port, remote))
        yield opened, errors


def _exists(client: Client, namespace: str, name: str) -> bool:
    try:
        client.get(sandbox_path(namespace, name))
    except Refused as error:
        return error.reason != "NotFound"
    except ClientError:
        return True
    return True
