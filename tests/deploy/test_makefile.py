"""`make` explains itself, and every script at least parses."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.conftest import CHECKOUT

SCRIPTS = sorted([*CHECKOUT.glob("deploy/**/*.sh"), *CHECKOUT.glob("images/*.sh"), CHECKOUT / ".ci/run"])


def test_plain_make_lists_every_target() -> None:
    makefile = (CHECKOUT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    listed = subprocess.run(["make", "-C", str(CHECKOUT)], capture_output=True, text=True, check=True).stdout
    for target in targets[1].split():
        assert re.search(rf"^  make {target} +\S", listed, re.MULTILINE), target
    for target in ("up", "down", "clean", "test", "check", "bench", "drills", "soak", "lock", "images", "fmt"):
        assert target in targets[1].split()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_scripts_parse_and_can_be_run(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    if script.parent.name != "lib":
        assert script.stat().st_mode & 0o111, "not executable"
