"""Snapshots and an engine's images.

Root layers of an engine whose folders can't be opened are captured by a commit, and given back by the engine itself.
Exports have the image on request.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.docker.client import Client
from controller.engine.kernel.engine_namespace import EngineNamespace
from controller.engine.snapshots.folder import SnapshotFolder
from controller.engine.snapshots.layers import RootLayers
from controller.engine.snapshots.restore import Restorer
from controller.engine.snapshots.snapshots import DockerSnapshots
from controller.kinds.common.labels import INSTANCE
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.outcome import Ok
from controller.kinds.runtime.snapshot import IMAGE_REPOSITORY, LAYER_REPOSITORY, RestoreRoot
from controller.ports import NullMeter
from controller.ports.snapshots import SnapshotError
from tests.daemon import docker
from tests.engine.test_snapshot_files import INSTANCE_ID, ChangingContainer, capturer_of, content, request_of

pytestmark = pytest.mark.docker
IMAGE, FAR = "paddock/test-tiny:1", RootLayers(EngineNamespace("tcp://192.0.2.1:2376"), is_local=False)
WRITE = (
    "mkdir -p /srv/x && echo text > /srv/x/file && ln /srv/x/file /srv/x/hard && chown -R 20000:20001 /srv/x"
    " && chmod 4750 /srv/x/file && rm -r /workspace"
)
READ = "cat /srv/x/hard; stat -c '%u %g %a %h' /srv/x/file; ls -d /workspace"


@pytest.fixture
def cleaned() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def container_of(stack: ExitStack, *command: str) -> Container:
    """Create a container; it is removed after the test."""
    id_ = docker("create", "--user=0", "--network=none", f"--label={INSTANCE}={INSTANCE_ID}", IMAGE, *command)
    stack.callback(docker, "rm", "-f", id_)
    image_id = docker("inspect", "-f", "{{.Image}}", id_)
    return Container(id_, "a", "source", State.RUNNING, image=IMAGE, image_id=image_id)


def committed_images() -> str:
    """Return the ids of the images of commits."""
    return docker("images", "-q", "--filter", f"label={INSTANCE}={INSTANCE_ID}", LAYER_REPOSITORY)


def test_a_commit_is_captured_and_given_back(cleaned: ExitStack, tmp_path: Path) -> None:
    client = Client("unix:///var/run/docker.sock", meter=NullMeter(), timeout_seconds=60)
    cleaned.callback(client.close)
    folder = SnapshotFolder(tmp_path / "snapshots")
    source = container_of(cleaned, "sleep", "1000")
    docker("start", source.id)
    docker("exec", source.id, "sh", "-c", WRITE)
    unchanged = container_of(cleaned, "true")
    cleaned.callback(docker, "rmi", "--no-prune", f"{IMAGE_REPOSITORY}:s1", check=False)
    paused = replace(source, state=State.PAUSED)
    capturer = capturer_of(ChangingContainer(source, paused, source), client, FAR)
    request = replace(request_of(source), tmpfs=("/tmp",))
    captured = capturer.capture(request, folder)
    assert committed_images() == ""
    (part,) = captured.parts
    assert (part.kind, part.data_bytes, 20000 in part.uids) == ("root", 5, True)
    assert {omission.name for omission in captured.omitted} == {"/", "/tmp"}
    assert "docker commit" in next(omission.reason for omission in captured.omitted if omission.name == "/")
    assert [path.name for path in folder.path("s1").iterdir() if path.suffix != ".json"] == [part.file]
    folder.finish(replace(captured, user_id=20000, group_id=20001))
    docker("exec", "-w", "/", source.id, "truncate", "-s", "1000G", "/srv/holes")
    large = replace(request, uid="s3", bytes_max=1 << 20)
    with pytest.raises(SnapshotError) as refused:
        capturer_of(ChangingContainer(source), client, FAR).capture(large, folder)
    assert refused.value.reason == "TooLarge"
    assert docker("inspect", "-f", "{{.State.Status}}", source.id) == "running"
    target = container_of(cleaned, "sh", "-c", READ)
    restorer = Restorer(folder, client, FAR)
    action = RestoreRoot("u", "b", "default", "first", "development", IMAGE, "", (), "why")
    outcome = restorer.restore_root(action, target, (30000, 30001))
    assert isinstance(outcome, Ok)
    assert "1 deletions of snapshot `first` are lost (/workspace)" in outcome.notes[-1]
    assert docker("start", "-a", target.id).splitlines() == ["text", "30000 30001 4750 2", "/workspace"]
    cut_off = replace(request_of(unchanged), uid="s2")
    layer = capturer.committer.commit(cut_off, time.monotonic() + 60)
    assert not layer.is_changed
    assert committed_images() != ""
    folder.begin("s2", None)
    fresh = capturer_of(ChangingContainer(), client, FAR)
    DockerSnapshots(folder, fresh, client).recover()  # as after a crash
    assert committed_images() == ""


def test_an_export_has_its_image_on_request(cleaned: ExitStack, tmp_path: Path) -> None:
    client = Client("unix:///var/run/docker.sock", meter=NullMeter(), timeout_seconds=60)
    cleaned.callback(client.close)
    folder, source = SnapshotFolder(tmp_path / "snapshots"), tmp_path / "source"
    source.mkdir()
    stored = DockerSnapshots(folder, capturer_of(ChangingContainer(), client, FAR), client)
    image_id = docker("inspect", "-f", "{{.Id}}", IMAGE)
    first = replace(content(folder, source), image=IMAGE, image_id=image_id)
    folder.finish(first)

    def imported(uid: str, archive: bytes, *, may_load_image: bool) -> str:
        """Import an archive; return the reason of a refusal."""
        cleaned.callback(docker, "rmi", "--no-prune", f"{IMAGE_REPOSITORY}:{uid}", check=False)
        try:
            stored.take_in(uid, "default", uid, iter([archive]), 1 << 30, may_load_image=may_load_image)
        except SnapshotError as error:
            assert folder.content(uid) is None
            return error.reason
        return ""

    with_image, without = (b"".join(stored.export("s1", image=image)) for image in (True, False))
    assert len(with_image) > len(without) + 500_000
    assert imported("s2", with_image, may_load_image=True) == ""
    assert imported("s3", with_image, may_load_image=False) == "ImageRefused"
    assert imported("s4", without, may_load_image=False) == ""
    assert docker("inspect", "-f", "{{.Id}}", f"{IMAGE_REPOSITORY}:s4") == image_id
    folder.finish(replace(first, image_id="sha256:" + "0" * 64))
    for may_load_image in (True, False):
        archive = b"".join(stored.export("s1", image=False))
        assert imported("s5", archive, may_load_image=may_load_image) == "ImageMissing"
