"""Read-only kinds on a real engine agree with the engine."""

import json
from collections.abc import Iterator

import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.e2e.test_sandbox import container, ready, sandbox_document

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


def test_host_instances_events_and_the_profile_are_what_the_engine_says(daemon: RunningDaemon) -> None:
    name = daemon.works_at.host
    daemon.paddock("wait", "--for=condition=EngineReachable", "--timeout=30s", f"host/{name}")
    host = json.loads(daemon.paddock("get", "host", name, "-o", "json").stdout)["status"]
    document = json.loads(docker("info", "--format", "{{json .}}"))
    assert host["engine"]["version"] == document["ServerVersion"]
    assert host["engine"]["storageDriver"] == document["Driver"]
    assert host["engine"]["securityOptions"] == document["SecurityOptions"]
    assert host["capacity"]["cpu"] == str(document["NCPU"])
    daemon.apply(sandbox_document("seen"))
    ready(daemon, "seen")
    engines = container(daemon, "seen")
    works_at = daemon.works_at  # others know the record of an instance, and not its container
    works_at.paddock("wait", "--for=jsonpath={.status.state}=Running", f"instance{engines['Name']}")
    observed = json.loads(works_at.paddock("get", f"inst{engines['Name']}", "-o", "json").stdout)
    assert observed["status"]["containerID"] == engines["Id"]
    assert observed["status"]["limits"] == {"cpu": "100m", "memory": "64Mi", "pids": 32}
    reasons = "jsonpath={.items[*].reason}"
    output = daemon.paddock("get", "ev", "--field-selector", "involvedObject.name=seen", "-o", reasons).stdout
    assert output.split()[-2:] == ["Created", "Started"]
    profile = json.loads(daemon.paddock("get", "sp", "full-isolation", "-o", "json").stdout)
    spec = profile["status"]["effective"]
    host_config = engines["HostConfig"]
    assert engines["Config"]["User"] == daemon.get("seen")["status"]["user"]
    assert host_config["ReadonlyRootfs"] is spec["readOnlyRootFilesystem"]
    assert host_config["NetworkMode"] == spec["network"]["mode"]
    assert list(host_config["CapAdd"] or []) == spec["capabilities"]
    assert host_config["SecurityOpt"][:-1] == spec["securityOptions"]
    assert host_config["SecurityOpt"][-1].startswith("seccomp={")
    assert spec["seccompProfile"] == "minimal"
    mounted = {mount["Destination"] for mount in engines["Mounts"]}
    assert mounted >= {folder["mountPath"] for folder in spec["tmpfs"]}


def test_a_cordoned_host_creates_nothing_until_uncordoned(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("before"))
    ready(daemon, "before")
    daemon.paddock("host", "cordon", daemon.works_at.host)
    daemon.apply(sandbox_document("after"))
    wait_for("it waits", lambda: daemon.condition("after", "Scheduled").get("reason") == "HostCordoned")
    assert daemon.condition("after", "Scheduled")["status"] == "False"
    docker("kill", container(daemon, "before")["Name"].lstrip("/"))
    daemon.paddock("wait", "--for=jsonpath={.status.restartCount}=1", "--timeout=60s", "sandbox/before")
    ready(daemon, "before")
    assert "instanceRef" not in daemon.get("after")["status"]
    daemon.paddock("host", "uncordon", daemon.works_at.host)
    ready(daemon, "after")
