"""Every example under specs/ is applied to a real daemon, and its sandboxes reach their desired state."""

from pathlib import Path

import pytest
import yaml

from tests.daemon import ROOT, docker, running

pytestmark = pytest.mark.docker
# A sandbox with a network needs the host's guard: tests/security has it, in a lab. A folder of the host, and a secret,
# need an operator: tests/e2e/test_secrets.py is one. The project has both, in tests/security, too.
ELSEWHERE = {
    "build.yaml",
    "credentials.yaml",
    "development.yaml",
    "host-folders.yaml",
    "peers.yaml",
    "production.yaml",
    "project.yaml",
    "sandbox-manager.yaml",
    "secrets.yaml",
    "volumes.yaml",
    "workspace.yaml",
}
LARGE = ("paddock/ide:1",)
SPECS = sorted(
    path for path in (ROOT / "specs").rglob("*.yaml") if "schema" not in path.parts and path.name not in ELSEWHERE
)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: str(path.relative_to(ROOT / "specs")))
def test_an_example_runs(tmp_path: Path, path: Path) -> None:
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    image = next((line.split()[1] for line in path.read_text().splitlines() if line.startswith("  image: ")), "")
    if image in LARGE and not docker("images", "-q", image):
        pytest.skip(f"{image} is built by a lane of its own")
    with running(tmp_path) as daemon:
        text = path.read_text().replace("\n  host: host ", f"\n  host: {daemon.works_at.host} ")
        lines = daemon.apply(text).splitlines()
        assert [line.rsplit(" ", 1)[1] for line in lines] == ["created"] * len(documents)
        for entry in documents:
            if entry["kind"] == "Sandbox":
                desired = {"Suspended": "Suspended"}.get(entry["spec"].get("runState", "Running"), "Ready")
                name = f"sandbox/{entry['metadata']['name']}"
                place = entry["metadata"].get("namespace", "default")
                daemon.paddock("wait", "-n", place, f"--for=condition={desired}", "--timeout=60s", name)
