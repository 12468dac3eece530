"""Marks of use on this host's disk; see the contract of mounts for how an engine shows them."""

import os
from pathlib import Path

import pytest

from controller.engine.engine import DockerEngine
from controller.engine.observe.use_marks import UseMarks
from tests.conftest import HandClock
from tests.contract.engine_hosts import docker_host, ok


def test_a_mark_is_on_disk_before_the_use(clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced_paths: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced_paths.append(os.readlink(f"/proc/self/fd/{opened}")))
    state, mounts = tmp_path / "state", tmp_path / "mounts"
    engine = DockerEngine("i", base_url="unix:///nowhere", clock=clock, mounts_dir=mounts, used_dir=state / "used")
    engine.mark_used("c1")
    engine.mark_used("c1")
    folders = [tmp_path, state, state / "used", state / "used/i/c1", state / "used/i"]
    assert (synced_paths, mounts.exists()) == ([str(path) for path in folders], False)


def test_the_next_daemon_has_the_marks_until_removed(tmp_path: Path) -> None:
    UseMarks(tmp_path / "i").add("c1")
    marks = UseMarks(tmp_path / "i")
    assert (marks.ids(), marks.has("c1"), marks.has("c2")) == ({"c1"}, True, False)
    marks.remove({"c1", "c2"})
    assert (marks.has("c1"), UseMarks(tmp_path / "i").ids()) == (False, frozenset())


def test_unreadable_marks_are_no_absent_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert UseMarks(tmp_path).has("c1")


@pytest.mark.docker
def test_marks_go_with_their_containers(tmp_path: Path) -> None:
    with docker_host(mounts_dir=tmp_path / "mounts", used_dir=tmp_path / "used") as host:
        host.settled()
        containers = []
        for _ in range(2):
            uid = host.new_uid()
            ok(host.engine.act(host.create(uid)))
            containers.append(host.only(uid))
            host.engine.mark_used(containers[-1].id)
        host.hand.remove(containers[0].name)
        host.engine.observe_now()
        assert [mark.name for mark in (tmp_path / "used" / host.instance_id).iterdir()] == [containers[1].id]
