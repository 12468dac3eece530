"""deploy/compose.yaml fits what is beside it, opens nothing to the network, and its Paddock keeps a sandbox."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.settings import Settings
from controller.store.sql_store import SqlStore
from tests.daemon import docker, remove_containers, wait_for
from tests.deploy.conftest import CHECKOUT
from tests.lab.postgres import postgres

FILE = CHECKOUT / "deploy/compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# What the Compose specification knows of a service, as far as it is used here.
_WORDS = """image pull_policy container_name restart depends_on network_mode pid cgroup cap_drop cap_add security_opt
read_only tmpfs environment volumes healthcheck stop_grace_period command"""
KNOWN = frozenset(_WORDS.split())
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: composed}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi, cpu: 100m, pids: 16}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def test_it_says_nothing_that_compose_does_not_know() -> None:
    assert set(COMPOSE) == {"name", "services", "volumes"}
    for name, service in SERVICES.items():
        assert KNOWN.issuperset(service), name
        assert re.fullmatch(r"[a-z/]+:v?[0-9][0-9.]*", service["image"]), f"{name}: a version, not whatever is newest"
        assert service["restart"] == "unless-stopped"
        for entry in service.get("depends_on", ()):
            assert entry in SERVICES
    for name in SERVICES["paddock"]["depends_on"]:
        assert "healthcheck" in SERVICES[name]


def binds(service: str) -> dict[str, str]:
    """Return the mount point of each volume, by its source."""
    return {volume.split(":")[0]: volume.split(":")[1] for volume in SERVICES[service]["volumes"]}


def test_what_it_mounts_is_there() -> None:
    sources = {source for name in SERVICES for source in binds(name)}
    assert {source for source in sources if not source.startswith((".", "/"))} == set(COMPOSE["volumes"])
    for entry in sources:
        assert not entry.startswith(".") or (FILE.parent / entry).is_dir(), entry


def test_grafana_finds_prometheus_and_its_dashboards() -> None:
    source = yaml.safe_load((FILE.parent / "grafana/provisioning/datasources/prometheus.yml").read_text())
    provider = yaml.safe_load((FILE.parent / "grafana/provisioning/dashboards/paddock.yml").read_text())
    listen = next(entry for entry in SERVICES["prometheus"]["command"] if "listen-address" in entry).partition("=")[2]
    assert source["datasources"][0]["url"] == f"http://{listen}"
    assert binds("grafana")["./grafana/dashboards"] == provider["providers"][0]["options"]["path"]
    assert binds("grafana")["./grafana/provisioning"] == "/etc/grafana/provisioning"
    assert f"{binds('prometheus')['./prometheus']}/prometheus.yml" in SERVICES["prometheus"]["command"][0]


def test_nothing_listens_beyond_this_host() -> None:
    assert SERVICES["postgres"]["network_mode"] == "none"
    assert "--web.listen-address=127.0.0.1:9090" in SERVICES["prometheus"]["command"]
    assert SERVICES["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert Settings().metrics_host == "127.0.0.1"
    for service in SERVICES.values():
        assert "ports" not in service
        assert "privileged" not in service


def test_paddock_may_do_what_the_service_may_and_no_more() -> None:
    """But for what some engines have not got themselves: they start no container that asks for it."""
    unit = (CHECKOUT / "deploy/paddock.service").read_text()
    granted = " ".join(re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)).split()
    granted.remove("CAP_SYS_RESOURCE")
    assert sorted(f"CAP_{entry}" for entry in SERVICES["paddock"]["cap_add"]) == sorted(granted)
    assert SERVICES["paddock"]["cap_drop"] == ["ALL"]
    names = {name.removeprefix("PADDOCK_").lower() for name in SERVICES["paddock"]["environment"]}
    assert names <= set(Settings.model_fields)


def run_line(service: dict[str, Any], volumes: dict[str, str], **environment: str) -> list[str]:
    """`docker run` as Compose would start that service, with these in the place of its volumes."""
    arguments = ["--detach", f"--network={service['network_mode']}", f"--pid={service['pid']}"]
    arguments += [f"--cgroupns={service['cgroup']}", "--read-only"]
    arguments += [f"--cap-drop={entry}" for entry in service["cap_drop"]] + [
        f"--cap-add={entry}" for entry in service["cap_add"]
    ]
    arguments += [f"--security-opt={entry}" for entry in service["security_opt"]]
    arguments += [f"--tmpfs={entry}" for entry in service["tmpfs"]]
    for volume in service["volumes"]:
        source, _, remaining = volume.partition(":")
        arguments.append(f"--volume={volumes.get(source, source)}:{remaining}")
    for name, value in {**service["environment"], **environment}.items():
        arguments += ["--env", f"{name}={value}"]
    return [*arguments, service["image"]]


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[str]:
    """Its Paddock as a container over a PostgreSQL of this host; the container's id."""
    subprocess.run([CHECKOUT / "images/build.sh", "daemon"], check=True, timeout=900)
    (tmp_path / "run").mkdir()
    (tmp_path / "state").mkdir()
    with postgres() as server:
        folder = server.url.rpartition("=")[2]
        Path(folder).chmod(0o755)
        volumes = {"/run/paddock": f"{tmp_path}/run", "state": f"{tmp_path}/state", "database-socket": folder}
        url = SERVICES["paddock"]["environment"]["PADDOCK_DATABASE_URL"].replace("paddock@/paddock", "postgres@/")
        line = run_line(SERVICES["paddock"], volumes, PADDOCK_DATABASE_URL=url, PADDOCK_METRICS_PORT="0")
        output = docker("run", *line)
        try:
            yield output
        finally:
            print(docker("logs", output, check=False))
            docker("rm", "--force", "--volumes", output)
            store = SqlStore(server.url)
            store.open()
            remove_containers(store.instance_id)
            store.close()


@pytest.mark.docker
@pytest.mark.postgres
@pytest.mark.compose
@pytest.mark.timeout(900)
def test_its_paddock_keeps_a_sandbox(composed: str) -> None:
    check = SERVICES["paddock"]["healthcheck"]["test"][1:]
    wait_for("it is healthy", lambda: docker("exec", composed, *check, check=False), 90)
    applied = ["docker", "exec", "-i", composed, "paddock", "apply", "-f", "-"]
    subprocess.run(applied, input=SANDBOX, text=True, check=True, timeout=60)
    docker("exec", composed, "paddock", "wait", "--for=condition=Ready", "--timeout=60s", "sandbox/composed")
    assert docker("exec", composed, "paddock", "exec", "composed", "--", "echo", "hello") == "hello"
    document = json.loads(docker("exec", composed, "paddock", "get", "sandbox", "composed", "-o", "json"))
    conditions = {condition["type"]: condition for condition in document["status"]["conditions"]}
    assert conditions["Secured"]["status"] == "True", conditions["Secured"]
    docker("kill", docker("ps", "-q", "--filter", f"name={document['status']['instanceRef']['name']}"))
    wait_for(
        "it is repaired",
        lambda: '"restartCount": 1' in docker("exec", composed, "paddock", "get", "sandbox", "composed", "-o", "json"),
    )
    docker("exec", composed, "paddock", "delete", "sandbox", "composed", "--timeout=60s")
