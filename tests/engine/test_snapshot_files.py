"""Files of snapshots without an engine: hostile archives, and steps that fail in between."""

import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.archive.names import Unsafe
from controller.archive.state.save import save
from controller.engine.archiver.worker import Thawed, save_all
from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.view import ViewEntry
from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.engine_namespace import EngineNamespace
from controller.engine.kernel.idmap import Ids
from controller.engine.mounts.host_folders import Refused
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.mounts.saved_files import SavedFolders
from controller.engine.observe.observer import Foreign, Observer
from controller.engine.snapshots.capture import Capturer
from controller.engine.snapshots.commit import Committer
from controller.engine.snapshots.export import check_image, export, take_in
from controller.engine.snapshots.folder import SnapshotFolder
from controller.engine.snapshots.layers import RootLayers
from controller.engine.snapshots.restore import SNAPSHOT_DIFFERS, SNAPSHOT_MISSING, Restorer
from controller.engine.snapshots.snapshots import DockerSnapshots
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.planning.outcome import Ok, Outcome, Terminal, Transient
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import BindMounts, Mount
from controller.kinds.runtime.snapshot import RestoreRoot, SnapshotContent, SnapshotPart
from controller.ports.snapshots import SnapshotError
from tests.crashes import killed_at

INSTANCE_ID = f"snapshots-{os.getpid()}"
LAYERS = RootLayers(EngineNamespace("unix:///nowhere"))


class EngineWithIds(Client):
    """Client of no engine: its calls fail."""

    def __init__(self, *faults: Fault) -> None:
        """Connect to nothing."""
        self.faults = list(faults)

    def call(self, *_arguments: Any, **_options: Any) -> Any:
        raise self.faults.pop(0)

    def image(self, _reference: str) -> Any:
        raise self.faults.pop(0)

    @property
    def first_ids(self) -> tuple[int, int]:
        return 0, 0


def content(folder: SnapshotFolder, source: Path, uid: str = "s1", **fields: Any) -> SnapshotContent:
    """Store a snapshot of one volume."""
    place = folder.begin(uid, None)
    opened = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with (place / "0.tar").open("wb") as file:
            report = save(opened, file.write)
    finally:
        os.close(opened)
    part = SnapshotPart("volume", "/data", "0.tar", report.entries, report.bytes, report.archive_bytes, source="data")
    owner = os.stat(source)
    made = SnapshotContent(
        *(uid, "default", "first", "a", "source"),
        captured_at=1.0,
        image="tiny",
        image_id="sha256:1",
        level="development",
        architecture=platform.machine(),
        parts=(part,),
        user_id=owner.st_uid,
        group_id=owner.st_gid,
        **fields,
    )
    folder.finish(made)
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "file").write_text("text")
    return folder


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotFolder:
    return SnapshotFolder(tmp_path / "snapshots")


def tarfile_of(files: Mapping[str, bytes]) -> bytes:
    """Return a tar of these files."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return output.getvalue()


def _accept(_name: str, _id: str, _archive: Path | None) -> None:
    """Accept any image."""


def changed(archive: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return an export with other values in its description, and right hashes."""
    blobs = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as old:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            blobs[member.name] = file.read()

    def renamed(data: bytes) -> tuple[str, str]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return f"sha256:{digest}", f"blobs/sha256/{digest}"

    index = json.loads(blobs["index.json"])
    manifest = json.loads(blobs["blobs/sha256/" + index["manifests"][0]["digest"].removeprefix("sha256:")])
    config = json.loads(blobs["blobs/sha256/" + manifest["config"]["digest"].removeprefix("sha256:")])
    manifest["config"]["digest"], _ = renamed(json.dumps({**config, **fields}).encode())
    index["manifests"][0]["digest"], _ = renamed(json.dumps(manifest).encode())
    blobs["index.json"] = json.dumps(index).encode()
    return tarfile_of(blobs)


@pytest.mark.parametrize(
    "fields",
    [
        {"captured_at": "soon"},
        {"captured_at": float("nan")},
        {"frozen_seconds": float("inf")},
        {"omitted_count": -1},
        {"omitted": [{"name": 1, "reason": "r"}]},
        {"image": "i" * 2000},
        {"parts": [{"kind": "volume", "path": "/data", "file": "0.tar", "entries": "x"}]},
        {"user_id": 1 << 40},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_an_import_with_a_hostile_description_is_refused(
    fields: dict[str, Any], snapshots: SnapshotFolder, source: Path
) -> None:
    made = content(snapshots, source)
    archive = b"".join(export(snapshots, made, None))
    take_in(snapshots, "s2", "default", "good", iter([changed(archive, {"captured_at": 1e30})]), 1 << 30, _accept)
    taken = snapshots.content("s2")
    assert taken is not None
    assert taken.captured_at <= time.time()
    assert (taken.parts[0].entries, taken.parts[0].data_bytes) == (made.parts[0].entries, 4)
    with pytest.raises(SnapshotError, match="no snapshot of Paddock"):
        take_in(snapshots, "s3", "default", "bad", iter([changed(archive, fields)]), 1 << 30, _accept)


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": [{"Config": "c.json", "RepoTags": ["paddock/egress:1"]}]},
        {"manifest.json": [{"RepoTags": None}], "repositories": {"paddock/egress": {"1": "x"}}},
        {"index.json": {"manifests": [{"annotations": {"io.containerd.image.name": "paddock/egress:1"}}]}},
        {"./a/../manifest.json": []},
        {"a/manifest.json": []},
    ],
)
def test_an_image_that_replaces_others_is_refused(files: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "image.tar"

    def write(contents: Mapping[str, Any]) -> None:
        with tarfile.open(path, "w") as archive:
            for name, value in contents.items():
                data = json.dumps(value).encode()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))

    write({"manifest.json": [{"Config": "c.json", "RepoTags": None}], "index.json": {"manifests": [{"digest": "d"}]}})
    check_image(path)
    write(files)
    with pytest.raises(Unsafe):
        check_image(path)


def test_a_volume_gets_its_files_after_a_failed_try(snapshots: SnapshotFolder, source: Path, tmp_path: Path) -> None:
    restorer = Restorer(snapshots, EngineWithIds(), LAYERS)
    mount = Mount("/data", "volume", "data")
    action = BindMounts("b", "b", "default", "tiny", "", (), (mount,), "why", restore_from="first")
    target = tmp_path / "target"
    target.mkdir()
    tree = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    owner = os.stat(source)
    user = Ids(owner.st_uid, owner.st_gid)
    try:
        restorer.begin(action, mount)
        with pytest.raises(Refused, match="not captured yet"):
            restorer.fill(action, mount, tree, user, is_new=True)
        content(snapshots, source)
        restorer.fill(action, mount, tree, user, is_new=False)
        assert (target / "file").read_text() == "text"
        (target / "file").write_text("newer")
        restorer.fill(action, mount, tree, user, is_new=False)
    finally:
        os.close(tree)
    assert (target / "file").read_text() == "newer"


def test_a_filled_workspace_leaves_the_volume_there_due(snapshots: SnapshotFolder, tmp_path: Path) -> None:
    """A pool's member was filled in memory; a record of an older Paddock is done for both."""
    restorer = Restorer(snapshots, EngineWithIds(), LAYERS)
    memory, volume = Mount("/workspace", "memory"), Mount("/workspace", "volume", "own")
    action = BindMounts("b", "b", "default", "tiny", "", (), (memory,), "why", restore_from="first")
    snapshots.mark("b", "first", "/workspace", "tmpfs", "Done")
    assert [restorer.is_due(action, mount) for mount in (memory, volume)] == [False, True]
    restorer.begin(action, volume)
    assert [restorer.is_due(action, mount) for mount in (memory, volume)] == [False, True]
    (record,) = tmp_path.rglob("restored/b.json")
    record.write_text(json.dumps({"key": "first", "paths": {"/workspace": "Done"}}))
    assert [restorer.is_due(action, mount) for mount in (memory, volume)] == [False, False]


def test_a_root_layer_waits_for_its_snapshot_that_fits(snapshots: SnapshotFolder, source: Path, tmp_path: Path) -> None:
    """Deleted or not imported yet, it is waited for; of another level it is refused; newer files are not replaced."""
    target = tmp_path / "target"
    target.mkdir()
    restorer, owner = Restorer(snapshots, EngineWithIds(), LAYERS), os.stat(source)
    action = RestoreRoot("u", "b", "default", "first", "development", "tiny", "", (), "why")
    created = Container("c", "b", "u", State.CREATED, layer_path=str(target))

    def outcome(action: RestoreRoot = action, container: Container = created) -> Outcome:
        return restorer.restore_root(action, container, (owner.st_uid, owner.st_gid))

    missing = outcome()
    assert isinstance(missing, Transient)
    assert missing.reason == SNAPSHOT_MISSING
    first = content(snapshots, source)
    snapshots.finish(replace(first, parts=(replace(first.parts[0], kind="root", path="/"),)))
    for change in ({"level": "production"}, {"image": "other"}):
        differs = outcome(replace(action, **change))
        assert isinstance(differs, Terminal)
        assert differs.reason == SNAPSHOT_DIFFERS
    assert isinstance(outcome(container=replace(created, started_at=1.0)), Ok)
    assert not list(target.iterdir())
    assert isinstance(outcome(), Ok)
    assert (target / "file").read_text() == "text"
    snapshots.remove("s1")
    assert isinstance(outcome(), Transient)


def test_a_capture_that_somebody_thawed_is_none(source: Path, tmp_path: Path) -> None:
    freezer = tmp_path / "freezer.state"
    freezer.write_text("THAWED")
    folder = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
    reading, writing = os.pipe()

    def thaw_meanwhile() -> None:
        os.read(reading, 1)
        freezer.write_text("THAWED")
        while os.read(reading, 1 << 16):
            pass

    (source / "large").write_bytes(os.urandom(4 << 20))
    thread = threading.Thread(target=thaw_meanwhile)
    thread.start()
    part = {"folder": folder, "output": writing, "deletions": False, "mount_points": []}
    bounds = {"entries": 100, "bytes": 1 << 30, "seconds": 60}
    request = {"freezer": (str(freezer), "FROZEN", "THAWED"), "bounds": bounds, "parts": [part]}
    try:
        with pytest.raises(Thawed, match="thawed it"):
            save_all(request)
    finally:
        os.close(writing)
        thread.join()
        os.close(reading)
        os.close(folder)
    assert freezer.read_text() == "THAWED"


def test_saved_files_of_gone_objects_go_a_day_later(tmp_path: Path) -> None:
    now = 1e9
    saved = SavedFolders(tmp_path, now=lambda: now)
    for uid in ("here", "gone"):
        (tmp_path / uid).mkdir()
        (tmp_path / uid / "saved.json").write_text('{"saved": {"size_bytes": 1}, "folders": []}')
    saved.sweep(["here"])
    now += 80_000
    saved.sweep(["here"])
    saved.sweep(["here", "gone"])  # the store has it again
    now += 80_000
    saved.sweep(["here"])
    assert saved.find("gone") is not None
    now += 90_000
    saved.sweep(["here"])
    assert saved.find("gone") is None
    assert saved.find("here") is not None


class ChangingContainer(Observer):
    """Observer of one container, whose states it returns in order."""

    def __init__(self, *containers: Container) -> None:
        """Take the states."""
        self.containers = list(containers)

    def read(self, reference: str) -> ViewEntry:
        assert reference == self.containers[0].id
        return ViewEntry(self.containers.pop(0), Limits(1000, 1 << 20, 10), 1)


class NoMounts(HostMounts):
    """Mounts of a sandbox without any."""

    def __init__(self) -> None:
        """Mount nothing."""

    def user_ids(self, action: BindMounts) -> tuple[int, int]:
        return -1, -1


def request_of(container: Container) -> CaptureRequest:
    return CaptureRequest(
        *("s1", "default", "first", "a", "source", container, "development"),
        bind=BindMounts("source", "a", "default", "tiny", "", (), (), "why"),
        tmpfs=(),
        writable=True,
    )


def stopped_capturer(source: Path | None) -> tuple[Capturer, CaptureRequest]:
    """Return a capturer of one stopped container, whose root layer is that folder, and the request."""
    stopped = Container("c", "a", "source", State.EXITED, started_at=1.0, layer_path=str(source or ""))
    observer = ChangingContainer(*[stopped] * 400)
    return capturer_of(observer), request_of(stopped)


def capturer_of(observer: Observer, client: Client | None = None, layers: RootLayers = LAYERS) -> Capturer:
    committer = Committer(client or EngineWithIds(), layers.free_bytes, INSTANCE_ID)
    return Capturer(observer, NoMounts(), Cgroups(), lambda: 1.0, layers, committer=committer, is_local=client is None)


def test_a_stopped_sandbox_that_starts_meanwhile_is_not_captured(snapshots: SnapshotFolder, source: Path) -> None:
    stopped = Container("c", "a", "source", State.EXITED, started_at=1.0, layer_path=str(source))
    running = replace(stopped, state=State.RUNNING, started_at=2.0)
    observer = ChangingContainer(stopped, running, stopped, stopped)
    capturer = capturer_of(observer)
    request = request_of(stopped)
    with pytest.raises(SnapshotError, match="was started") as caught:
        capturer.capture(request, snapshots)
    assert caught.value.retry
    assert not snapshots.path("s1").exists()
    assert capturer.capture(request, snapshots).parts[0].data_bytes == 4


def test_one_capture_of_a_sandbox_at_once(snapshots: SnapshotFolder, source: Path) -> None:
    stopped = Container("c", "a", "source", State.EXITED, started_at=1.0, layer_path=str(source))
    request, refusals = request_of(stopped), []

    class Meanwhile(ChangingContainer):
        """Observer during whose answer another capture begins."""

        def read(self, reference: str) -> ViewEntry:
            with pytest.raises(SnapshotError) as refused:
                capturer.capture(replace(request, uid="s2"), snapshots)
            refusals.append((refused.value.reason, refused.value.retry))
            return super().read(reference)

    capturer = capturer_of(Meanwhile(stopped, stopped))
    assert capturer.capture(request, snapshots).parts[0].data_bytes == 4
    assert refusals == [("BeingCaptured", True)] * 2
    assert list(snapshots.contents()) == ["s1"]


@pytest.mark.parametrize(
    "change",
    [{"uid": "another"}, {"state": State.DEAD}, {"state": State.RESTARTING}],
    ids=["claimed", "dead", "starts"],
)
def test_a_sandbox_that_changed_before_its_capture_is_tried_again(
    change: dict[str, Any], snapshots: SnapshotFolder, source: Path
) -> None:
    stopped = Container("c", "a", "source", State.EXITED, started_at=1.0, layer_path=str(source))
    capturer = capturer_of(ChangingContainer(replace(stopped, **change), stopped, stopped))
    with pytest.raises(SnapshotError) as refused:
        capturer.capture(request_of(stopped), snapshots)
    assert (refused.value.reason, refused.value.retry) == ("NotCapturable", True)
    assert not snapshots.path("s1").exists()
    assert capturer.capture(request_of(stopped), snapshots).parts[0].data_bytes == 4


def test_a_foreign_container_is_not_captured(snapshots: SnapshotFolder, source: Path) -> None:
    class Others(ChangingContainer):
        """Observer of a container of somebody else."""

        def read(self, reference: str) -> ViewEntry:
            raise Foreign(reference, "a", "somebody else")

    stopped = Container("c", "a", "source", State.EXITED, started_at=1.0, layer_path=str(source))
    with pytest.raises(SnapshotError) as refused:
        capturer_of(Others()).capture(request_of(stopped), snapshots)
    assert (refused.value.reason, refused.value.retry) == ("Failed", False)
    assert not snapshots.path("s1").exists()


@pytest.mark.parametrize(
    "data", [b"", b"no archive" * 200, tarfile_of({"a": b"x"}), tarfile_of({"index.json": b"[" * 9})]
)
def test_an_archive_of_others_is_refused(data: bytes, snapshots: SnapshotFolder) -> None:
    with pytest.raises(SnapshotError) as refused:
        take_in(snapshots, "s2", "default", "bad", iter([data]), 1 << 30, _accept)
    assert refused.value.reason == "Damaged"


def test_files_stay_until_the_name_of_their_image_is_gone(snapshots: SnapshotFolder, source: Path) -> None:
    content(snapshots, source)
    observer, engine = ChangingContainer(), EngineWithIds(Fault("connection", "refused"))
    capturer = capturer_of(observer)
    stored = DockerSnapshots(snapshots, capturer, engine)
    with pytest.raises(SnapshotError, match="not reachable"):
        stored.remove("s1")
    assert snapshots.content("s1") is not None
    engine.faults = [Fault("4xx", "no such image", status=404)]
    stored.remove("s1")
    assert snapshots.content("s1") is None


def test_without_a_layers_folder_its_commit_is_tried(
    snapshots: SnapshotFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`ctr` is not there to name the folder; a commit that fails leaves nothing, and is tried again."""
    monkeypatch.setenv("PATH", str(tmp_path))
    stopped = Container("c", "a", "source", State.EXITED, started_at=1.0)
    engine = EngineWithIds(*[Fault("5xx", "no space left on device")] * 3)
    observer = ChangingContainer(stopped)
    capturer = Capturer(
        *(observer, NoMounts(), Cgroups(), lambda: 1.0, LAYERS),
        committer=Committer(engine, LAYERS.free_bytes, INSTANCE_ID),
        is_local=True,
    )
    with pytest.raises(SnapshotError, match="no space left") as refused:
        capturer.capture(request_of(stopped), snapshots)
    assert (refused.value.reason, refused.value.retry) == ("EngineFailed", True)
    assert not snapshots.path("s1").exists()


def test_elsewhere_only_a_root_layer_can_be_captured(snapshots: SnapshotFolder) -> None:
    stopped = Container("c", "a", "source", State.EXITED, started_at=1.0)
    capturer = capturer_of(ChangingContainer(stopped), EngineWithIds())
    with pytest.raises(SnapshotError, match="on another machine") as refused:
        capturer.capture(replace(request_of(stopped), writable=False), snapshots)
    assert refused.value.reason == "EngineElsewhere"


def test_a_capture_cut_off_at_any_step_is_whole_or_gone(
    snapshots: SnapshotFolder, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capturer, request = stopped_capturer(source)
    for step in range(60):
        with killed_at(step, monkeypatch) as ended:
            capturer.capture(request, snapshots)
        snapshots.recover()
        assert bool(snapshots.contents()) == snapshots.path("s1").exists(), f"step {step}"
        if ended:
            break
    assert 5 < step < 60
    assert snapshots.contents()["s1"].parts[0].data_bytes == 4


def test_an_import_cut_off_at_any_step_is_whole_or_gone(
    snapshots: SnapshotFolder, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = b"".join(export(snapshots, content(snapshots, source), None))
    for step in range(80):
        with killed_at(step, monkeypatch) as ended:
            take_in(snapshots, "s2", "default", "moved", pieces=iter([archive]), bytes_max=1 << 30, load=_accept)
        snapshots.recover()
        moved = snapshots.content("s2")
        assert (moved is not None) == snapshots.path("s2").exists(), f"step {step}"
        snapshots.remove("s2")
        if ended:
            break
    assert 5 < step < 80


@pytest.mark.docker  # it takes root, as the engine does
@pytest.mark.parametrize("work", ["capture", "import"])
def test_a_full_disk_leaves_nothing_half(
    work: str, snapshots: SnapshotFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, small = tmp_path / "large", tmp_path / "small"
    source.mkdir()
    (source / "file").write_bytes(os.urandom(3 << 20))
    archive = b"".join(export(snapshots, content(snapshots, source), None))
    for module in ("capture", "export"):
        monkeypatch.setattr(f"controller.engine.snapshots.{module}.RESERVE_BYTES", -(1 << 30))
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)], check=True)
    try:
        full = SnapshotFolder(small / "snapshots")
        capturer, request = stopped_capturer(source)
        stored = DockerSnapshots(full, capturer, EngineWithIds())
        imported = partial(stored.take_in, "s1", "default", "moved", iter([archive]), 1 << 30, may_load_image=False)
        write = partial(capturer.capture, request, full) if work == "capture" else imported
        with pytest.raises(SnapshotError, match="No space left"):
            write()
        assert not full.path("s1").exists()
        assert full.contents() == {}
    finally:
        subprocess.run(["umount", str(small)], check=True)
