"""Folders bound into sandboxes, by the fake and by a real Docker Engine: before they start, and while they run."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.mounts.secrets import SecretFolder
from controller.engine.mounts.volumes import Volumes
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import CreateContainer, RemoveContainer, SignalContainer, StartContainer
from controller.kinds.planning.outcome import Ok, Terminal, Transient
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import BindMounts, HostRoot, Mount, RemoveVolumes, Slot
from controller.policy.attest.attest import differing, facts
from controller.policy.attest.mounted import missing
from controller.ports import VolumeInUse
from tests.contract.engine_hosts import EngineHost, docker_host, fake_host, ok
from tests.mounts import unmount_below

SLOTS = (Slot("/work"),)
FILE = (Slot("/run/token", file=True),)
CANARY = "canary-6f1d0c"
OWNER = 12345


@pytest.fixture
def root() -> Iterator[Path]:
    """A root of the operator's; not below a folder of the test runner's, which only that user may enter."""
    with tempfile.TemporaryDirectory(dir="/srv" if os.geteuid() == 0 else None) as temporary_directory:
        yield Path(temporary_directory)


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Iterator[EngineHost]:
    for name in ("a", "b"):
        (root / name).mkdir()
    if request.param == "fake":
        with fake_host() as created:
            created.engine.secrets = {"token"}  # type: ignore[attr-defined]
            created.engine.folders = {str(root / "a"), str(root / "b")}  # type: ignore[attr-defined]
            yield created.settled()
        return
    for name in ("a", "b"):
        os.chown(root / name, OWNER, OWNER)
    secrets = tmp_path / "secrets"
    (secrets / "default").mkdir(parents=True)
    (secrets / "default" / "token").write_text(CANARY)
    (secrets / "default" / "token").chmod(0o600)
    options = {
        "mounts_dir": tmp_path / "mounts",
        "secrets": SecretFolder(secrets),
        "volumes": Volumes(tmp_path / "volumes", 1 << 30),
    }
    try:
        with docker_host(host_roots=(HostRoot(path=str(root)),), **options) as new_host:
            yield new_host.settled()
    finally:
        unmount_below(tmp_path)


def config(host: EngineHost, uid: str, *mounts: Mount) -> ContainerConfig:
    return replace(host.create(uid, user="20000:20000", slots=SLOTS).config, mounts=mounts)


def bind(host: EngineHost, uid: str, *mounts: Mount, into: str = "") -> BindMounts:
    created = config(host, uid)
    return BindMounts(uid, created.name, "default", created.image, created.user, SLOTS, mounts, "a test", into)


def folder(root: Path, name: str, *, read_only: bool = False) -> Mount:
    return Mount("/work", "host", str(root / name), read_only)


def started(host: EngineHost, uid: str, *mounts: Mount) -> Container:
    ok(host.engine.act(bind(host, uid, *mounts)))
    create = host.create(uid, user="20000:20000", slots=SLOTS)
    ok(host.engine.act(CreateContainer(uid, replace(create.config, mounts=mounts), create.labels, "a test")))
    return again(host, uid, *mounts)


def again(host: EngineHost, uid: str, *mounts: Mount) -> Container:
    container = host.only(uid)
    ok(host.engine.act(StartContainer(uid, container.name, "a test", container.id)))
    return host.only(uid)


def wrong(host: EngineHost, uid: str, *mounts: Mount) -> str:
    container = host.only(uid)
    assert container.inside is not None
    recorded = not container.unrecorded
    created = config(host, uid, *mounts)
    return differing(fact for fact in facts(created, container.inside, bound=container.bound, recorded=recorded))


def lacking(host: EngineHost, uid: str, *mounts: Mount) -> tuple[Mount, ...]:
    container = host.only(uid)
    return missing(mounts, container.inside, container.bound, recorded=not container.unrecorded)


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_bound_before_the_start_is_there_and_as_it_was_to_be(
    host: EngineHost, root: Path, *, read_only: bool
) -> None:
    uid, mount = host.new_uid(), folder(root, "a", read_only=read_only)
    sandbox = started(host, uid, mount)
    assert missing((mount,), sandbox.inside, sandbox.bound) == ()
    assert wrong(host, uid, mount) == ""
    assert sandbox.inside is not None
    (observed_mount,) = (entry for entry in sandbox.inside.mounts if entry.path == "/work")
    assert observed_mount.writable is not read_only


def test_a_folder_is_bound_into_a_sandbox_that_runs_and_outlives_its_restart(host: EngineHost, root: Path) -> None:
    uid, mount = host.new_uid(), folder(root, "a")
    sandbox = started(host, uid)
    assert missing((mount,), sandbox.inside, sandbox.bound) == (mount,)
    assert wrong(host, uid) == "", "an empty place is narrower than anything"
    for _ in range(2):  # done again it is done
        assert host.engine.act(bind(host, uid, mount, into=sandbox.id)) == Ok(sandbox.id)
    now = host.only(uid)
    assert (missing((mount,), now.inside, now.bound), wrong(host, uid, mount)) == ((), "")
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    host.until(lambda: host.state(uid) == "exited")
    now = again(host, uid)
    assert (missing((mount,), now.inside, now.bound), wrong(host, uid, mount)) == ((), "")


def test_a_folder_that_is_renamed_or_removed_on_the_host_is_the_same_folder(host: EngineHost, root: Path) -> None:
    uid, mount = host.new_uid(), folder(root, "a")
    sandbox = started(host, uid, mount)
    (root / "a").rename(root / "renamed")
    (root / "a").mkdir()
    for _ in range(2):
        assert host.engine.observe_container(sandbox.id) == ""
        assert wrong(host, uid, mount) == ""
        assert missing((mount,), (now := host.only(uid)).inside, now.bound) == ()
    (root / "renamed").rmdir()
    assert host.engine.observe_container(sandbox.id) == ""
    assert wrong(host, uid, mount) == ""


def test_another_daemon_knows_what_is_bound(host: EngineHost, root: Path) -> None:
    uid, mount = host.new_uid(), folder(root, "b")
    sandbox = started(host, uid, mount)
    assert sandbox.bound == host.only(uid).bound != ()
    assert [bound_mount.mount for bound_mount in sandbox.bound] == [str(mount)]


def test_without_its_places_a_container_is_not_made(host: EngineHost) -> None:
    uid = host.new_uid()
    assert isinstance(host.engine.act(host.create(uid, slots=SLOTS)), Terminal)


def test_a_folder_that_is_not_there_is_refused_and_nothing_is_bound(host: EngineHost, root: Path) -> None:
    uid, mount = host.new_uid(), folder(root, "gone")
    outcome = host.engine.act(bind(host, uid, mount))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "MountRefused"
    sandbox = started(host, uid, folder(root, "a"))
    assert isinstance(host.engine.act(bind(host, uid, mount, into=sandbox.id)), Transient)
    assert [bound_mount.mount for bound_mount in host.only(uid).bound] == [str(folder(root, "a"))]


def test_memory_of_its_own_is_bound_as_a_folder_is(host: EngineHost) -> None:
    uid, mount = host.new_uid(), Mount("/work", "memory", size_bytes=1 << 20)
    sandbox = started(host, uid)
    ok(host.engine.act(bind(host, uid, mount, into=sandbox.id)))
    assert wrong(host, uid, mount) == ""
    now = host.only(uid)
    assert missing((mount,), now.inside, now.bound) == ()


def test_what_was_bound_goes_with_the_container(host: EngineHost, root: Path) -> None:
    uid = host.new_uid()
    sandbox = started(host, uid, folder(root, "a"))
    ok(host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test")))
    assert isinstance(host.engine.act(host.create(uid, slots=SLOTS)), Terminal)


def test_a_sandbox_of_another_object_is_not_bound_into(host: EngineHost, root: Path) -> None:
    sandbox = started(host, host.new_uid())
    stranger = bind(host, host.new_uid(), folder(root, "a"), into=sandbox.id)
    assert isinstance(host.engine.act(stranger), Transient)
    assert host.only(sandbox.uid).bound == ()


def test_a_secret_is_a_file_in_memory_and_without_it_nothing_is_bound(host: EngineHost, tmp_path: Path) -> None:
    uid, secret, mount = (
        host.new_uid(),
        Mount("/run/token", "secret", "token", True),
        Mount("/run/token", "secret", "x"),
    )
    create = host.create(uid, user="20000:20000", slots=FILE, mounts=(secret,))
    places = replace(bind(host, uid), slots=FILE)
    outcome = host.engine.act(replace(places, mounts=(mount,)))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "SecretMissing"
    ok(host.engine.act(places))
    ok(host.engine.act(create))
    sandbox = again(host, uid)
    assert missing((secret,), sandbox.inside, sandbox.bound) == (secret,), "a member of a pool has none"
    ok(host.engine.act(replace(places, mounts=(secret,), container_id=sandbox.id)))
    now = host.only(uid)
    assert missing((secret,), now.inside, now.bound) == ()
    assert now.inside is not None
    assert differing(facts(create.config, now.inside, bound=now.bound)) == ""
    host.hand.unmount_inside(sandbox.name, secret.path)
    host.engine.observe_now()
    assert lacking(host, uid, secret) == (secret,)
    ok(host.engine.act(replace(places, mounts=(secret,), container_id=sandbox.id)))
    assert lacking(host, uid, secret) == ()
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    host.until(lambda: host.state(uid) == "exited")
    ok(host.engine.act(replace(places, mounts=(secret,))))
    now = again(host, uid)
    assert missing((secret,), now.inside, now.bound) == ()


VOLUME = Mount("/work", "volume", "data", size_bytes=8 << 20)
MEMORY = Mount("/work", "memory", size_bytes=1 << 20)


@pytest.mark.parametrize("mount", [VOLUME, MEMORY], ids=["volume", "memory"])
@pytest.mark.parametrize("claimed", [False, True], ids=["from its start", "claimed"])
def test_an_unmount_inside_is_noticed_and_bound_again(host: EngineHost, mount: Mount, *, claimed: bool) -> None:
    uid = host.new_uid()
    sandbox = started(host, uid) if claimed else started(host, uid, mount)
    ok(host.engine.act(bind(host, uid, mount, into=sandbox.id)))
    host.hand.write_inside(sandbox.name, "/work/file", "kept")
    host.hand.unmount_inside(sandbox.name, "/work")
    host.engine.observe_now()
    assert (lacking(host, uid, mount), wrong(host, uid, mount)) == ((mount,), ""), "narrower than asked for"
    assert host.engine.act(bind(host, uid, mount, into=sandbox.id)) == Ok(sandbox.id)
    assert (lacking(host, uid, mount), wrong(host, uid, mount)) == ((), "")
    assert host.hand.read_inside(sandbox.name, "/work/file") == "kept"


def test_mount_points_unmounted_on_the_host_are_mounted_again(host: EngineHost) -> None:
    uid = host.new_uid()
    sandbox = started(host, uid)
    ok(host.engine.act(bind(host, uid, VOLUME, into=sandbox.id)))
    host.hand.write_inside(sandbox.name, "/work/file", "kept")
    host.hand.unmount_places(sandbox.name)
    host.hand.unmount_inside(sandbox.name, "/work")
    host.engine.observe_now()
    assert lacking(host, uid, VOLUME) == (VOLUME,)
    assert host.engine.act(bind(host, uid, VOLUME, into=sandbox.id)) == Ok(sandbox.id)
    assert (lacking(host, uid, VOLUME), wrong(host, uid, VOLUME)) == ((), "")
    assert host.hand.read_inside(sandbox.name, "/work/file") == "kept"


def test_a_lost_record_makes_no_mount_foreign(host: EngineHost) -> None:
    uid = host.new_uid()
    sandbox = started(host, uid, VOLUME)
    host.hand.lose_record(sandbox.name)
    host.next_daemon()
    assert (host.only(uid).unrecorded, lacking(host, uid, VOLUME), wrong(host, uid, VOLUME)) == (True, (), "")
    host.hand.unmount_inside(sandbox.name, "/work")
    host.engine.observe_now()
    assert lacking(host, uid, VOLUME) == (VOLUME,)
    assert host.engine.act(bind(host, uid, VOLUME, into=sandbox.id)) == Ok(sandbox.id)
    assert (lacking(host, uid, VOLUME), wrong(host, uid, VOLUME)) == ((), "")
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    host.until(lambda: host.state(uid) == "exited")
    ok(host.engine.act(bind(host, uid, VOLUME)))
    again(host, uid)
    assert (host.only(uid).unrecorded, wrong(host, uid, VOLUME)) == (False, "")


def test_a_use_is_observed_at_once(host: EngineHost) -> None:
    uid = host.new_uid()
    sandbox = started(host, uid)
    host.engine.mark_used(sandbox.id)
    [now] = host.engine.observe().containers[uid]
    assert now.is_used
    host.engine.observe_now()
    assert host.only(uid).is_used
    assert host.engine.observe_container(sandbox.id) == ""
    assert host.only(uid).is_used


def test_a_use_is_recorded_for_the_next_daemon(host: EngineHost) -> None:
    uid = host.new_uid()
    sandbox = started(host, uid)
    assert not sandbox.is_used
    host.engine.mark_used(sandbox.id)
    host.next_daemon()
    assert host.only(uid).is_used


def test_a_volume_is_bound_as_a_folder_is(host: EngineHost) -> None:
    uid, mount = host.new_uid(), Mount("/work", "volume", "data", size_bytes=8 << 20)
    sandbox = started(host, uid)
    ok(host.engine.act(bind(host, uid, mount, into=sandbox.id)))
    now = host.only(uid)
    assert (missing((mount,), now.inside, now.bound), wrong(host, uid, mount)) == ((), "")


OWN = Mount("/work", "volume", "data-a", size_bytes=8 << 20, claimed_by="a")


def test_a_sandboxs_own_volume_is_never_anothers(host: EngineHost) -> None:
    sandbox = started(host, host.new_uid(), OWN)
    outcome = host.engine.act(bind(host, host.new_uid(), replace(OWN, claimed_by="b")))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "MountRefused"
    by_name = bind(host, host.new_uid(), replace(OWN, claimed_by="", read_only=True))
    assert isinstance(host.engine.act(by_name), Ok), "whoever names it asks for just that one"
    for by in ("b", "a"):
        (observed,) = host.engine.kept_volumes.list("default")  # type: ignore[attr-defined]
        assert (observed.name, observed.size_bytes, observed.claimed_by) == ("data-a", 8 << 20, "a")
        ok(host.engine.act(RemoveVolumes(sandbox.uid, sandbox.name, "default", ("data-a",), "a test", claimed_by=by)))
    assert not host.engine.kept_volumes.list()  # type: ignore[attr-defined]


def test_one_that_all_may_name_never_becomes_a_sandboxs_own(host: EngineHost) -> None:
    started(host, host.new_uid(), replace(OWN, claimed_by=""))
    outcome = host.engine.act(bind(host, host.new_uid(), OWN))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "MountRefused"


def test_volumes_are_listed_and_removed_once_no_container_has_them(host: EngineHost) -> None:
    uid, volumes = host.new_uid(), host.engine.kept_volumes  # type: ignore[attr-defined]
    sandbox = started(host, uid, OWN)
    (observed,) = volumes.list("default")
    assert observed.mounted
    assert volumes.is_mounted("default", "data-a")
    assert not volumes.list("def*")
    with pytest.raises(VolumeInUse):
        volumes.remove("default", "data-a")
    ok(host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test")))
    assert not volumes.is_mounted("default", "data-a")
    (stored,) = volumes.list()
    assert (stored.uid, stored.mounted) == (observed.uid, False)
    for _ in range(2):
        volumes.remove("default", "data-a")
    assert not volumes.list()


def test_a_volume_grows_with_its_sandbox_is_never_made_smaller_and_goes_when_told(
    host: EngineHost, tmp_path: Path
) -> None:
    uid, mount = host.new_uid(), Mount("/work", "volume", "data", size_bytes=8 << 20)
    sandbox = started(host, uid, mount)
    smaller = host.engine.act(bind(host, uid, replace(mount, size_bytes=4 << 20), into=sandbox.id))
    assert isinstance(smaller, Transient)
    assert smaller.reason == "MountRefused"
    larger = replace(mount, size_bytes=32 << 20)
    done = host.engine.act(bind(host, uid, larger, into=sandbox.id))
    if isinstance(done, Transient):  # a kernel that lets nobody do that while it is in use: then at its next start
        assert "suspend the sandboxes that use it" in done.message
    now = host.only(uid)
    assert [bound_mount.size_bytes for bound_mount in now.bound] == [
        8 << 20 if isinstance(done, Transient) else 32 << 20
    ]
    assert wrong(host, uid, larger if isinstance(done, Ok) else mount) == "", "what was bound is there still"
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    host.until(lambda: host.state(uid) == "exited")
    host.until(lambda: isinstance(host.engine.act(bind(host, uid, larger)), Ok))
    now = again(host, uid)
    assert [bound_mount.size_bytes for bound_mount in now.bound] == [32 << 20]
    assert wrong(host, uid, larger) == ""
    ok(host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test")))
    for _ in range(2):
        ok(host.engine.act(RemoveVolumes(uid, sandbox.name, "default", ("data",), "a test")))
    assert not list(tmp_path.glob("volumes/*/*"))
    started(host, uid, replace(mount, size_bytes=4 << 20))
