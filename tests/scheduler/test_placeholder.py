"""The placeholders' image: the same on every host, without a build."""

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from controller.scheduler.swarm.placeholder import NAME, architectures, archive
from tests.daemon import docker, wait_for

# Another id would be another image: hosts that were prepared by an earlier Paddock would not have it.
IDS = {
    "x86_64": "7f1f57b62ae6ae63cb7f69aed2efe6a4cc07e3ebb70aa47b59c7fdd3bded6aa2",
    "aarch64": "a85609aebcc74e9892b8f5f4926afd33be6395689015b54dcf1ad47594ee716a",
}


def unpacked(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def test_its_id_never_changes() -> None:
    manifests = {
        architecture: json.loads(unpacked(archive(architecture))["manifest.json"])[0]
        for architecture in architectures()
    }
    assert {name: manifest["Config"].removesuffix(".json") for name, manifest in manifests.items()} == IDS
    assert {tuple(manifest["RepoTags"]) for manifest in manifests.values()} == {(NAME,)}


@pytest.mark.docker
def test_its_program_waits_for_ever(tmp_path: Path) -> None:
    subprocess.run(["docker", "load", "-q"], input=archive("x86_64"), capture_output=True, check=True)
    container = docker("run", "-d", "--network", "none", "--read-only", "--cap-drop", "ALL", f"sha256:{IDS['x86_64']}")
    try:
        pid = int(docker("inspect", "-f", "{{.State.Pid}}", container))
        state = Path(f"/proc/{pid}/stat")
        wait_for("it sleeps", lambda: state.read_text().rpartition(")")[2].split()[0] == "S")
    finally:
        docker("rm", "-f", container)
        docker("rmi", NAME, check=False)  # unless this engine has placeholders of its own
