"""deploy/venv.sh: does what has to be done, once. The interpreter is a stand-in that notes what it is asked to do."""

import os
from pathlib import Path

import pytest

from tests.deploy.conftest import Checkout

# Knows `-m venv FOLDER` (which copies it there), `-m pip`, and answers every `-c` with success.
INTERPRETER = """#!/bin/bash
echo "$*" >>"$TMPDIR/calls"
case "$*" in
    "-P -m venv "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    --version) echo Python 3.12.99 ;;
    *"os.path.realpath"*) echo /usr/bin/python3.12 ;;
    "-P -c import ensurepip"*) [ ! -e "$TMPDIR/no-ensurepip" ] ;;
    *version_info*) [ ! -e "$TMPDIR/too-old" ] ;;
esac
"""

# Its package brings ensurepip.
APT = """#!/bin/sh
echo "apt-get $*" >>"$TMPDIR/apt"
case "$*" in *install*) rm "$TMPDIR/no-ensurepip" ;; esac
"""


@pytest.fixture
def venv(checkout: Checkout) -> Checkout:
    checkout.command("python3", INTERPRETER)
    return checkout


def calls(checkout: Checkout) -> list[str]:
    path = checkout.base / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line for line in lines if line.startswith("-P -m ")]


def kinds(checkout: Checkout) -> list[str]:
    def kind(line: str) -> str:
        if line.startswith("-P -m venv"):
            return "venv"
        return "project" if "--editable" in line else line.rpartition("/")[2]

    return [kind(line) for line in calls(checkout)]


def test_makes_it_from_the_lock_with_hashes_then_does_nothing(venv: Checkout) -> None:
    first = venv.run("deploy/venv.sh")
    assert first.returncode == 0, first.stderr
    name, packages, project = calls(venv)
    assert name == f"-P -m venv {venv.base}/venv"
    assert packages.endswith(f"--require-hashes -r {venv.root}/requirements.lock")
    assert "--no-deps --no-build-isolation --editable" in project
    second = venv.run("deploy/venv.sh")
    assert (second.stdout, second.stderr, calls(venv)) == ("", "", [])


def test_the_tests_tools_are_added_and_serve_both(venv: Checkout) -> None:
    venv.run("deploy/venv.sh")
    calls(venv)
    venv.run("deploy/venv.sh", "--dev")
    assert kinds(venv) == ["requirements-dev.lock", "project"]
    venv.run("deploy/venv.sh")
    venv.run("deploy/venv.sh", "--dev")
    assert kinds(venv) == []


def test_the_browsers_driver_serves_all(venv: Checkout) -> None:
    venv.run("deploy/venv.sh", "--panel")
    assert kinds(venv) == ["venv", "requirements-panel.lock", "project"]
    venv.run("deploy/venv.sh", "--dev")
    venv.run("deploy/venv.sh")
    assert kinds(venv) == []


def test_a_new_lock_makes_it_anew_and_new_packaging_only_reinstalls_the_project(venv: Checkout) -> None:
    venv.run("deploy/venv.sh")
    calls(venv)
    with (venv.root / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    venv.run("deploy/venv.sh")
    assert kinds(venv) == ["project"]
    with (venv.root / "requirements.lock").open("a") as file:
        file.write("\n# changed\n")
    venv.run("deploy/venv.sh")
    assert kinds(venv) == ["venv", "requirements.lock", "project"]


def test_a_run_that_was_broken_off_is_taken_up(venv: Checkout) -> None:
    folder = venv.base / "venv"
    folder.mkdir()
    (folder / ".paddock-made").touch()
    assert venv.run("deploy/venv.sh").returncode == 0
    assert kinds(venv) == ["venv", "requirements.lock", "project"]


def test_a_folder_of_somebody_elses_is_left_alone(venv: Checkout) -> None:
    base = venv.base / "venv" / "precious"
    base.parent.mkdir()
    base.touch()
    result = venv.run("deploy/venv.sh")
    assert result.returncode == 1
    assert "was not created by this script: it is left alone" in result.stderr
    assert base.exists()


def test_refuses_an_old_or_missing_interpreter(venv: Checkout) -> None:
    (venv.base / "too-old").touch()
    assert "no Python 3.11 or newer was found" in venv.run("deploy/venv.sh").stderr
    output = venv.run("deploy/venv.sh", env={"PYTHON": "python3"})
    assert "Paddock needs Python 3.11 or newer" in output.stderr
    assert "there is no such command" in venv.run("deploy/venv.sh", env={"PYTHON": "python9"}).stderr


@pytest.mark.parametrize("root", [False, True] if os.geteuid() == 0 else [False])
def test_installs_the_package_that_makes_venvs_where_it_may(venv: Checkout, root: bool) -> None:
    (venv.base / "no-ensurepip").touch()
    venv.command("apt-get", APT)
    result = venv.run("deploy/venv.sh", prefix=() if root else venv.as_nobody())
    if root:
        assert result.returncode == 0, result.stderr
        assert "--no-install-recommends python3-venv" in (venv.base / "apt").read_text()
    else:
        assert result.returncode == 1
        assert "python3-venv is missing, and installing it needs root" in result.stderr


def test_stamps_hold_hashes_not_times(venv: Checkout) -> None:
    venv.run("deploy/venv.sh")
    calls(venv)
    for file in ("requirements.lock", "pyproject.toml"):
        os.utime(Path(venv.root / file))
    venv.run("deploy/venv.sh")
    assert kinds(venv) == []
