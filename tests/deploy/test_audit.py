"""`make audit`: what could not be looked at is never taken for good."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.conftest import CHECKOUT, World

WELL = {"name": "anyio", "version": "4.0", "vulns": []}
WEAK = {"name": "h11", "version": "0.1", "vulns": [{"id": "CVE-1", "fix_versions": ["0.2"]}]}
UNSEEN = {"name": "click", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([WELL], 0, "1 packages looked up, 0 known, 0 not found"),
        ([WELL, WEAK], 1, "h11 0.1: CVE-1; mended in: 0.2"),
        ([WEAK, UNSEEN], 1, "make lock ARGS=--upgrade"),
        ([WELL, UNSEEN], 3, "1 not found"),
        ([], 3, "0 packages looked up"),
        (None, 3, ""),
    ],
)
def test_what_was_found(tmp_path: Path, packages: Any, code: int, words: str) -> None:
    file = tmp_path / "found.json"
    if packages is not None:
        file.write_text(json.dumps({"dependencies": packages}))
    command = [sys.executable, str(CHECKOUT / "deploy/lib/audited.py"), "requirements.lock", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, words in done.stdout) == (code, True), done.stdout + done.stderr


def test_nothing_reached_is_said_and_is_no_success(world: World) -> None:
    world.command("apt-get", "#!/bin/sh\nexit 0\n")
    tool = world.root / ".cache/audit-venv/bin"
    tool.mkdir(parents=True)
    for name, text in (("pip-audit", "echo no network >&2; exit 1"), ("python", f'exec {sys.executable} "$@"')):
        (tool / name).write_text(f"#!/bin/sh\n{text}\n")
        (tool / name).chmod(0o755)
    done = world.run("deploy/audit.sh")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "requirements.lock: the source of advisories was not reached" in done.stderr
    assert "no network" in done.stderr
    assert "paddock/base:1 is not on this engine" in done.stderr
    assert "some checks were skipped" in done.stdout
