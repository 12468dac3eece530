"""`paddock doctor` without a daemon and without an engine."""

import json
import subprocess
from pathlib import Path

import pytest

from controller.kinds.observed.doctor import Finding, Severity
from tests.cli.conftest import Run
from tests.forks import run_paddock
from tests.helpers_api import ApiStack

ROOT = Path(__file__).resolve().parents[2]


def doctor(folder: Path, engine: str, *words: str) -> subprocess.CompletedProcess[str]:
    config = folder / "paddock.toml"
    config.write_text(f'state_dir = "{folder}/state"\nsocket = "{folder}/s.sock"\ndocker_host = "{engine}"\n')
    return run("--config", str(config), *words)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **environment}
    return run_paddock(["doctor", *words], environment=environment, cwd=ROOT, stdin=None, seconds=110)


def test_without_an_engine_exit_code_is_1(tmp_path: Path) -> None:
    done = doctor(tmp_path, f"unix://{tmp_path}/none.sock")
    assert done.returncode == 1, done.stderr
    assert "engine (problem): no Docker Engine answers" in done.stdout
    assert "  to do: " in done.stdout
    assert "1 problem(s)" in done.stderr
    assert not (tmp_path / "state").exists()
    document = {entry["check"]: entry for entry in json.loads(doctor(tmp_path, "unix:///none", "-o", "json").stdout)}
    assert document["engine"]["grade"] == "problem"
    assert document["daemon"]["grade"] == "warning"
    assert document["daemon"]["action"]
    assert set(document["store"]) == {"check", "grade", "found", "meaning", "action"}


def test_invalid_settings_are_a_usage_error(tmp_path: Path) -> None:
    done = doctor(tmp_path, "x", "--config", str(tmp_path / "none.toml"))
    assert done.returncode == 2
    assert "none.toml" in done.stderr


def test_a_named_daemon_checks_its_own_host(served: ApiStack, paddock: Run) -> None:
    served.doctor = [Finding("engine", Severity.PROBLEM, "no answer", "no sandbox starts", "start it")]
    done = paddock("doctor", "-o", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == [
        {
            "check": "engine",
            "grade": "problem",
            "found": "no answer",
            "meaning": "no sandbox starts",
            "action": "start it",
        }
    ]
    assert "engine (problem): no answer\n  means: no sandbox starts" in paddock("doctor").stdout
    both = paddock("doctor", "--config", "/etc/paddock/paddock.toml")
    assert (both.exit_code, "has its own settings" in both.stderr) == (2, True)


def test_a_silent_socket_does_not_keep_it_from_its_work(tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/s.sock"
    settings = {"PADDOCK_STATE_DIR": f"{tmp_path}/state", "PADDOCK_DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = run("-o", "json", PADDOCK_SERVER=socket, PADDOCK_SOCKET=f"{tmp_path}/s.sock", **settings)
    assert "This host is checked without it." in done.stderr
    assert {finding["check"] for finding in json.loads(done.stdout)} >= {"engine", "daemon"}


@pytest.mark.docker
def test_on_the_real_engine(tmp_path: Path) -> None:
    done = doctor(tmp_path, "unix:///var/run/docker.sock", "-o", "json")
    document = {entry["check"]: entry for entry in json.loads(done.stdout)}
    assert document["engine"]["grade"] == "ok"
    assert document["seccomp"]["grade"] == "ok"
    assert document["store"]["grade"] == "ok"
    assert done.returncode == int(any(entry["grade"] == "problem" for entry in document.values()))
