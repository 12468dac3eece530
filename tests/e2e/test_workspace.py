"""A warm claim with a host folder: mounted before Ready, attested, unmounted with the sandbox."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import docker, running, wait_for

pytestmark = pytest.mark.docker
POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t}
spec: {image: paddock/python:1, command: ["sleep", "100000"], workspace: {}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: t}, warmReplicas: 1, maxReplicas: 3}
"""
CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: mine}
spec: {templateRef: {name: t}, workspace: {hostPath: PATH, readOnly: true}}
"""


@pytest.fixture
def project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/srv") as temporary_directory:
        folder = Path(temporary_directory) / "app"
        folder.mkdir()
        (folder / "own").write_text("own")
        for path in (folder, folder / "own"):
            os.chown(path, 12345, 12345)
        yield folder


@pytest.mark.timeout(600)
def test_a_warm_claim_mounts_its_folder(tmp_path: Path, project: Path) -> None:
    with running(tmp_path, PADDOCK_HOST_ROOTS=f'[{{"path": "{project.parent}"}}]') as daemon:
        daemon.apply(POOL)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandboxpool/warm")
        output = daemon.paddock("apply", "-f", "-", stdin=CLAIM.replace("PATH", "/etc"), check=False)
        assert "`/etc` is a system folder" in output.stderr
        daemon.apply(CLAIM.replace("PATH", str(project)))
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/mine")
        assert daemon.get("mine")["status"]["launchType"] == "Warm"
        assert daemon.paddock("exec", "mine", "--", "cat", "/workspace/own").stdout == "own"
        assert daemon.paddock("attest", "mine").returncode == 0
        wait_for("it is attested", lambda: daemon.condition("mine", "Secured").get("status") == "True")
        # A daemon that comes next knows what is bound, and leaves it as it is.
        container = daemon.get("mine")["status"]["instanceRef"]["name"]
        docker("kill", container)
        wait_for("it is started anew", lambda: daemon.get("mine")["status"]["restartCount"] == 1)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/mine")
        assert daemon.paddock("exec", "mine", "--", "cat", "/workspace/own").stdout == "own"
        daemon.paddock("delete", "sandbox", "mine", "--timeout=60s")
        assert (project / "own").read_text() == "own"
        assert str(project) not in Path("/proc/self/mountinfo").read_text()
