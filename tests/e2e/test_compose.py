"""An image is built, and two services of a Compose file run from it on the real engine, until the project goes."""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import ROOT, RunningDaemon, remove_image, running, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
DOCKERFILE = """\
FROM paddock/test-tiny:1
COPY greeting /greeting
RUN cat /proc/net/dev
ENTRYPOINT ["env", "STARTED=by-the-image"]
"""
FILE = """\
x-paddock: {securityLevel: full-isolation}
x-base: &base
  image: ${IMAGE}
  environment: {DEBUG: true}
services:
  writer:
    <<: *base
    entrypoint: []
    command: ["sh", "-c", "cat /greeting > /shared/made && exec sleep 1000"]
    volumes: [shared:/shared]
    healthcheck: {test: test -s /shared/made, interval: 1s}
    restart: always
    mem_limit: 32m
    pids_limit: 16
  reader:
    <<: *base
    container_name: reads
    command: sleep 1000
    shm_size: 4m
    volumes: [shared:/shared:ro]
    depends_on: [writer]
    cap_drop: [ALL]
    read_only: true
volumes: {shared: {driver_opts: {size: 8m}}}
"""


FRONT = """\
name: front
x-paddock: {securityLevel: full-isolation}
services:
  web:
    image: paddock/test-tiny:1
    command: sh -c 'echo up; exec sleep 1000'
    ports: ["8080"]
    restart: always
  once: {image: "paddock/test-tiny:1", command: cat /src/text, volumes: ["./src:/src:ro"]}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    roots = json.dumps([{"path": str(tmp_path_factory.getbasetemp()), "namespaces": ["default"]}])
    folder = tmp_path_factory.mktemp("state")
    with running(folder, PADDOCK_IMAGE_BUILD="run", PADDOCK_HOST_ROOTS=roots) as daemon:
        yield daemon


def names(daemon: RunningDaemon) -> set[str]:
    items = json.loads(daemon.paddock("get", "sandboxes", "-o", "json").stdout)["items"]
    return {each["metadata"]["name"] for each in items}


def test_a_built_image_runs_as_two_services(daemon: RunningDaemon, tmp_path: Path) -> None:
    tag = f"test/{uuid.uuid4().hex[:12]}:1"
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in (("Dockerfile", DOCKERFILE), ("greeting", "hello\n"), ("compose.yaml", FILE)):
        (folder / name).write_text(text)
    words = ("--compose", str(folder / "compose.yaml"), "--var", f"IMAGE={tag}")
    try:
        built = daemon.works_at.paddock("image", "build", "-t", tag, str(folder)).stderr
        assert "lo:" in built
        assert "eth" not in built, "a build's commands have no network"
        assert tag in daemon.paddock("image", "list").stdout
        assert daemon.paddock("apply", *words).stdout.count("created") == 2
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/shop-writer", "sandbox/reads")
        assert daemon.paddock("exec", "reads", "--", "cat", "/shared/made").stdout == "hello\n"
        for name, variables in (("reads", ["DEBUG=true", "STARTED=by-the-image"]), ("shop-writer", ["DEBUG=true"])):
            line = "tr '\\0' '\\n' < /proc/$(pidof sleep)/environ | grep -e DEBUG -e STARTED | sort"
            assert daemon.paddock("exec", name, "--", "sh", "-c", line).stdout.splitlines() == variables
        assert daemon.paddock("exec", "reads", "--", "df", "-k", "/dev/shm").stdout.split()[-5] == "4096"
        limits = daemon.get("shop-writer")["status"]["resources"]["limits"]
        assert (limits["memory"], limits["pids"]) == ("32Mi", 16)
        daemon.apply(
            "{apiVersion: paddock/v1alpha1, kind: Sandbox, metadata: {name: other},"
            " spec: {template: {image: 'paddock/test-tiny:1', command: [sleep, '1000']}}}"
        )
        daemon.paddock("delete", *words, "--timeout=90s")
        assert names(daemon) == {"other"}
        assert "shop-shared" in daemon.paddock("get", "volumes").stdout
        daemon.paddock("delete", "volume", "shop-shared")
        wait_for("the other one is deleted", lambda: daemon.paddock("delete", "sandbox", "other").returncode == 0)
    finally:
        daemon.paddock("delete", *words, "--ignore-not-found", check=False)
        remove_image(tag)


def test_up_in_front_follows_logs_and_stops(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(FRONT)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/text").write_text("done\n")
    words = ("compose", "-f", str(tmp_path / "compose.yaml"))
    command = [sys.executable, "-m", "controller", *words, "up"]
    with subprocess.Popen(
        command, cwd=ROOT, env=daemon.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as up:
        lines: list[str] = []
        assert up.stdout is not None

        def read_until(*expected: str) -> None:
            while set(expected) - {*lines}:
                line = up.stdout.readline()
                assert line, up.communicate()
                lines.append(line)

        read_until("[front-web] up\n", "[front-once] done\n")
        assert any(line.endswith(" -> front-web:8080\n") for line in lines)
        daemon.paddock("exec", "front-web", "--", "sh", "-c", "kill -9 -1", check=False)
        lines.clear()
        read_until("[front-web] up\n")  # the log goes on with its next run
        up.send_signal(signal.SIGINT)
        output, problems = up.communicate(timeout=90)
        assert up.returncode == 0, output + problems
    assert "stopping the services" in problems
    phases = [daemon.get(f"front-{name}")["status"]["phase"] for name in ("web", "once")]
    assert phases == ["Suspended", "Completed"]
    refused = daemon.paddock("restart", "front-once", check=False)
    assert "sandbox front-once: it has finished" in refused.stderr
    ended = daemon.paddock(*words, "up", "once")
    assert ended.stdout.count("[front-once] done") == 1, "it runs once more"
    assert "all services have ended" in ended.stderr
    daemon.paddock(*words, "down")
