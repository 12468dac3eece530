"""A box's files on the fake and on a real Docker Engine: read-only root, tmpfs, and whatever an enemy put there."""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.archive.tar import END, Entry, Reader, header
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import PauseContainer
from controller.kinds.runtime.container import Limits, Tmpfs
from controller.kinds.runtime.files import TAKES, FileError, FileRequest
from controller.ports import FileWork
from tests.contract.engine_worlds import World, docker_world, fake_world, ok, read_all
from tests.daemon import wait_for
from tests.examples import examples

MIB = 1 << 20
ROOMY = Limits(cpu_millicores=2000, memory_bytes=256 * MIB, pids=32)
WORKSPACE = (Tmpfs("/workspace", 160 * MIB), Tmpfs("/tmp", 16 * MIB))
NAME = st.text(min_size=1, max_size=60).filter(
    lambda each: (
        not set(each) & {"/", "\0"}
        and each not in (".", "..")
        and each.encode("utf-8", "ignore").decode() == each
        and len(each.encode()) < 250
    )
)


class Box:
    """A running sandbox and what is done with its files."""

    def __init__(self, world: World) -> None:
        self.world = world
        uid = world.new_uid()
        self.container: Container = world.running(uid, user="20000:20000", tmpfs=WORKSPACE, limits=ROOMY)
        files: Any = world.engine.files  # type: ignore[attr-defined]  # every engine of the suite has it
        self.files, self.real = files, not hasattr(files, "root")

    def begin(self, op: Any, path: str, **asked: Any) -> FileWork:
        return self.files.begin(self.container, FileRequest(op, path, **{"max_bytes": 1 << 33, **asked}))

    def ask(self, op: Any, path: str, **asked: Any) -> dict[str, Any]:
        with closing(self.begin(op, path, **asked)) as work:
            return dict(work.result())

    def send(self, op: Any, path: str, data: Iterable[bytes], **asked: Any) -> dict[str, Any]:
        with closing(self.begin(op, path, **asked)) as work:
            for entry in data:
                work.send(entry)
            work.end()
            return dict(work.result())

    def receive(self, op: Any, path: str, **asked: Any) -> bytes:
        with closing(self.begin(op, path, **asked)) as work:
            work.result()
            observed = []
            while piece := work.receive():
                observed.append(piece)
            work.result()
            return b"".join(observed)

    def make(self, *command: str) -> None:
        """Something in the sandbox as its own user makes it; on the fake, at its folder."""
        if self.real:
            _, answer, code = read_all(self.world.streams.exec(self.container.id, command))
            assert code == b"0", answer
            return
        root = self.files.root(self.container.id)
        if command[0] == "mkfifo":
            os.mkfifo(f"{root}{command[1]}")
        elif command[0] == "ln":
            os.symlink(command[2], f"{root}{command[3]}")

    def any(self, op: Any, path: str, **asked: Any) -> Any:
        """One byte of input where it takes some."""
        if op in TAKES:
            return self.send(op, path, [b"x"], **asked)
        return self.receive(op, path, **asked) if op in ("read", "pack") else self.ask(op, path, **asked)

    def fails(self, kind: str, op: Any, path: str, **asked: Any) -> str:
        with pytest.raises(FileError) as caught:
            self.any(op, path, **asked)
        assert caught.value.kind == kind, caught.value
        return str(caught.value)


@pytest.fixture(scope="module", params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    with (fake_world if request.param == "fake" else docker_world)() as created:
        yield Box(created.settled())


def test_what_is_written_is_read_again_and_belongs_to_the_sandboxes_user(box: Box) -> None:
    answer = box.send("write", "/workspace/file", [b"one", b"two"], mode=0o751)
    assert (answer["name"], answer["type"], answer["size"], answer["mode"]) == ("file", "file", 6, "0751")
    assert box.receive("read", "file") == b"onetwo"
    observed = box.ask("stat", "/workspace/file")
    assert (observed["size"], observed["mode"]) == (6, "0751")
    if box.real:
        assert (observed["uid"], observed["gid"]) == (20000, 20000)
        read_back = box.world.streams.exec(box.container.id, ["cat", "/workspace/file"])
        assert read_all(read_back)[0] == b"onetwo"
    box.send("write", "/workspace/file", [])
    assert box.ask("stat", "/workspace/file")["mode"] == "0751"  # kept
    assert box.receive("read", "/workspace/file") == b""


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(name=NAME, pieces=st.lists(st.binary(max_size=70_000), max_size=4))
def test_any_name_and_any_content(box: Box, name: str, pieces: list[bytes]) -> None:
    path = f"/tmp/{name}"
    box.send("write", path, pieces)
    assert box.receive("read", path) == b"".join(pieces)
    assert name in [entry["name"] for entry in box.ask("list", "/tmp", limit=10_000)["items"]]
    box.ask("remove", path)
    box.fails("NotFound", "stat", path)


def test_a_sparse_file_takes_no_room(box: Box) -> None:
    """Larger than its tmpfs, on the way in and, since reading a hole can fill it, on the way out."""
    size, zeros = 200 * MIB, bytes(4 * MIB)
    head = header(Entry(b"sparse", size=size))
    answer = box.send("unpack", "/workspace", [head, b"x" + zeros[1:], *[zeros] * (size // len(zeros) - 1), END])
    assert (answer["files"], answer["bytes"]) == (1, size)
    for receive in (box.receive("read", "/workspace/sparse"), box.receive("pack", "/workspace/sparse")[512:-1024]):
        assert (len(receive), receive[:2], receive.count(0)) == (size, b"x\0", size - 1)
    if box.real:
        output = box.world.streams.exec(box.container.id, ["du", "-k", "/workspace/sparse"])
        assert int(read_all(output)[0].split()[0]) < 1024
    box.ask("remove", "/workspace/sparse")


def test_a_folder_of_endless_names_is_listed_in_part(box: Box) -> None:
    target = b"x" * 4000
    links = (header(Entry(b"%04d" % number, "link", target=target)) for number in range(1500))
    box.send("unpack", "/tmp", [*links, END])
    listed = box.ask("list", "/tmp", limit=10_000)
    assert listed["truncated"] is True
    assert 100 < len(listed["items"]) < 1500


def test_folders(box: Box) -> None:
    box.ask("mkdir", "/tmp/a/b/c", parents=True)
    box.ask("mkdir", "/tmp/a/b/c", parents=True)
    box.fails("Exists", "mkdir", "/tmp/a/b")
    box.fails("NotFound", "mkdir", "/tmp/none/b")
    box.send("write", "/tmp/a/file", [b"x"])
    listed = box.ask("list", "/tmp/a")
    assert [(entry["name"], entry["type"]) for entry in listed["items"]] == [("b", "folder"), ("file", "file")]
    assert listed["truncated"] is False
    assert box.ask("list", "/tmp/a", limit=1)["truncated"] is True
    box.fails("NotAFolder", "list", "/tmp/a/file")
    box.fails("IsAFolder", "read", "/tmp/a")
    box.fails("IsAFolder", "write", "/tmp/a")
    box.fails("NotEmpty", "remove", "/tmp/a")
    box.ask("remove", "/tmp/a", recursive=True)
    box.fails("NotFound", "stat", "/tmp/a")


def test_a_file_or_folder_is_moved(box: Box) -> None:
    box.ask("mkdir", "/tmp/from/deep", parents=True)
    box.send("write", "/tmp/from/deep/file", [b"x"])
    assert box.ask("move", "/tmp/from", target="/tmp/to/new", parents=True)["type"] == "folder"
    box.fails("NotFound", "stat", "/tmp/from")
    assert box.receive("read", "/tmp/to/new/deep/file") == b"x"
    box.send("write", "/tmp/to/other", [b"y"])
    box.ask("move", "/tmp/to/new/deep/file", target="/tmp/to/other")  # what was there is replaced
    assert box.receive("read", "/tmp/to/other") == b"x"
    box.fails("NotFound", "move", "/tmp/none", target="/tmp/new/folder", parents=True)
    box.fails("NotFound", "stat", "/tmp/new")
    box.fails("BadPath", "move", "/tmp/to", target="/")
    if box.real:
        assert "different file systems" in box.fails("BadPath", "move", "/tmp/to", target="/workspace/to")
    box.ask("remove", "/tmp/to", recursive=True)


def test_a_tree_is_listed_to_a_depth(box: Box) -> None:
    box.ask("mkdir", "/tmp/a/b/c", parents=True)
    box.send("write", "/tmp/a/b/file", [b"x"])
    box.make("ln", "-s", ".", "/tmp/a/loop")

    def names(depth: int) -> list[str]:
        return [entry["name"] for entry in box.ask("list", "/tmp/a", depth=depth)["items"]]

    assert names(1) == ["b", "loop"]
    assert names(2) == ["b", "b/c", "b/file", "loop"]
    assert names(64) == names(3) == names(2)
    assert box.ask("list", "/tmp/a", depth=9, limit=2)["truncated"] is True
    box.ask("remove", "/tmp/a", recursive=True)


def test_relative_paths_begin_where_commands_run(box: Box) -> None:
    box.send("write", "relative/deep/file", [b"x"], parents=True)
    box.fails("NotFound", "write", "missing/file")
    assert box.receive("read", "/workspace/relative/deep/file") == b"x"
    assert "relative" in [entry["name"] for entry in box.ask("list", ".")["items"]]
    assert (box.ask("stat", ".")["name"], box.ask("stat", "relative/.")["name"]) == ("workspace", "relative")
    box.send("unpack", "relative/new/tree", [tree()], parents=True)
    names = {entry.name for entry in Reader(io.BytesIO(box.receive("pack", "relative/.", top=".")).read)}
    assert {b"deep/file", b"new/tree/d/run"} <= names
    box.fails("BadPath", "remove", ".", recursive=True)
    box.ask("remove", "relative", recursive=True)
    if box.real:
        answer = read_all(box.world.streams.exec(box.container.id, ["pwd"]))[0]
        assert answer == b"/workspace\n"


def test_a_tilde_is_the_users_home(box: Box) -> None:
    homed = Box(box.world)
    homed.container = box.world.running(
        box.world.new_uid(), user="20000:20000", tmpfs=WORKSPACE, limits=ROOMY, env=(("HOME", "/tmp/../tmp/me"),)
    )
    homed.send("write", "~/file", [b"x"], parents=True)
    assert homed.receive("read", "/tmp/me/file") == b"x"
    assert homed.ask("stat", "~")["name"] == "me"
    homed.send("write", "./~", [b"y"])
    assert homed.receive("read", "/workspace/~") == b"y"
    if box.real:
        answer = read_all(box.world.streams.exec(box.container.id, ["sh", "-c", "echo $HOME"]))[0]
        assert box.ask("stat", "~", follow=False)["name"] == (answer.decode().strip().rpartition("/")[2] or "/")


def test_what_can_not_be_done_says_so(box: Box) -> None:
    box.fails("NotFound", "read", "/workspace/none")
    box.fails("BadPath", "remove", "/")
    box.fails("BadPath", "remove", "/workspace/..")
    box.fails("BadPath", "write", "/workspace/..")
    box.fails("BadPath", "stat", "a\0b")
    box.fails("BadPath", "stat", "/workspace/" + "x" * 300)
    if box.real:
        assert "read-only" in box.fails("ReadOnly", "write", "/etc/file")


def test_paths_end_at_the_sandboxes_root_whatever_leads_where(box: Box) -> None:
    secret = "/etc/hostname"
    box.make("ln", "-s", "../../../../../../../../etc", "/workspace/up")
    box.make("ln", "-s", "/etc/shadow", "/workspace/abs")
    box.make("ln", "-s", "loop", "/workspace/loop")
    with open(secret, "rb") as file:
        ours = file.read()
    for path in ("/../../../.." + secret, "/workspace/../../../.." + secret, "/workspace/up/hostname"):
        with suppress(FileError):
            assert box.receive("read", path) != ours
    box.fails("BadPath", "read", "/workspace/loop")
    assert box.ask("stat", "/workspace/abs", follow=False)["target"] == "/etc/shadow"
    box.send("write", "/workspace/abs", [b"x"])  # the link is replaced, not followed
    assert box.ask("stat", "/workspace/abs", follow=False)["type"] == "file"


def test_what_blocks_is_never_opened(box: Box) -> None:
    box.make("mkfifo", "/tmp/fifo")
    assert box.ask("stat", "/tmp/fifo")["type"] == "other"
    box.fails("NotAFile", "read", "/tmp/fifo")
    entries = {entry.name: entry.type for entry in Reader(io.BytesIO(box.receive("pack", "/tmp", top="t")).read)}
    assert entries[b"PADDOCK.skipped"] == "note"
    assert b"t/fifo" not in entries
    if box.real:
        for path in ("/dev/null", "/dev/zero", "/proc/kmsg", "/proc/1/mem", "/sys/kernel/profiling"):
            with pytest.raises(FileError):
                box.receive("read", path)
        box.fails("NotAFile", "list", "/proc")
    box.ask("remove", "/tmp/fifo")


def tree() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name, type_, data, link in (
            ("d", tarfile.DIRTYPE, b"", ""),
            ("d/run", tarfile.REGTYPE, b"#!", ""),
            ("d/to", tarfile.SYMTYPE, b"", "/anywhere"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.size, info.linkname = type_, 0o755, len(data), link
            info.uid = info.gid = 12345
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_a_tree_goes_in_and_comes_out(box: Box) -> None:
    box.ask("mkdir", "/tmp/tree")
    done = box.send("unpack", "/tmp/tree", [tree()])
    assert (done["files"], done["leftOut"]) == (2, [])
    out = list(Reader(io.BytesIO(box.receive("pack", "/tmp/tree/d", top="e")).read))
    assert {entry.name: (entry.type, entry.mode, entry.target) for entry in out} == {
        b"e/": ("folder", 0o755, b""),
        b"e/run": ("file", 0o755, b""),
        b"e/to": ("link", 0o777, b"/anywhere"),
    }
    if box.real:
        assert box.ask("stat", "/tmp/tree/d/run")["uid"] == 20000
    reader = list(Reader(io.BytesIO(box.receive("pack", "/tmp/tree/d/run", top="x")).read))
    assert [(entry.name, entry.type) for entry in reader] == [(b"x", "file")]
    box.ask("remove", "/tmp/tree", recursive=True)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_an_archive_writes_nothing_outside_of_its_folder(box: Box, name: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        file.addfile(tarfile.TarInfo(name))
    box.ask("mkdir", "/tmp/into", parents=True)
    with pytest.raises(FileError) as caught:
        box.send("unpack", "/tmp/into", [out.getvalue()])
    assert caught.value.kind == "Unsafe"
    box.fails("NotFound", "stat", "/tmp/x")
    box.fails("NotFound", "stat", "/x")


def test_an_archive_is_not_written_through_a_link_in_the_sandbox(box: Box) -> None:
    box.ask("mkdir", "/tmp/links", parents=True)
    box.make("ln", "-s", "/workspace", "/tmp/links/d")
    with pytest.raises(FileError, match="symlink") as caught:
        box.send("unpack", "/tmp/links", [tree()])
    assert caught.value.kind == "Unsafe"
    box.fails("NotFound", "stat", "/workspace/run")


def test_sizes_are_bounded(box: Box) -> None:
    with pytest.raises(FileError) as caught:
        box.send("write", "/tmp/large", [b"x" * 600, b"x" * 600], max_bytes=1000)
    assert caught.value.kind == "TooLarge"
    box.fails("NotFound", "stat", "/tmp/large")
    box.send("write", "/tmp/large", [b"x" * 1001])
    box.fails("TooLarge", "read", "/tmp/large", max_bytes=1000)
    box.fails("TooLarge", "pack", "/tmp/large", max_bytes=1000)
    box.ask("remove", "/tmp/large")


def test_an_upload_that_breaks_off_leaves_what_was_there(box: Box) -> None:
    box.send("write", "/tmp/kept", [b"before"])
    work = box.begin("write", "/tmp/kept")
    work.send(b"x" * 300_000)
    work.close()
    with pytest.raises(FileError):
        work.send(b"more")
    assert box.receive("read", "/tmp/kept") == b"before"
    assert [entry["name"] for entry in box.ask("list", "/tmp")["items"] if entry["name"].startswith(".paddock")] == []
    box.ask("remove", "/tmp/kept")


def test_closing_lets_go_of_whoever_waits(box: Box) -> None:
    """A transfer that nobody reads is ended by its close, at once, and its process is gone."""
    box.send("write", "/workspace/much", [b"x" * MIB] * 8)
    work = box.begin("read", "/workspace/much")
    work.result()
    work.close()
    assert work.receive() == b""
    work.close()
    if box.real:
        pid = work.pid  # type: ignore[attr-defined]
        wait_for("the worker is gone", lambda: not os.path.exists(f"/proc/{pid}"))
    box.ask("remove", "/workspace/much")


def test_a_hundred_mebibytes_each_way_are_the_same(box: Box) -> None:
    piece = os.urandom(MIB)
    parts = [bytes([number]) + piece for number in range(100)]
    box.send("write", "/workspace/large", parts)
    hexdigest = hashlib.sha256(b"".join(parts)).hexdigest()
    assert hashlib.sha256(box.receive("read", "/workspace/large")).hexdigest() == hexdigest
    box.ask("remove", "/workspace/large")


@pytest.mark.docker
def test_a_write_counts_as_the_sandboxes_memory_and_ends_only_itself(docker_box: Box) -> None:
    box = docker_box
    box.send("write", "/workspace/fits", [b"x" * MIB] * 20)
    with pytest.raises(FileError, match="memory limit") as caught:
        box.send("write", "/workspace/much", [b"x" * MIB] * 60)
    assert caught.value.kind == "NoSpace"
    assert box.world.only(box.container.uid).state == "running"
    assert not [entry for entry in box.ask("list", "/workspace")["items"] if entry["name"].startswith(".paddock")]
    _, _, code = read_all(box.world.streams.exec(box.container.id, ["true"]))
    assert code == b"0"


@pytest.fixture
def docker_box() -> Iterator[Box]:
    with docker_world() as created:
        sandbox = Box(created.settled())
        uid = created.new_uid()
        small = Limits(cpu_millicores=1000, memory_bytes=48 * MIB, pids=32)
        sandbox.container = created.running(uid, user="20000:20000", tmpfs=WORKSPACE, limits=small)
        yield sandbox


@pytest.mark.docker
def test_a_sandbox_that_ends_takes_its_transfers_along(docker_box: Box) -> None:
    box = docker_box
    work: Any = box.begin("write", "/workspace/file")
    work.send(b"x")
    box.world.hand.kill(box.container.name)
    wait_for("the worker is gone", lambda: work._wait_for_exit(0) is not None)
    with pytest.raises(FileError) as caught:
        work.send(b"x" * MIB)
    assert caught.value.kind == "NotRunning"
    work.close()
    with pytest.raises(FileError) as caught:
        box.begin("stat", "/")
    assert caught.value.kind in ("NotRunning", "Failed")


@pytest.mark.docker
def test_a_paused_sandbox_can_be_looked_at_and_not_written_to(docker_box: Box) -> None:
    box = docker_box
    box.send("write", "/tmp/file", [b"x"])
    ok(box.world.engine.act(PauseContainer(box.container.uid, box.container.name, box.container.id, "a test")))
    box.container = box.world.only(box.container.uid)
    assert box.receive("read", "/tmp/file") == b"x"
    assert "paused" in box.fails("NotRunning", "write", "/tmp/file")


@pytest.mark.docker
def test_the_worker_is_the_sandboxes_user_with_no_rights_left(docker_box: Box) -> None:
    docker_box.send("write", "/tmp/file", [b"x" * (4 * MIB)])
    work: Any = docker_box.begin("read", "/tmp/file")
    work.result()  # it has opened the file, and waits for somebody to read all that
    with open(f"/proc/{work.pid}/status") as file:
        parts = {line.partition(":")[0]: line.partition(":")[2].strip() for line in file}
    assert set(parts["Uid"].split()) | set(parts["Gid"].split()) == {"20000"}
    assert {int(parts[entry], 16) for entry in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert parts["NoNewPrivs"] == "1"
    work.close()


@pytest.mark.docker
def test_a_worker_holds_its_own_descriptors_and_outlives_no_server(docker_box: Box) -> None:
    box = docker_box
    box.send("write", "/tmp/file", [b"x" * (4 * MIB)])
    works: list[Any] = [box.begin("read", "/tmp/file") for _ in range(3)]
    for work in works:
        work.result()  # it has opened the file, and waits for somebody to read all that
        readlinks = {os.readlink(path) for path in Path(f"/proc/{work.pid}/fd").iterdir()}
        # Three streams, the sandbox's root and first process, and the file.
        assert len(readlinks) == 6, readlinks
    server = int(Path(f"/proc/{works[0].pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(server, 9)
    for work in works:
        assert work._wait_for_exit(None) == -15
        while work.receive():
            pass
        with pytest.raises(FileError):
            work.result()
        work.close()
        wait_for("it is gone", lambda pid=work.pid: not os.path.exists(f"/proc/{pid}"))
    assert box.receive("read", "/tmp/file") == b"x" * (4 * MIB)  # by another server
