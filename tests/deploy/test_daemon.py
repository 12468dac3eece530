"""deploy/daemon.sh and deploy/clean.sh around a stand-in for `paddock serve`: all they know is its socket."""

import os
import subprocess
from pathlib import Path

import pytest

from controller.kinds.runtime.images import owner_mark
from controller.store.sql_store import SqlStore
from tests.deploy.conftest import PYTHON, Checkout

TINY = "paddock/test-tiny:1"

# An engine whose tags all mean sha256:aaa, and on which somebody gave sha256:kept a name.
DOCKER = """#!/bin/sh
echo "$*" >>"$TMPDIR/docker"
case "$*" in
    "image inspect"*len*kept) echo 1 ;;
    "image inspect"*len*) echo 0 ;;
    "image inspect"*) echo sha256:aaa ;;
    "images "*) cat "$TMPDIR/packages" ;;
esac
"""

# Answers /readyz on the socket after a moment; ends on SIGTERM. Other commands are noted.
PADDOCK = f"""#!{PYTHON}
import http.server, os, pathlib, socketserver, sys
base = pathlib.Path(os.environ["TMPDIR"])
if sys.argv[1:] != ["serve"]:
    with (base / "commands").open("a") as file:
        print(*sys.argv[1:], os.environ["PADDOCK_SERVER"], file=file)
    sys.exit()
if (base / "broken").exists():
    sys.exit("error: port 9464 is taken by pid 1")
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        ready = Handler.asked > 1 and not (base / "unready").exists()
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(b"ok" if ready else b"engine: not reachable")
    def address_string(self):
        return "unix"
path = pathlib.Path(os.environ["PADDOCK_SOCKET"])
path.parent.mkdir(exist_ok=True)
path.unlink(missing_ok=True)
socketserver.UnixStreamServer(str(path), Handler).serve_forever()
"""


@pytest.fixture
def desk(checkout: Checkout) -> Checkout:
    folder = checkout.base / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(PYTHON)
    (folder / "paddock").write_text(PADDOCK)
    (folder / "paddock").chmod(0o755)
    (checkout.base / "venv" / ".paddock-made").touch()
    return checkout


def pid(checkout: Checkout) -> int:
    return int((checkout.base / "state" / "daemon.pid").read_text().split()[0])


def store_id(checkout: Checkout) -> str:
    """The id of a real store, made where the daemon makes it."""
    store = SqlStore(f"sqlite:///{checkout.base}/state/paddock.db")
    store.open()
    instance_id = store.instance_id
    store.close()
    return instance_id


def alive(process: int) -> bool:
    """A zombie has ended: whether somebody has looked yet is not ours to say."""
    status = Path(f"/proc/{process}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_starts_once_survives_its_shell_and_stops(desk: Checkout) -> None:
    first = desk.run("deploy/daemon.sh", "start")
    assert first.returncode == 0, first.stderr
    assert "ready after" in first.stdout
    started = pid(desk)
    assert os.getsid(started) == started
    second = desk.run("deploy/daemon.sh", "start")
    assert second.stdout == f"The daemon runs already (pid {started}) and is ready.\n"
    assert desk.run("deploy/daemon.sh", "status").returncode == 0
    stopped = desk.run("deploy/daemon.sh", "stop")
    assert "sandboxes keep running" in stopped.stdout
    assert not alive(started)
    assert desk.run("deploy/daemon.sh", "stop").stdout == "No daemon runs.\n"


def test_a_daemon_that_ends_shows_why(desk: Checkout) -> None:
    (desk.base / "broken").touch()
    result = desk.run("deploy/daemon.sh", "start")
    assert result.returncode == 1
    assert "| error: port 9464 is taken by pid 1" in result.stderr


def test_a_daemon_that_is_not_ready_in_time_says_what_it_answers(desk: Checkout) -> None:
    (desk.base / "unready").touch()
    result = desk.run("deploy/daemon.sh", "start", env={"PADDOCK_DAEMON_TIMEOUT": "6"})
    assert result.returncode == 1
    assert "is not ready after 6 s: engine: not reachable" in result.stderr
    assert desk.run("deploy/daemon.sh", "status").returncode == 1
    assert desk.run("deploy/daemon.sh", "stop").returncode == 0


def test_a_daemon_of_somebody_elses_is_used_and_never_stopped(desk: Checkout) -> None:
    command = [str(desk.base / "venv" / "bin" / "paddock"), "serve"]
    with subprocess.Popen(command, env=desk.env, stderr=subprocess.DEVNULL) as process:
        while desk.run("deploy/daemon.sh", "status").returncode:
            assert process.poll() is None
        assert "not started from here answers" in desk.run("deploy/daemon.sh", "start").stdout
        assert "left alone" in desk.run("deploy/daemon.sh", "stop").stdout
        assert process.poll() is None
        process.kill()


def test_clean_removes_what_bears_our_mark(desk: Checkout) -> None:
    desk.command("docker", '#!/bin/sh\necho "$*" >>"$TMPDIR/docker"\n')
    desk.run("deploy/daemon.sh", "start")
    started = pid(desk)
    ours = store_id(desk)
    result = desk.run("deploy/clean.sh", env={"PADDOCK_KEEP_IMAGES": "1"})
    assert result.returncode == 0, result.stderr
    assert (
        desk.base / "commands"
    ).read_text() == f"delete sandboxes --all --timeout=120s unix://{desk.base}/run/paddock.sock\n"
    assert f"ps -aq --filter label=paddock.instance={ours}" in (desk.base / "docker").read_text()
    assert not alive(started)
    for removed in ("state", "venv", "run"):
        assert not (desk.base / removed).exists(), removed


def test_clean_leaves_what_others_made(desk: Checkout) -> None:
    (desk.base / "state").mkdir()
    (desk.base / "state" / "precious").touch()
    (desk.base / "venv" / ".paddock-made").unlink()
    desk.command("docker", DOCKER)
    result = desk.run("deploy/clean.sh")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("left alone") == 2  # state and venv
    assert (desk.base / "state" / "precious").exists()
    assert (desk.base / "venv" / "bin" / "paddock").exists()
    assert not (desk.base / "docker").exists()  # nothing recorded: the engine is not even asked


def test_clean_removes_the_images_that_were_built_here(desk: Checkout) -> None:
    desk.command("docker", DOCKER)
    (desk.root / ".cache").mkdir()
    record = "paddock/base:1 sha256:old\npaddock/base:1 sha256:aaa\npaddock/python:1 sha256:kept\n"
    (desk.root / ".cache" / "images-built").write_text(record)
    assert desk.run("deploy/clean.sh").returncode == 0
    calls = (desk.base / "docker").read_text().splitlines()
    removed = [call for call in calls if call.startswith("image rm")]
    assert removed == ["image rm sha256:old", "image rm paddock/base:1"]
    assert not (desk.root / ".cache").exists()


def test_clean_removes_the_packages_of_this_store_only(desk: Checkout) -> None:
    desk.command("docker", DOCKER)
    python = desk.base / "venv" / "bin" / "python"
    python.unlink()
    python.write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')  # with its packages, as of a real virtual environment
    python.chmod(0o755)
    desk.run("deploy/daemon.sh", "start")
    ours = f"paddock/mcp/scope-server:0123{owner_mark(store_id(desk))}"
    (desk.base / "packages").write_text(f"paddock/mcp/time:4567-abcdef01\n{ours}\n")
    assert desk.run("deploy/clean.sh").returncode == 0
    removed = [call for call in (desk.base / "docker").read_text().splitlines() if call.startswith("image rm")]
    assert removed == [f"image rm {ours}"]


def test_clean_changes_nothing_while_the_engine_is_away(desk: Checkout) -> None:
    desk.run("deploy/daemon.sh", "start")
    result = desk.run("deploy/clean.sh")
    assert result.returncode == 1
    assert "nothing was changed" in result.stderr
    assert alive(pid(desk))
    desk.run("deploy/daemon.sh", "stop")


@pytest.mark.docker
def test_clean_removes_containers_by_our_id_only(desk: Checkout, real_docker: Checkout) -> None:
    docker = ["docker", "--host", real_docker.env["DOCKER_HOST"]]
    ids = {}
    try:
        desk.run("deploy/daemon.sh", "start")
        for who, label in (("ours", store_id(desk)), ("theirs", f"{desk.base.name}-theirs")):
            command = [*docker, "run", "-d", "--network=none", "--label", f"paddock.instance={label}", TINY]
            ids[who] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        result = desk.run("deploy/clean.sh", env={"PADDOCK_KEEP_IMAGES": "1"})
        assert result.returncode == 0, result.stderr
        command = [*docker, "ps", "-aq", "--no-trunc"]
        parts = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert ids["ours"] not in parts
        assert ids["theirs"] in parts
    finally:
        subprocess.run([*docker, "rm", "-f", *ids.values()], capture_output=True, check=False)
