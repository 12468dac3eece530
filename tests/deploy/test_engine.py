"""deploy/engine.sh: uses what answers, installs only where it may, stops only what it started."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.lib.runtime import register
from tests.deploy.conftest import FEDORA, PYTHON, Checkout

BROKEN_APT = """#!/bin/sh
echo "apt-get $*" >>"$TMPDIR/calls"
case "$*" in *install*) echo no such mirror; exit 100 ;; esac
"""


def start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def test_refuses_to_install_on_another_system(checkout: Checkout) -> None:
    checkout.system(FEDORA)
    result = checkout.run("deploy/engine.sh", "start")
    assert result.returncode == 1
    assert "Fedora Linux 42 is not Debian or Ubuntu" in result.stderr
    assert "Install Docker Engine with your system's package manager" in result.stderr


def test_refuses_to_install_without_root(checkout: Checkout) -> None:
    checkout.command("apt-get", "#!/bin/sh\nexit 1\n")
    result = checkout.run("deploy/engine.sh", "start", prefix=checkout.as_nobody())
    assert result.returncode == 1
    assert "needs root" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="installs as root")
def test_says_what_it_installs_and_what_failed(checkout: Checkout) -> None:
    checkout.command("apt-get", BROKEN_APT)
    checkout.command("apt-cache", '#!/bin/sh\necho "Package: $2"\n')
    result = checkout.run("deploy/engine.sh", "start")
    assert result.returncode == 1
    assert "Debian packages to install: docker.io iptables docker-cli crun" in result.stdout
    assert "| no such mirror" in result.stderr
    assert "run this again" in result.stderr
    assert "--no-install-recommends docker.io iptables docker-cli crun" in (checkout.base / "calls").read_text()


def test_a_remote_engine_is_not_ours_to_start(checkout: Checkout) -> None:
    result = checkout.run("deploy/engine.sh", "start", env={"DOCKER_HOST": "tcp://127.0.0.1:1"})
    assert result.returncode == 1
    assert "no Docker Engine answers at tcp://127.0.0.1:1" in result.stderr
    assert "unset DOCKER_HOST" in result.stderr


def test_an_engine_that_answers_is_used(checkout: Checkout) -> None:
    checkout.command("docker", "#!/bin/sh\necho 99.1\n")
    result = checkout.run("deploy/engine.sh", "start")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Docker Engine 99.1 answers" in result.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="starts as root only")
def test_an_engine_that_dies_shows_its_last_words(checkout: Checkout) -> None:
    checkout.command("docker", "#!/bin/sh\nexit 1\n")
    checkout.command("dockerd", "#!/bin/sh\necho failed to start daemon: no such bridge\nexit 1\n")
    result = checkout.run("deploy/engine.sh", "start", prefix=["unshare", "--net", "--mount"])
    assert result.returncode == 1
    assert "| failed to start daemon: no such bridge" in result.stderr
    assert not (checkout.base / "engine-state" / "dockerd.pid").exists()


def test_stop_touches_no_process_of_others(checkout: Checkout, sleeper: int) -> None:
    state = checkout.base / "engine-state"
    state.mkdir()
    for line in (f"{sleeper} {start_time(sleeper)}\n", f"{sleeper} 1\n", f"{sleeper}\n", "nonsense\n"):
        (state / "dockerd.pid").write_text(line)
        result = checkout.run("deploy/engine.sh", "stop")
        assert result.returncode == 0
        assert "nothing to stop" in result.stdout
        state.mkdir(exist_ok=True)
    assert Path(f"/proc/{sleeper}/status").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="starts as root only")
def test_never_starts_a_second_engine_beside_another(checkout: Checkout) -> None:
    """Two in one network namespace take each other's docker0 and iptables rules, whatever their options."""
    shutil.copy("/bin/sleep", checkout.bin / "dockerd")
    checkout.command("docker", "#!/bin/sh\nexit 1\n")
    with subprocess.Popen([str(checkout.bin / "dockerd"), "600"]) as process:
        result = checkout.run("deploy/engine.sh", "start", env={"PADDOCK_ENGINE_TIMEOUT": "2"})
        process.kill()
    assert result.returncode == 1
    assert "a second one would break its networks" in result.stderr
    assert "Starting" not in result.stdout


@pytest.mark.docker
def test_starts_an_engine_of_its_own_and_stops_it(real_docker: Checkout) -> None:
    """A real second engine, with networks and mounts of its own: it can take nothing from the first."""
    checkout, base = real_docker, real_docker.base
    first = checkout.run("deploy/engine.sh", "status")
    folders = f"--exec-root {base}/exec --pidfile {base}/d.pid"
    (base / "former").mkdir()
    (base / "former" / "engine-id").write_text("former\n")
    own_document = {
        "DOCKER_HOST": f"unix://{base}/d.sock",
        "PADDOCK_DOCKERD_ARGS": f"{folders} --bridge=none --iptables=false",
        "PADDOCK_ENGINE_IN_MEMORY": "yes",
        "PADDOCK_ENGINE_DATA": str(base / "former"),
    }
    (checkout.bin / "dockerd").symlink_to(shutil.which("dockerd", path=os.environ["PATH"] + ":/usr/sbin") or "/none")
    links = set(os.listdir("/sys/class/net"))
    try:
        started = checkout.run("deploy/engine.sh", "start", env=own_document, prefix=["unshare", "--net", "--mount"])
        assert started.returncode == 0, started.stderr
        assert "no init system runs here" in started.stdout
        if "stay on the disk" not in started.stdout:
            pid = (base / "engine-state" / "dockerd.pid").read_text().split()[0]
            data = base / "engine-state" / "data"
            assert f"paddock-engine {data} tmpfs" in Path(f"/proc/{pid}/mounts").read_text()
            assert {"engine-id", "overlay2"} <= set(os.listdir(f"/proc/{pid}/root{data}"))
        again = checkout.run("deploy/engine.sh", "start", env=own_document)
        assert again.stdout.endswith("using it.\n")
        assert "Started from here: pid" in checkout.run("deploy/engine.sh", "status", env=own_document).stdout
    finally:
        stopped = checkout.run("deploy/engine.sh", "stop", env=own_document)
    assert stopped.returncode == 0, stopped.stderr
    assert checkout.run("deploy/engine.sh", "status", env=own_document).returncode != 0
    assert not (base / "engine-state").exists()
    assert checkout.run("deploy/engine.sh", "status").stdout == first.stdout
    assert {"docker0"} & links <= set(os.listdir("/sys/class/net"))
    assert str(base) not in Path("/proc/self/mounts").read_text()


def test_registering_a_runtime_keeps_the_other_settings(tmp_path: Path) -> None:
    file = tmp_path / "docker/daemon.json"
    assert [register(file, "crun", "/usr/bin/crun") for _ in range(2)] == [True, False]
    file.write_text('{"live-restore": true, "runtimes": {"runsc": {"path": "/x"}}}')
    file.chmod(0o640)
    assert register(file, "crun", "/usr/bin/crun")
    crun = {"crun": {"path": "/usr/bin/crun"}}
    assert json.loads(file.read_text()) == {"live-restore": True, "runtimes": {"runsc": {"path": "/x"}, **crun}}
    assert (file.stat().st_mode & 0o777, [entry.name for entry in file.parent.iterdir()]) == (0o640, ["daemon.json"])
    for bad in ("[]", "{", '{"runtimes": 1}'):
        file.write_text(bad)
        with pytest.raises(ValueError):
            register(file, "crun", "/usr/bin/crun")
        assert file.read_text() == bad


def test_registering_a_runtime_keeps_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "managed.json", tmp_path / "daemon.json"
    target.write_text("{}")
    link.symlink_to(target)
    assert register(link, "crun", "/usr/bin/crun")
    assert link.is_symlink()
    assert "crun" in target.read_text()


@pytest.fixture
def systemd_engine(checkout: Checkout) -> Checkout:
    """An engine under systemd that takes runtimes from its settings if `takes` is in $TMPDIR; `pid` is its process."""
    checkout.env["PADDOCK_ENGINE_SETTINGS"] = str(checkout.base / "daemon.json")
    script = checkout.root / "deploy/register.sh"
    script.write_text('#!/bin/bash\n. "${0%/*}/lib/common.sh"\n. "$ROOT/deploy/lib/crun.sh"\nregister_crun\n')
    script.chmod(0o755)
    for name, text in {
        "crun": "",
        "sleep": "",
        "python3": f'exec {PYTHON} "$@"',
        "docker": '[ ! -e "$TMPDIR/takes" ] || ! grep -q crun "$TMPDIR/daemon.json" || printf "crun "; echo "runc "',
        "systemctl": 'echo "$1" >>"$TMPDIR/calls"; case "$*" in *MainPID*) cat "$TMPDIR/pid" ;; esac',
    }.items():
        checkout.command(name, f"#!/bin/sh\n{text}\n")
    return checkout


@pytest.mark.parametrize("former", ['{"live-restore": true}', None])
def test_settings_return_unless_the_engine_has_crun(systemd_engine: Checkout, former: str | None) -> None:
    file = systemd_engine.base / "daemon.json"
    if former:
        file.write_text(former)
    output = systemd_engine.run("deploy/register.sh")
    assert (output.returncode, file.read_text() if file.exists() else None) == (0, former), output.stderr
    assert "as it was before" in output.stderr
    assert (systemd_engine.base / "calls").read_text().count("reload") == 2
    (systemd_engine.base / "takes").touch()
    assert "crun is registered" in systemd_engine.run("deploy/register.sh").stdout
    assert "crun" in json.loads(file.read_text())["runtimes"]


def test_runtimes_of_the_command_line_are_kept(systemd_engine: Checkout) -> None:
    with subprocess.Popen(["bash", "-c", "read", "dockerd", "--add-runtime=x=/x"], stdin=subprocess.PIPE) as engine:
        (systemd_engine.base / "pid").write_text(f"{engine.pid}\n")
        result = systemd_engine.run("deploy/register.sh")
    assert result.returncode == 0
    assert "--add-runtime=crun=" in result.stderr
    assert not (systemd_engine.base / "daemon.json").exists()
    assert "reload" not in (systemd_engine.base / "calls").read_text()
