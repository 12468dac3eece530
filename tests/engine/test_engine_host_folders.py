"""Host folders: refused ones under any name, and the checked folder is the mounted one.

On the real kernel, without a Docker Engine: mounts are made and let go of without ever being anywhere.
"""

import contextlib
import os
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.kernel import mount_calls
from controller.engine.kernel.idmap import IdMaps, Ids, extents, mapped
from controller.engine.mounts.host_folders import Refused, folder_tree
from controller.kinds.runtime.mount import HostRoot, Mount
from tests.daemon import wait_for

pytestmark = pytest.mark.docker  # it takes root, as the engine does
USER, OWNER = Ids(20000, 20000), Ids(12345, 12346)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/srv") as temporary_directory:
        yield Path(temporary_directory)


@pytest.fixture
def maps() -> Iterator[IdMaps]:
    id_maps = IdMaps()
    yield id_maps
    id_maps.close()


def project(root: Path, name: str = "app", owner: Ids = OWNER) -> Path:
    path = root / name
    path.mkdir(parents=True)
    os.chown(path, owner.uid, owner.gid)
    return path


def tree(root: Path, path: Path | str, maps: IdMaps, *, read_only: bool = False, namespace: str = "default") -> int:
    roots = (HostRoot(path=str(root), namespaces=("default", "team-*")),)
    return folder_tree(Mount("/work", "host", str(path), read_only), namespace, roots, USER, maps)


def refusal(root: Path, path: Path | str, maps: IdMaps, **said: object) -> str:
    with pytest.raises(Refused) as refused:
        os.close(tree(root, path, maps, **said))  # type: ignore[arg-type]
    return str(refused.value)


def test_a_host_folder_maps_its_owner(root: Path, maps: IdMaps) -> None:
    folder = project(root)
    (folder / "own").write_text("own")
    os.chown(folder / "own", OWNER.uid, OWNER.gid)
    (folder / "roots").write_text("roots")
    mount = tree(root, folder, maps)
    try:
        statuses = {name: os.stat(name, dir_fd=mount) for name in ("own", "roots", ".")}
        assert [(status.st_uid, status.st_gid) for status in statuses.values()] == [
            (20000, 20000),
            (65534, 65534),
            (20000, 20000),
        ]
    finally:
        os.close(mount)


@pytest.mark.parametrize(
    "words", ["{root}/../etc", "{root}//app", "{root}/app/", "{root}/./app", "/proc/self/root{root}/app", "//etc", "/"]
)
def test_no_way_of_writing_a_path_leads_out(root: Path, maps: IdMaps, words: str) -> None:
    project(root)
    refusal(root, words.format(root=root), maps)


def test_links_are_never_followed(root: Path, maps: IdMaps) -> None:
    inner = project(root, "real/app")
    (root / "link").symlink_to(root / "real")
    (root / "out").symlink_to("/etc")
    (root / "real" / "app2").symlink_to(inner)
    (root / "magic").symlink_to(f"/proc/self/fd/{os.open('/', os.O_RDONLY)}")
    for entry in ("link/app", "link", "out", "out/ssl", "real/app2", "magic", "magic/etc"):
        assert "contains a link" in refusal(root, root / entry, maps), entry


def test_only_folders_are_bound(root: Path, maps: IdMaps) -> None:
    (root / "file").write_text("")
    os.mkfifo(root / "fifo")
    os.mknod(root / "device", stat.S_IFBLK | 0o600, os.makedev(7, 0))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(root / "socket"))
    listening.close()
    os.link(root / "file", root / "hardlink")
    for entry in ("file", "fifo", "device", "socket", "hardlink"):
        assert "is not a folder" in refusal(root, root / entry, maps), entry


def test_sockets_and_credentials_are_refused(root: Path, maps: IdMaps) -> None:
    folder = project(root)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "engine.sock"))
    listening.close()
    assert "contains a socket (engine.sock)" in refusal(root, folder, maps)
    (folder / "engine.sock").unlink()
    (folder / ".ssh").mkdir()
    assert "contains credentials (.ssh)" in refusal(root, folder, maps)
    assert "contains credentials" in refusal(root, folder / ".ssh", maps)


@pytest.mark.parametrize("system", ["/etc", "/proc", "/usr", "/"])
def test_system_folders_are_refused_under_any_name(root: Path, maps: IdMaps, system: str) -> None:
    folder = project(root, "alias")
    source = os.open(system, os.O_PATH)
    target = os.open(folder, os.O_PATH)
    mount = mount_calls.tree_of(source)
    mount_calls.attach(mount, target)
    try:
        message = refusal(root, folder, maps, read_only=True)
        assert "under another name" in message or "virtual file system of the kernel" in message
    finally:
        mount_calls.detach(str(folder))
        for number in (source, target, mount):
            os.close(number)


def test_a_root_is_for_its_namespaces_alone(root: Path, maps: IdMaps) -> None:
    folder = project(root)
    os.close(tree(root, folder, maps, namespace="team-a"))
    assert "not for namespace `others`" in refusal(root, folder, maps, namespace="others")
    inner = (HostRoot(path=str(root)), HostRoot(path=str(folder), namespaces=("team-a",), read_only=True))
    (folder / "src").mkdir()
    mount = Mount("/work", "host", str(folder / "src"), read_only=True)
    with pytest.raises(Refused, match="not for namespace `default`"):
        folder_tree(mount, "default", inner, USER, maps)
    os.close(folder_tree(mount, "team-a", inner, USER, maps))
    with pytest.raises(Refused, match="read-only here"):
        folder_tree(replace(mount, read_only=False), "team-a", inner, USER, maps)
    assert "not below a host root" in refusal(root, root, maps)


def test_root_owned_folders_are_read_only(root: Path, maps: IdMaps) -> None:
    folder = project(root, owner=Ids(0, 0))
    (folder / "key").write_text("")
    assert "belongs to root" in refusal(root, folder, maps)
    mount = tree(root, folder, maps, read_only=True)
    assert os.stat("key", dir_fd=mount).st_uid == 65534
    os.close(mount)
    assert mapped(Ids(0, 0), Ids(0, 0)) == ((65534, 0), (65534, 0)), "nor is root in the box root there"


def test_maps_of_many_sandboxes_keep_few_descriptors(root: Path) -> None:
    """Each sandbox has ids of its own; a mount keeps its map without the descriptor."""
    few, folder = IdMaps(most=1), project(root)
    (folder / "own").write_text("")
    os.chown(folder / "own", OWNER.uid, OWNER.gid)
    try:
        mount = tree(root, folder, few, read_only=True)
        first = few.of(OWNER, USER)
        assert few.of(OWNER, USER) == first
        namespace = os.fstat(first).st_ino
        few.of(OWNER, Ids(2_000_000, 2_000_000))
        with contextlib.suppress(OSError):  # its number may be another one's by now
            assert os.fstat(first).st_ino != namespace
        status = os.stat("own", dir_fd=mount)
        assert (status.st_uid, status.st_gid) == (USER.uid, USER.gid)
        os.close(mount)
    finally:
        few.close()


def test_a_swapped_folder_never_mounts_another(root: Path, maps: IdMaps) -> None:
    """Somebody exchanges the folder, and one on the way to it, for links to what is the host's own."""
    good = project(root, "way/app")
    (good / "mark").write_text("")
    (root / "evil").symlink_to("/etc")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for path in (root / "way", good):
                os.rename(path, root / "aside")
                os.rename(root / "evil", path)
                os.rename(path, root / "evil")
                os.rename(root / "aside", path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    bound = 0
    try:
        for _ in range(2000):
            try:
                mount = tree(root, good, maps, read_only=True)
            except Refused:
                continue
            bound += 1
            try:
                assert os.listdir(mount_readable(mount)) == ["mark"]
            finally:
                os.close(mount)
    finally:
        stop.set()
        swapping.join()
    assert bound


def mount_readable(mount: int) -> str:
    return f"/proc/self/fd/{mount}"


def test_id_maps_use_a_spare_or_new_namespace(root: Path, maps: IdMaps) -> None:
    """Somebody may kill the process that waits with one."""
    for number, harm in enumerate((False, True)):
        maps.prepare()
        maps.prepare()
        (holder,) = wait_for("one waits, and not two", lambda: len(observed := holders()) == 1 and observed)
        if harm:
            os.kill(holder, signal.SIGKILL)
        owner = Ids(31_000 + number, 32_000 + number)
        os.close(tree(root, project(root, f"app{number}", owner), maps))
        namespace = os.readlink(f"/proc/self/fd/{maps.of(owner, USER)}")
        assert namespace.startswith("user:")
        wait_for("who was asked for a namespace has ended", lambda one=holder: one not in holders())


def holders() -> list[int]:
    """The processes of ours that are in another user namespace than we."""
    own_text, observed = os.readlink("/proc/self/ns/user"), []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and os.readlink(path / "ns/user") != own_text:
                observed.append(int(path.name))
    return observed


def test_a_mounts_origin_matches_mountinfo(root: Path, maps: IdMaps) -> None:
    """By the mount alone, where the kernel can (Linux 6.8): the list of all mounts is long on a busy host."""
    folder, at = project(root, "a b\\c\n"), project(root, "at")
    mount, target = tree(root, folder, maps, read_only=True), os.open(at, os.O_PATH)
    try:
        mount_calls.attach(mount, target)
        opened = os.open(at, os.O_PATH)
        try:
            lines = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
            (listed,) = (f"{fields[2]} {fields[3]}" for fields in lines if fields[4] == str(at))
            assert mount_calls.origin_of(opened) in (listed, "")
        finally:
            os.close(opened)
            mount_calls.detach(str(at))
    finally:
        os.close(target)
        os.close(mount)


def test_root_may_give_a_volumes_files_to_others() -> None:
    assert extents(20000, 0, others=True) == ((20000, 0, 1), (1, 1, 19999), (20001, 20001, 45533))
    assert extents(20000, 30000, others=True) == ((20000, 30000, 1),), "only root of a sandbox has other users"
    assert extents(20000, 0, others=False) == ((20000, 0, 1),)
