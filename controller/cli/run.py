"""A box for one command: made, waited for, used, and removed whatever happens.

A client that is killed removes nothing. Its command ends with it, and then the box goes by itself: it is deleted as
soon as it has been idle for a minute, and after a day in any case.
"""

import contextlib
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from controller.cli.client import Client, connect, segment
from controller.cli.errors import CliError, Misused
from controller.cli.exec_relay import INTERRUPTED, carry
from controller.cli.kinds import Resource
from controller.cli.output import note
from controller.cli.progress import waiting_for
from controller.cli.watch import Object, Obstacle, condition_of, obstacle_of, until
from controller.client.errors import ClientError
from controller.client.sandbox import Sandbox
from controller.version import API_VERSION

IMAGE = "paddock/python:1"
LABEL = "paddock-run"
_INTERPRETERS = {".py": "python3", ".sh": "sh", ".js": "node", ".pl": "perl", ".rb": "ruby"}
_LARGEST_BYTES = 8 << 20
_SANDBOXES = Resource("sandboxes", "sandbox", "Sandbox", namespaced=True)
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_LIFECYCLE = {
    "idleTimeoutSeconds": 60,
    "onIdle": "Delete",
    "activeDeadlineSeconds": 86400,
    "ttlSecondsAfterFinished": 0,
    "shutdownGracePeriodSeconds": 0,
}


@dataclass(frozen=True, slots=True)
class Job:
    """What to run; `script` is put into the box as `path` first."""

    command: tuple[str, ...]
    path: str = ""
    script: bytes = b""

    @classmethod
    def of(cls, arguments: Sequence[str], file: str, code: str) -> "Job":
        """From the words of the command line. CliError for a file that can't be run."""
        if code:
            return cls(("python3", "-c", code, *arguments))
        if not file:
            return cls(tuple(arguments))
        source = Path(file)
        interpreter = _INTERPRETERS.get(source.suffix)
        if interpreter is None:
            known = ", ".join(_INTERPRETERS)
            raise Misused(f"what runs {file} can't be told from its name (it knows {known}); rename it")
        path = f"/tmp/{source.name}"  # noqa: S108 - in the box, which is nobody else's
        return cls((interpreter, path, *arguments), path, _read(source))


@contextlib.contextmanager
def box(ctx: click.Context, namespace: str, template: str, level: str, seconds: float) -> Iterator[Sandbox]:
    """A box that is Ready; removed at the end, also when a signal ends this process."""
    client, name = connect(ctx), f"run-{secrets.token_hex(5)}"
    spec = {**_what(client, namespace, template, level), "restartPolicy": "Never", "lifecycle": _LIFECYCLE}
    document = {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": LABEL}},
        "spec": spec,
    }
    with _endings():
        try:
            client.request("POST", _SANDBOXES.path(namespace), json=document)
            _wait(client, namespace, name, seconds)
            yield Sandbox(client, namespace, name)
        finally:
            _remove(client, namespace, name)


def carry_out(
    job: Job,
    sandbox: Sandbox,
    env: Mapping[str, str],
    *,
    with_stdin: bool,
    tty: bool,
    timeout_seconds: float | None,
    raw_output: bool = False,
) -> int:
    """Run it with this process's streams; gives its exit code."""
    if job.script:
        put = sandbox.exec(["sh", "-c", 'cat > "$0"', job.path], stdin=job.script)
        if put.exit_code:
            said = put.stderr.decode(errors="replace").strip()
            raise CliError(f"the script can't be put into the box: {said or f'exit code {put.exit_code}'}")
    with sandbox.start(job.command, stdin=with_stdin, tty=tty, env=env, timeout_seconds=timeout_seconds) as running:
        try:
            return carry(running, with_stdin=with_stdin, tty=tty, raw_output=raw_output)
        except KeyboardInterrupt:
            return INTERRUPTED


def _what(client: Client, namespace: str, template: str, level: str) -> dict[str, Any]:
    """The template by its name: only so can a pool's box be taken. Another level than its own makes it another one."""
    if template and not level:
        return {"templateRef": {"name": template}}
    found: dict[str, Any] = {"image": IMAGE, "command": ["sleep", "infinity"]}
    if template:
        found = client.get(f"namespaces/{segment(namespace)}/sandboxtemplates/{segment(template)}")["spec"]
    return {"template": {**found, **({"securityLevel": level} if level else {})}}


def _wait(client: Client, namespace: str, name: str, seconds: float) -> None:
    last = Obstacle("Pending", "Pending: the daemon has not decided about it yet")

    def ready(_name: str, obj: Object | None) -> bool:
        nonlocal last
        for type_, status in (("Accepted", "False"), ("Finished", "True")):
            found = condition_of(obj or {}, type_)
            if found is not None and found["status"] == status:
                raise CliError(f"the sandbox can't run: {found['reason']}: {found.get('message', '')}")
        found = condition_of(obj or {}, "Ready")
        if found is None or found["status"] == "True":
            return found is not None
        last = obstacle_of(found)
        waiting.because(f"sandbox {name}", last.reason, last.words)
        return False

    with waiting_for(f"sandbox {name}") as waiting:
        late = until(client, _SANDBOXES, namespace, [name], ready, time.monotonic() + seconds)
    if late:
        raise CliError(f"the sandbox was not Ready within {seconds:g} s: {last.words}; --wait gives it longer")


def _remove(client: Client, namespace: str, name: str) -> None:
    try:
        client.request("DELETE", _SANDBOXES.path(namespace, name))
    except ClientError as error:
        if getattr(error, "reason", "") != "NotFound":
            note(f"warning: {name} was not removed: {error.message}; it goes by itself once it is idle")


@contextlib.contextmanager
def _endings() -> Iterator[None]:
    """Signals that end this process do so by way of what is to be cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> None:
        for each in _ENDINGS:  # once is enough
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    earlier = {number: signal.signal(number, end) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _read(source: Path) -> bytes:
    try:
        with source.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise CliError(f"can't read {source}: {error.strerror}") from error
    if len(data) > _LARGEST_BYTES:
        raise CliError(f"{source} is larger than {_LARGEST_BYTES >> 20} MiB, which no script is")
    return data
