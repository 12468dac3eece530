"""Read-only kinds on a real engine agree with the engine."""

import json
from pathlib import Path

import pytest

from tests.daemon import docker, running, wait_for
from tests.e2e.test_sandbox import box, container, ready

pytestmark = pytest.mark.docker


def test_host_instances_events_and_the_profile_are_what_the_engine_says(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        name = daemon.works_at.host
        daemon.paddock("wait", "--for=condition=EngineReachable", "--timeout=30s", f"host/{name}")
        host = json.loads(daemon.paddock("get", "host", name, "-o", "json").stdout)["status"]
        said = json.loads(docker("info", "--format", "{{json .}}"))
        assert host["engine"]["version"] == said["ServerVersion"]
        assert host["engine"]["storageDriver"] == said["Driver"]
        assert host["engine"]["securityOptions"] == said["SecurityOptions"]
        assert host["capacity"]["cpu"] == str(said["NCPU"])
        daemon.apply(box("seen"))
        ready(daemon, "seen")
        engines = container(daemon, "seen")
        there = daemon.works_at  # others know the record of an instance, and not its container
        there.paddock("wait", "--for=jsonpath={.status.state}=Running", f"instance{engines['Name']}")
        seen = json.loads(there.paddock("get", f"inst{engines['Name']}", "-o", "json").stdout)
        assert seen["status"]["containerID"] == engines["Id"]
        assert seen["status"]["limits"] == {"cpu": "100m", "memory": "64Mi", "pids": 32}
        reasons = "jsonpath={.items[*].reason}"
        shown = daemon.paddock("get", "ev", "--field-selector", "involvedObject.name=seen", "-o", reasons).stdout
        assert shown.split()[-2:] == ["Created", "Started"]
        profile = json.loads(daemon.paddock("get", "sp", "full-isolation", "-o", "json").stdout)
        spec = profile["status"]["effective"]
        made = engines["HostConfig"]
        assert engines["Config"]["User"] == daemon.get("seen")["status"]["user"]
        assert made["ReadonlyRootfs"] is spec["readOnlyRootFilesystem"]
        assert made["NetworkMode"] == spec["network"]["mode"]
        assert list(made["CapAdd"] or []) == spec["capabilities"]
        assert made["SecurityOpt"][:-1] == spec["securityOptions"]
        assert made["SecurityOpt"][-1].startswith("seccomp={")
        assert spec["seccompProfile"] == "minimal"
        mounted = {mount["Destination"] for mount in engines["Mounts"]}
        assert mounted >= {folder["mountPath"] for folder in spec["tmpfs"]}


def test_a_cordoned_host_creates_nothing_until_uncordoned(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply(box("before"))
        ready(daemon, "before")
        daemon.paddock("host", "cordon", daemon.works_at.host)
        daemon.apply(box("after"))
        wait_for("it waits", lambda: daemon.condition("after", "Scheduled").get("reason") == "HostCordoned")
        assert daemon.condition("after", "Scheduled")["status"] == "False"
        docker("kill", container(daemon, "before")["Name"].lstrip("/"))
        daemon.paddock("wait", "--for=jsonpath={.status.restartCount}=1", "--timeout=60s", "sandbox/before")
        ready(daemon, "before")
        assert "instanceRef" not in daemon.get("after")["status"]
        daemon.paddock("host", "uncordon", daemon.works_at.host)
        ready(daemon, "after")
