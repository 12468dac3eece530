"""Command line and volumes: shown, completed and deleted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import HandClock
from tests.fakes.engine import FakeEngine
from tests.helpers_api import ApiStack, make_api

USER = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: app}
spec: {template: {image: "a:1", volumes: [{name: used, mountPath: /used, size: 8Mi, reclaimPolicy: Delete}]}}
"""
COMPOSE = """
name: shop
services:
  web: {image: 'a:1', volumes: ['data:/data', 'shared:/shared', /cache]}
  job: {image: 'a:1', volumes: [/out]}
volumes: {data: {}, shared: {name: kept}}
"""


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine("volumes", clock=HandClock())


@pytest.fixture
def api(tmp_path: Path, quiet: None, engine: FakeEngine) -> Iterator[ApiStack]:
    engine.volumes = {("default", name): 8 << 20 for name in ("kept", "old", "used")}
    created = make_api(tmp_path, engine=engine)
    created.apply(USER)
    yield created
    created.store.close()


def test_volumes_show_their_users(paddock: Run) -> None:
    lines = [line.split() for line in paddock("get", "vol").stdout.splitlines()]
    assert lines[0] == ["NAME", "STATUS", "SIZE", "USED", "POLICY", "USED", "BY", "AGE"]
    assert lines[1][:6] == ["kept", "Released", "8Mi", "-", "Retain", "-"]
    assert lines[3][:6] == ["used", "Bound", "8Mi", "-", "Delete", "sandbox/app"]
    described = paddock("describe", "volume", "used").stdout
    assert "app" in described
    assert "Bound" in described
    assert "kind: Volume" in paddock("get", "volume", "kept", "-o", "yaml").stdout


def test_volumes_are_deleted_by_name_unless_used(paddock: Run) -> None:
    done = paddock("delete", "volume", "kept", "old")
    assert done.stdout == 'volume.paddock "kept" deleted\nvolume.paddock "old" deleted\n'
    assert paddock("get", "vol", "-o", "name").stdout == "volume.paddock/used\n"
    output = paddock("delete", "vol/used")
    assert output.exit_code == 1
    assert "is used by sandbox app; delete or change those first" in output.stderr
    assert "deleted by name" in paddock("delete", "volumes", "--all").stderr
    assert "is read-only" in paddock("label", "volume", "used", "a=b").stderr


@pytest.mark.parametrize("is_running", [True, False])
def test_compose_down_deletes_its_own_volumes_alone(
    paddock: Run, api: ApiStack, engine: FakeEngine, tmp_path: Path, is_running: bool
) -> None:
    """Also after a `down` that left them. One of a service that left the file is known by the sandbox."""
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE)
    names = ["kept", "shop-data", "shop-web--cache", "shop-job--out"]
    engine.volumes = {("default", name): 8 << 20 for name in names}
    if is_running:
        assert paddock("apply", "--compose", str(path)).exit_code == 0
        for name in ("shop-web", "shop-job"):
            api.change(name, finalizers=())  # nothing runs here: they are deleted at once
    path.write_text(COMPOSE.replace("  job: {image: 'a:1', volumes: [/out]}\n", ""))
    down = paddock("compose", "-f", str(path), "down", "-v", "-t", "5s")
    assert down.exit_code == 0, down.output
    texts = ["kept"] if is_running else ["kept", "shop-job--out"]
    assert sorted(name for _, name in engine.volumes) == texts


def test_compose_down_needs_the_file_for_volumes(
    paddock: Run, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    down = paddock("compose", "-p", "shop", "down", "-v")
    assert down.exit_code == 1
    assert "there is no Compose file here" in down.stderr
    assert len(engine.volumes) == 3
