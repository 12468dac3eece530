"""The accepted public projects on a real engine: each comes up in its order, is reached at its ports, and goes.

The images are stand-ins of Debian's packages. `paddock compose up` waits for health checks; an answer of `app` lists
the services that it reached by name.
"""

import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.images import BASE, all_images, build, volumes_of
from tests.compose.projects import FOLDER, PROJECTS, REFUSED
from tests.daemon import ROOT, RunningDaemon, wait_for
from tests.lab.internet import impossible, lab

pytestmark = [
    pytest.mark.docker,
    pytest.mark.compose,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]
ACCEPTED = [project for project in PROJECTS if project not in REFUSED]
NO_HTTP = (22, 6379, 9229)
EXAMPLE = ROOT / "controller/client/examples/compose"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    os.environ["DOCKER_BUILDKIT"] = "0"
    with lab("paddock/egress:1", "paddock/python:1", BASE) as place:
        for image in all_images():
            build(place.engine.base_url, image)
        running = place.daemon(tmp_path_factory.mktemp("state"), PADDOCK_IMAGE_BUILD="run")
        yield running
        running.stop()


def answer(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as response:
            return str(response.read(10_000), "utf-8", "replace")
    except (OSError, urllib.error.URLError):
        return ""


@pytest.mark.parametrize("project", ACCEPTED)
def test_a_project_comes_up_is_reached_and_goes(daemon: RunningDaemon, project: str, tmp_path: Path) -> None:
    folder = tmp_path / project
    shutil.copytree(FOLDER / project, folder)
    names = [name for name in os.listdir(folder) if name.endswith(("compose.yaml", "compose.yml"))]
    overrides = [name for name in os.listdir(folder) if "override" in name]
    files = [word for name in (*names, *overrides) for word in ("-f", str(folder / name))]
    try:
        daemon.paddock("compose", *files, "up", "-d", "--timeout", "180s", seconds=300)
        services = json.loads(daemon.paddock("compose", *files, "ps", "--format", "json").stdout)
        assert {service["status"] for service in services} <= {"Running", "Completed"}
        pairs = [pair.split("->") for service in services for pair in service["ports"].split(", ") if "->" in pair]
        for local, remote in pairs:
            if int(remote) not in NO_HTTP:
                wait_for(f"{project} answers at {local}", lambda port=local: answer(int(port.rpartition(":")[2])))
        check_data_stays(daemon, files)
    finally:
        daemon.paddock("compose", *files, "down", "-v", check=False)
    assert "compose" not in daemon.paddock("get", "sandboxes", "-o", "name").stdout
    assert daemon.paddock("get", "volumes", "-o", "name").stdout == ""


def check_data_stays(daemon: RunningDaemon, files: list[str]) -> None:
    """Write a file where an image declares VOLUME, and see that it stays when its container is stopped, or replaced."""
    sandboxes = json.loads(daemon.paddock("get", "sandboxes", "-o", "json").stdout)["items"]
    for sandbox in sandboxes:
        service = sandbox["metadata"]["labels"]["paddock/compose-service"]
        template, folder = sandbox["spec"]["template"], next(iter(volumes_of(sandbox["spec"]["template"]["image"])), "")
        if any(mount["name"].endswith(f"-{folder.replace('/', '-')}") for mount in template.get("volumes", ())):
            break
    else:
        return

    def as_owner(line: str) -> str:  # root may not write everywhere: it lacks DAC_OVERRIDE at this level
        shell = f'exec setpriv --reuid="$(stat -c %u {folder})" sh -c "{line}"'
        return daemon.paddock("compose", *files, "exec", "-T", service, "sh", "-c", shell).stdout

    def marker() -> str:
        return as_owner(f"cat {folder}/marker")

    as_owner(f"echo stays > {folder}/marker")
    daemon.paddock("compose", *files, "restart", service, seconds=180)
    assert marker() == "stays\n"
    daemon.paddock("delete", "sandbox", sandbox["metadata"]["name"])
    daemon.paddock("compose", *files, "up", "-d", "--timeout", "180s", seconds=300)
    assert marker() == "stays\n"


def test_the_example_counts_its_visitors(daemon: RunningDaemon, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    shutil.copytree(EXAMPLE, folder)
    file = folder / "compose.yaml"
    file.write_text(file.read_text().replace('"8080:8080"', '"8080"'))  # any port: another one may be in use here
    try:
        lines = daemon.paddock("up", "-f", str(file), "-d").stdout
        port = re.search(r"127\.0\.0\.1:(\d+) -> app-web:8080", lines)
        assert port is not None, lines
        assert [answer(int(port[1])) for _ in range(2)] == ["Visitors: 1\n", "Visitors: 2\n"]
    finally:
        daemon.paddock("down", "-f", str(file), "-v", check=False)
