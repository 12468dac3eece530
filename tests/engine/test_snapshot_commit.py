"""Commits of root layers on an engine that is measured first, hangs, or has a sandbox that does not stand still."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from controller.archive.tar import END
from controller.engine.archiver.worker import carry_out
from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.raw_http import HttpStream
from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.engine_namespace import EngineNamespace
from controller.engine.snapshots.capture import Capturer
from controller.engine.snapshots.commit import Committer
from controller.engine.snapshots.folder import SnapshotFolder
from controller.engine.snapshots.layers import RootLayers
from controller.engine.snapshots.restore import RESTORE_FAILED, Restorer
from controller.engine.snapshots.snapshots import DockerSnapshots
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.snapshot import LAYER_REPOSITORY, RestoreRoot
from controller.ports.snapshots import SnapshotError
from tests.engine.test_snapshot_files import INSTANCE_ID, ChangingContainer, NoMounts, content, request_of

FAR = RootLayers(EngineNamespace("tcp://192.0.2.1:2376"), is_local=False)
STORE = [["driver-type", "io.containerd.snapshotter.v1"]]
SLOW, DOWN = Fault("timeout", "no answer in time"), Fault("connection", "refused")
RUNNING = Container("c", "a", "source", State.RUNNING, started_at=1.0, image_id="sha256:1")
PAUSED = replace(RUNNING, state=State.PAUSED)


class Pieces(HttpStream):
    """Streamed answer of these pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        """Take the pieces."""
        self.pieces, self.count = pieces, 0

    def read(self) -> bytes:
        self.count += 1
        return next(self.pieces, b"")

    def release(self) -> None:
        """Do nothing."""


class CommittingEngine(Client):
    """Engine of one container, whose layer has so many bytes. `calls` are the operations in order."""

    def __init__(self, layer: int | Fault = 0, export: Iterator[bytes] | None = None) -> None:
        """Connect to nothing."""
        self.base_url, self.first_ids = "tcp://192.0.2.1:2376", (0, 0)
        self.layer = layer
        self.export = None if export is None else Pieces(export)
        self.calls: list[str] = []
        self.images: list[str] = []
        self.faults: dict[str, Fault] = {}
        self.on_commit: Callable[[], object] = lambda: None

    def call(self, operation: str, do: Callable[[Any], Any], *, container: str = "") -> Any:
        self.calls.append(operation)
        if operation in self.faults:
            raise self.faults[operation]
        match operation:
            case "images.list":
                return [{"RepoTags": [name]} for name in self.images]
            case "images.inspect":
                return {"Size": 1000, "RootFS": {"Layers": ["one"]}}
            case "info":
                return {"DriverStatus": STORE if self.export else []}
            case "images.remove":
                return do(self)
            case _:
                return None

    def image(self, reference: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("images.inspect", lambda _: reference)
        return answer

    def remove_image(self, name: str) -> None:
        self.images.remove(name)

    def layer_bytes(self, container_id: str, *, timeout_seconds: float) -> int:
        if isinstance(self.layer, Fault):
            raise self.layer
        return self.layer

    def post(self, operation: str, path: str, *_arguments: Any, **_options: Any) -> dict[str, Any]:
        self.calls.append(operation)
        self.on_commit()
        if operation in self.faults:
            raise self.faults[operation]
        self.images.append(f"{LAYER_REPOSITORY}:{parse_qs(path)['tag'][0]}")
        return {"Id": "sha256:2"}

    def stream(self, *_arguments: Any, **_options: Any) -> HttpStream:
        assert self.export is not None
        return self.export


class FreezingCapturer(Capturer):
    """Capturer that freezes by a file."""

    freezer: tuple[str, str, str]

    def _freezer(self, container: Container) -> tuple[str, str, str]:
        return self.freezer


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotFolder:
    return SnapshotFolder(tmp_path / "snapshots")


def capturer_of(
    engine: Client, *states: Container, free: int | None = None, kind: type[Capturer] = Capturer
) -> Capturer:
    """Return a capturer on an engine elsewhere; a freezing one is beside its engine."""
    committer = Committer(engine, lambda _info: free, INSTANCE_ID)
    observer = ChangingContainer(*states)
    is_local = kind is FreezingCapturer
    return kind(observer, NoMounts(), Cgroups(), lambda: 1.0, FAR, committer=committer, is_local=is_local)


def refusal(capturer: Capturer, snapshots: SnapshotFolder) -> tuple[str, bool]:
    """Return the reason of a capture that fails, and whether it is retried."""
    with pytest.raises(SnapshotError) as refused:
        capturer.capture(request_of(RUNNING), snapshots)
    assert not snapshots.path("s1").exists()
    return refused.value.reason, refused.value.retry


def zeros() -> Iterator[bytes]:
    """Yield what an engine exports of a file with one large hole."""
    while True:
        yield bytes(1 << 16)


@pytest.mark.parametrize(
    ("engine", "free", "expected"),
    [
        (CommittingEngine(8 << 40), None, ("TooLarge", False)),
        (CommittingEngine(1 << 30), 2 << 30, ("TooLarge", False)),
        (CommittingEngine(Fault("5xx", "unknown", status=500)), None, ("EngineFailed", True)),
        (CommittingEngine(SLOW), None, ("Failed", False)),
        (CommittingEngine(export=zeros()), 300 << 20, ("TooLarge", False)),
        (CommittingEngine(export=iter([b"cut off"])), None, ("EngineFailed", True)),
    ],
    ids=["holes", "disk", "unknown", "slow", "store", "store-unknown"],
)
def test_a_layer_too_large_is_not_committed(
    engine: CommittingEngine, free: int | None, expected: tuple[str, bool], snapshots: SnapshotFolder
) -> None:
    capturer = capturer_of(engine, RUNNING, free=free)
    assert refusal(capturer, snapshots) == expected
    assert "containers.commit" not in engine.calls
    assert [call for call in engine.calls if "pause" in call] == ["containers.pause", "containers.unpause"]


@pytest.mark.parametrize("engine", [CommittingEngine(4), CommittingEngine(export=iter([b"files", END]))])
def test_elsewhere_it_is_paused_from_size_to_commit(engine: CommittingEngine, snapshots: SnapshotFolder) -> None:
    captured = capturer_of(engine, RUNNING, PAUSED, RUNNING).capture(request_of(RUNNING), snapshots)
    assert captured.parts == ()
    calls = [call for call in engine.calls if call.startswith("containers.")]
    assert calls == ["containers.pause", "containers.commit", "containers.unpause"]
    assert engine.images == []


def test_one_resumed_during_its_commit_is_tried_again(snapshots: SnapshotFolder) -> None:
    engine = CommittingEngine()
    assert refusal(capturer_of(engine, RUNNING, RUNNING), snapshots) == ("Thawed", True)
    assert engine.images == []


def test_one_thawed_during_its_commit_is_tried_again(snapshots: SnapshotFolder, tmp_path: Path) -> None:
    """It runs before the image is removed, which may take long."""
    state, engine, states_at_removal = tmp_path / "freezer.state", CommittingEngine(), []
    state.write_text("THAWED")
    capturer = capturer_of(engine, *[RUNNING] * 3, kind=FreezingCapturer)
    assert isinstance(capturer, FreezingCapturer)
    capturer.freezer = (str(state), "FROZEN", "THAWED")

    class Watched(list[str]):
        """Images whose removal looks at the freezer."""

        def remove(self, name: str) -> None:
            states_at_removal.append(state.read_text())
            super().remove(name)

    engine.images = Watched()
    engine.on_commit = lambda: state.write_text("THAWED")
    assert refusal(capturer, snapshots) == ("Thawed", True)
    engine.on_commit = lambda: None
    engine.faults = {"containers.commit": Fault("5xx", "no space left", status=500)}
    capturer = capturer_of(engine, *[RUNNING] * 3, kind=FreezingCapturer)
    assert isinstance(capturer, FreezingCapturer)
    capturer.freezer = (str(state), "FROZEN", "THAWED")
    assert refusal(capturer, snapshots) == ("EngineFailed", True)
    assert state.read_text() == "THAWED"
    assert (states_at_removal, engine.images) == (["THAWED"], [])


def test_one_thawed_between_commit_and_save_is_tried_again(tmp_path: Path) -> None:
    state = tmp_path / "freezer.state"
    state.write_text("THAWED")
    limits = {"entries": 100, "bytes": 1 << 20, "seconds": 60}
    request = {"freezer": (str(state), "FROZEN", "THAWED"), "is_frozen": True, "bounds": limits, "parts": []}
    assert carry_out({"operation": "save", **request})["error"] == "Thawed"
    assert state.read_text() == "THAWED"


def test_a_commit_out_of_time_is_final(snapshots: SnapshotFolder) -> None:
    """Its image comes later, and goes at the next sweep; one of a capture under way stays."""
    engine = CommittingEngine()
    engine.faults["containers.commit"] = SLOW
    capturer = capturer_of(engine, RUNNING, PAUSED)
    assert refusal(capturer, snapshots) == ("Failed", False)
    stored = DockerSnapshots(snapshots, capturer, engine)
    stored.sweep([])
    engine.images = [f"{LAYER_REPOSITORY}:s1.1", "other:1"]
    stored.sweep([])
    assert engine.images == ["other:1"]
    engine.faults.clear()
    capturer.committer.commit(request_of(RUNNING), 0.0)
    stored.sweep([])
    assert len(engine.images) == 2
    capturer.committer.release("s1")
    assert engine.images == ["other:1"]


def test_what_a_crash_left_goes_once_the_engine_answers(snapshots: SnapshotFolder) -> None:
    engine = CommittingEngine()
    engine.images = [f"{LAYER_REPOSITORY}:s9.1"]
    stored = DockerSnapshots(snapshots, capturer_of(engine), engine)
    snapshots.begin("s9", None)
    engine.faults = {"images.list": DOWN}
    assert stored.recover() == {"s9"}
    engine.faults = {"images.remove": DOWN}
    stored.sweep([])
    engine.faults = {}
    stored.sweep([])
    assert engine.images == []
    count = len(engine.calls)
    stored.sweep([])
    assert len(engine.calls) == count


def test_large_holes_are_not_given_to_an_engine(snapshots: SnapshotFolder, tmp_path: Path) -> None:
    """It would write them as zeros."""
    source, engine = tmp_path / "source", CommittingEngine()
    source.mkdir()
    with (source / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    first = content(snapshots, source)
    snapshots.finish(replace(first, parts=(replace(first.parts[0], kind="root", path="/"),)))
    action = RestoreRoot("u", "b", "default", "first", "development", "tiny", "", (), "why")
    created = Container("c", "b", "u", State.CREATED)
    outcome = Restorer(snapshots, engine, FAR).restore_root(action, created, (first.user_id, first.group_id))
    assert isinstance(outcome, Transient)
    assert (outcome.reason, engine.calls) == (RESTORE_FAILED, ["info"])
