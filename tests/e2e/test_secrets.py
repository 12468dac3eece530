"""A secret reaches the sandbox as a file and as a variable, and is nowhere else on this host."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import ROOT, RunningDaemon, docker, running, wait_for

pytestmark = pytest.mark.docker
CANARY = "canary-8c1f27d0b3"
SPEC = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: keeper}
spec:
  template:
    image: paddock/python:1
    command: ["sleep", "100000"]
    secrets: [{name: token, mountPath: /run/secrets/token}]
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    folder = tmp_path / "secrets" / "default"
    folder.mkdir(parents=True)
    (folder / "token").write_text(CANARY)
    for path, mode in ((folder.parent, 0o700), (folder, 0o700), (folder / "token", 0o600)):
        path.chmod(mode)
    with running(tmp_path / "state", PADDOCK_SECRETS_DIR=str(folder.parent), PADDOCK_LOG_LEVEL="debug") as created:
        yield created


def sandbox(daemon: RunningDaemon) -> str:
    return docker("ps", "-q", "--filter", f"label=paddock.instance={daemon.instance_id()}")


def ready(daemon: RunningDaemon) -> None:
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/keeper")


def read(daemon: RunningDaemon, *command: str) -> str:
    return daemon.paddock("exec", "keeper", "--", *command).stdout


@pytest.mark.timeout(600)
def test_a_secret_is_in_the_sandbox_and_nowhere_else(daemon: RunningDaemon) -> None:
    daemon.apply(SPEC)
    ready(daemon)
    assert read(daemon, "cat", "/run/secrets/token") == CANARY
    own_text = read(daemon, "id", "-u").strip()
    assert read(daemon, "stat", "-c", "%u %a", "/run/secrets/token").split() == [own_text, "400"]
    in_memory = read(daemon, "cat", "/proc/self/mountinfo")
    assert " /run/secrets/token ro,nosuid,nodev,noexec" in in_memory
    sleeping = ("exec", "--secret", "TOKEN=token", "keeper", "--", "sh", "-c", "echo ${#TOKEN}; exec sleep 30")
    with subprocess.Popen(
        [sys.executable, "-m", "controller", *sleeping],
        cwd=ROOT,
        env=daemon.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == f"{len(CANARY)}\n"
        assert found_in(daemon) == []
        command.kill()

    # After a restart it is there before Ready, as it is then.
    token = Path(daemon.environment["PADDOCK_SECRETS_DIR"]) / "default" / "token"
    token.write_text(CANARY[::-1])
    docker("kill", sandbox(daemon))
    wait_for("it is started anew", lambda: daemon.get("keeper")["status"]["restartCount"] == 1)
    ready(daemon)
    assert read(daemon, "cat", "/run/secrets/token") == CANARY[::-1]
    assert found_in(daemon) == []

    # Without its secret nothing is started.
    daemon.paddock("set", "run-state", "sandbox/keeper", "Suspended")
    daemon.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/keeper")
    token.unlink()
    daemon.paddock("set", "run-state", "sandbox/keeper", "Running")
    wait_for("it is told", lambda: daemon.condition("keeper", "Ready").get("reason") == "SecretMissing")
    assert sandbox(daemon) == ""
    output = daemon.paddock("exec", "--secret", "TOKEN=token", "keeper", "--", "true", check=False)
    assert output.returncode != 0


def found_in(daemon: RunningDaemon) -> list[str]:
    """Return every place that shows the secret, plain or encoded."""
    container = sandbox(daemon)
    message: dict[str, bytes] = {
        "docker inspect": docker("inspect", container).encode(),
        "docker logs": docker("logs", container).encode(),
        "docker diff": docker("diff", container).encode(),
        "docker top": docker("top", container, "-eo", "pid,args").encode(),
        "paddock inspect": daemon.paddock("inspect", "keeper").stdout.encode(),
        "paddock get": daemon.paddock("get", "sandboxes", "-o", "yaml").stdout.encode(),
        "paddock describe": daemon.paddock("describe", "sandbox", "keeper").stdout.encode(),
        "paddock events": daemon.paddock("events", "sandbox/keeper").stdout.encode(),
        "paddock why": daemon.paddock("why", "keeper").stdout.encode(),
        "paddock audit": daemon.paddock("audit").stdout.encode(),
        "paddock diff": daemon.paddock("diff", "-f", "-", stdin=SPEC, check=False).stdout.encode(),
        "paddock attest": daemon.paddock("attest", "keeper", check=False).stdout.encode(),
        "the daemon's log": "".join((*daemon.log, *daemon.works_at.log)).encode(),
        "command lines": b"".join(_commands()),
        "the engine's records": _of_engine(container),
    }
    for path in (*daemon.folder.rglob("*"), *daemon.works_at.folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # some are there for a moment
            if path.is_file():
                message[str(path)] = path.read_bytes()
    return [name for name, text in message.items() if CANARY.encode() in text or CANARY[::-1].encode() in text]


def _commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:
            continue


def _of_engine(container: str) -> bytes:
    root = Path(docker("info", "--format", "{{.DockerRootDir}}")) / "containers"
    path = next(root.glob(f"{container}*"))
    return b"".join(entry.read_bytes() for entry in path.rglob("*") if entry.is_file())
