"""deploy/compose.yaml as Docker Compose itself reads it (Debian trixie's, out of its package): `make test-compose`."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.conftest import CHECKOUT
from tests.deploy.test_compose import FILE, SERVICES
from tests.lab.newer import RELEASES, download

pytestmark = [pytest.mark.compose, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def compose() -> Path:
    """The program, fetched once into .cache/."""
    folder = CHECKOUT / ".cache/compose"
    program = folder / "root/usr/libexec/docker/cli-plugins/docker-compose"
    if not program.exists():
        (package,) = (
            path
            for path in download(folder, RELEASES["26"], "docker-compose")
            if path.name.startswith("docker-compose_")
        )
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    return program


def test_compose_reads_the_file_and_knows_every_word(compose: Path) -> None:
    done = subprocess.run(
        [compose, "-f", FILE, "config", "--format", "json"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    read = json.loads(done.stdout)
    assert {name: service["image"] for name, service in read["services"].items()} == {
        name: service["image"] for name, service in SERVICES.items()
    }
    paddock = read["services"]["paddock"]
    assert (paddock["pid"], paddock["cgroup"], paddock["pull_policy"]) == ("host", "host", "never")
    assert paddock["depends_on"]["postgres"]["condition"] == "service_healthy"
