"""Host folders on a real Docker Engine, as seen by programs in the sandbox."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import RemoveContainer, StartContainer
from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.mount import BindMounts, HostRoot, Mount, Slot
from tests.contract.engine_hosts import EngineHost, docker_host, ok, read_all
from tests.mounts import unmount_below

pytestmark = pytest.mark.docker
OWNER = 12345
SLOTS = (Slot("/work"),)


@pytest.fixture
def project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/srv") as temporary_directory:
        folder = Path(temporary_directory) / "app"
        folder.mkdir(mode=0o750)
        (folder / "own").write_text("own\n")
        os.link("/etc/shadow", folder / "shadow")
        (folder / "out").symlink_to("/etc/hostname")
        for path in (folder, folder / "own"):
            os.chown(path, OWNER, OWNER)
        (folder / "own").chmod(0o600)
        yield folder


@pytest.fixture
def host(project: Path, tmp_path: Path) -> Iterator[EngineHost]:
    roots = (HostRoot(path=str(project.parent)),)
    try:
        with docker_host(host_roots=roots, mounts_dir=tmp_path / "mounts") as created:
            yield created.settled()
    finally:
        unmount_below(tmp_path)


def claimed(host: EngineHost, project: Path, *, read_only: bool = False) -> Container:
    """A sandbox that ran before the folder was mounted."""
    uid = host.new_uid()
    create = host.create(uid, image="paddock/python:1", user="20000:20000", slots=SLOTS)
    mount = Mount("/work", "host", str(project), read_only)
    bind = BindMounts(uid, create.config.name, "default", create.config.image, "20000:20000", SLOTS, (), "a test")
    ok(host.engine.act(bind))
    ok(host.engine.act(create))
    ok(host.engine.act(StartContainer(uid, create.config.name, "a test")))
    ok(host.engine.act(replace(bind, mounts=(mount,), container_id=host.only(uid).id)))
    return host.only(uid)


def said(host: EngineHost, sandbox: Container, script: str) -> tuple[str, str]:
    out, err, _ = read_all(host.streams.exec(sandbox.id, ["sh", "-c", script]))
    return out.decode(), err.decode()


def test_the_sandbox_acts_as_the_folders_owner(host: EngineHost, project: Path) -> None:
    sandbox = claimed(host, project)
    out, err = said(
        host, sandbox, "cat /work/own; echo new > /work/new; mkdir /work/d; stat -c %u:%g /work /work/shadow"
    )
    assert (out.splitlines(), err) == (["own", "20000:20000", "65534:65534"], "")
    statuses = [(project / name).stat() for name in ("new", "d")]
    assert [(status.st_uid, status.st_gid) for status in statuses] == [(OWNER, OWNER)] * 2
    _, err = said(host, sandbox, "cat /work/shadow")
    assert "Permission denied" in err
    _, err = said(host, sandbox, "chmod 777 /work/shadow")
    assert "not permitted" in err or "too large" in err


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_nothing_is_mounted_below_what_others_may_write(host: EngineHost, tmp_path: Path, mode: int) -> None:
    (tmp_path / "mounts").mkdir(exist_ok=True)
    (tmp_path / "mounts").chmod(mode)
    config = host.create(host.new_uid(), user="20000:20000", slots=SLOTS).config
    outcome = host.engine.act(BindMounts("a", config.name, "default", config.image, config.user, SLOTS, (), "a test"))
    assert isinstance(outcome, Transient)
    assert (outcome.reason, "others than root may write to" in outcome.message) == ("MountRefused", True)


def test_links_stay_inside_and_devices_are_inert(host: EngineHost, project: Path) -> None:
    os.mknod(project / "null", 0o020666, os.makedev(1, 3))
    sandbox = claimed(host, project)
    out, _ = said(host, sandbox, "cat /work/out")
    assert out.strip() == "box", "the box's own /etc/hostname, not the host's"
    _, err = said(host, sandbox, "echo x > /work/null")
    assert "Permission denied" in err
    out, _ = said(host, sandbox, "grep ' /work ' /proc/self/mountinfo | tail -1")
    assert "nosuid,nodev" in out


def test_a_read_only_mount_can_not_be_written(host: EngineHost, project: Path) -> None:
    sandbox = claimed(host, project, read_only=True)
    _, err = said(host, sandbox, "touch /work/new; mount -o remount,rw /work; umount /work; rm /work/own")
    assert "Read-only file system" in err
    assert not (project / "new").exists()
    assert (project / "own").exists()


def test_restart_and_removal_keep_the_host_folder(host: EngineHost, project: Path) -> None:
    sandbox = claimed(host, project)
    host.hand.api.restart(sandbox.id, timeout=0)  # type: ignore[attr-defined]
    host.engine.observe_now(full=True)
    out, _ = said(host, host.only(sandbox.uid), "cat /work/own")
    assert out == "own\n"
    ok(host.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))
    assert (project / "own").read_text() == "own\n"
    assert str(project) not in Path("/proc/self/mountinfo").read_text(), "nothing stays mounted"
