"""Sizes of writable layers and logs, measured in real folders."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.engine.docker.errors import Fault
from controller.engine.usage import writable_layers as module
from controller.engine.usage.log_size import log_bytes
from controller.engine.usage.writable_layers import MEASURE_SECONDS, TooMuch, WritableLayers, tree_bytes
from controller.kinds.observed.observed import Container, State
from tests.conftest import HandClock

MIB = 1 << 20


def sandbox(path: Path, **changes: object) -> Container:
    values = {"state": State.RUNNING, "layer_path": str(path), **changes}
    return Container(id="c1", name="pdk-a", uid="u1", **values)  # type: ignore[arg-type]


def write(file: Path, size: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(os.urandom(size))


def test_hard_links_count_once(tmp_path: Path) -> None:
    write(tmp_path / "a", 2 * MIB)
    write(tmp_path / "b" / "c" / "d", MIB)
    os.link(tmp_path / "a", tmp_path / "b" / "same")
    assert 3 * MIB <= tree_bytes(str(tmp_path)) < 3 * MIB + 64 * 1024


def test_a_hole_takes_no_disk(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert tree_bytes(str(tmp_path)) < 64 * 1024


def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    write(tmp_path / "host" / "large", 4 * MIB)
    inner = tmp_path / "layer"
    inner.mkdir()
    (inner / "out").symlink_to(tmp_path / "host")
    (inner / "file").symlink_to(tmp_path / "host" / "large")
    assert tree_bytes(str(inner)) < 64 * 1024
    with pytest.raises(OSError, match="out"):
        tree_bytes(str(inner / "out"))


def test_a_huge_tree_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path
    for _ in range(module._MOST_DEPTH):
        deep = deep / "d"
    deep.mkdir(parents=True)
    with pytest.raises(TooMuch, match="nested"):
        tree_bytes(str(tmp_path))
    monkeypatch.setattr(module, "_MOST_ENTRIES", 3)
    with pytest.raises(TooMuch, match="more than 3 files"):
        tree_bytes(str(tmp_path))


class Measuring:
    """Writable layers of one sandbox, with a manual clock. A walk takes `walk_seconds`."""

    def __init__(self) -> None:
        self.containers: list[Container] = []
        self.clock, self.walk_seconds, self._ticks = HandClock(), 0.0, 0.0
        self.engine_bytes: int | Fault = Fault("4xx", "no such container", status=404)
        self.layers = WritableLayers(lambda: self.containers, self.clock, self._tick, self._reported)

    def _reported(self, _container_id: str, _timeout_seconds: float) -> int:
        if isinstance(self.engine_bytes, Fault):
            raise self.engine_bytes
        return self.engine_bytes

    def _tick(self) -> float:
        self._ticks += self.walk_seconds
        return self._ticks

    def after(self, seconds: float) -> int | None:
        self.clock.advance(seconds)
        self.layers.measure()
        answer = self.layers.now().get("c1")
        return answer.used_bytes if answer else None


def test_layers_are_measured_when_due(tmp_path: Path) -> None:
    write(tmp_path / "a", MIB)
    measuring = Measuring()
    measuring.containers = [sandbox(tmp_path)]
    first = measuring.after(0)
    assert first is not None
    assert first >= MIB
    assert measuring.layers.now()["c1"].at == measuring.clock.now()
    write(tmp_path / "b", MIB)
    assert measuring.after(1) == first
    assert (measuring.after(MEASURE_SECONDS) or 0) >= 2 * MIB
    measuring.containers = [sandbox(tmp_path, state=State.EXITED)]
    assert measuring.after(1) is None


def test_a_slow_walk_is_repeated_later(tmp_path: Path) -> None:
    measuring = Measuring()
    measuring.containers, measuring.walk_seconds = [sandbox(tmp_path)], 5.0
    first = measuring.after(0)
    write(tmp_path / "a", MIB)
    assert measuring.after(400) == first, "five seconds of every five hundred are one hundredth"
    assert measuring.after(101) != first


@pytest.mark.parametrize("gone", [lambda path: sandbox(path / "nowhere"), lambda path: sandbox(path, layer_path="")])
def test_what_can_not_be_seen_has_no_figure(tmp_path: Path, gone: Callable[[Path], Container]) -> None:
    measuring = Measuring()
    measuring.containers = [gone(tmp_path)]
    assert measuring.after(0) is None


@pytest.mark.parametrize("path", ["", "/nowhere/on/this/machine"])
def test_the_engine_measures_layers_without_a_folder(path: str) -> None:
    measuring = Measuring()
    measuring.containers, measuring.engine_bytes = [sandbox(Path(path), layer_path=path)], 5 * MIB
    assert measuring.after(0) == 5 * MIB


def test_an_unmeasured_layer_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring()
    measuring.containers = [sandbox(tmp_path, layer_path="")]
    measuring.engine_bytes = Fault("timeout", "the Docker Engine did not answer in time")
    assert measuring.after(0) is None
    assert measuring.layers.now()["c1"].trouble == "the engine did not tell its size within 5 s"
    measuring.engine_bytes = 1
    assert measuring.after(MEASURE_SECONDS) == 1
    assert not measuring.layers.now()["c1"].trouble
    monkeypatch.setattr(module, "_MOST_ENTRIES", 1)
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 1)
    measuring.containers = [sandbox(tmp_path)]
    measuring.after(MEASURE_SECONDS)
    assert "more than 1 files" in measuring.layers.now()["c1"].trouble


def test_rotated_logs_count(tmp_path: Path) -> None:
    log = tmp_path / "c1-json.log"
    write(log, 10)
    assert log_bytes(str(log)) == 10
    write(tmp_path / "c1-json.log.1", 100)
    write(tmp_path / "c1-json.log.3", 1000)
    assert log_bytes(str(log)) == 110
    assert (log_bytes(""), log_bytes(str(tmp_path / "none"))) == (None, None)
