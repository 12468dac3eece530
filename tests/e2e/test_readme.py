"""The README's tour, pasted as it stands into a shell, against a daemon of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon import ROOT, running

pytestmark = pytest.mark.docker


def tour() -> str:
    found = re.search(r"<!-- tour -->\n```sh\n(.*?)```\n<!-- /tour -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_tour_works_when_pasted(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.paddock("apply", "-f", "specs/quickstart.yaml")
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/quickstart")
        # The tour speaks of the default metrics port and of the one quickstart on the host; here there may be more.
        script = tour().replace("http://127.0.0.1:9464/metrics", daemon.metrics_url())
        script = script.replace(
            "--filter label=paddock.name=quickstart",
            f"--filter label=paddock.name=quickstart --filter label=paddock.instance={daemon.instance_id()}",
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = script.replace('export PATH="$PWD/.venv/bin:$PATH"', f'export PATH="{path}"')
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            env=daemon.environment,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0, told
        for words in (
            "hello from the box",
            "Killed: exit code 137",
            "spec.template.env changed",
            "384Mi",
            "did you mean `memory`",
            "paddock_container_memory_working_set_bytes",
        ):
            assert words in told
        assert "No resources found" in done.stderr
