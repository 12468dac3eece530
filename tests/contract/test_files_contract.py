"""A sandbox's files on the fake and on a real Docker Engine: read-only root, tmpfs, and whatever an enemy put there."""

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
from tests.contract.engine_hosts import EngineHost, docker_host, fake_host, ok, read_all
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


class RunningSandbox:
    """A running sandbox and what is done with its files."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host
        uid = host.new_uid()
        self.container: Container = host.running(uid, user="20000:20000", tmpfs=WORKSPACE, limits=ROOMY)
        files: Any = host.engine.files  # type: ignore[attr-defined]  # every engine of the suite has it
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
            _, answer, code = read_all(self.host.streams.exec(self.container.id, command))
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
def sandbox(request: pytest.FixtureRequest) -> Iterator[RunningSandbox]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        yield RunningSandbox(created.settled())


def test_what_is_written_is_read_again_and_belongs_to_the_sandboxes_user(sandbox: RunningSandbox) -> None:
    answer = sandbox.send("write", "/workspace/file", [b"one", b"two"], mode=0o751)
    assert (answer["name"], answer["type"], answer["size"], answer["mode"]) == ("file", "file", 6, "0751")
    assert sandbox.receive("read", "file") == b"onetwo"
    observed = sandbox.ask("stat", "/workspace/file")
    assert (observed["size"], observed["mode"]) == (6, "0751")
    if sandbox.real:
        assert (observed["uid"], observed["gid"]) == (20000, 20000)
        read_back = sandbox.host.streams.exec(sandbox.container.id, ["cat", "/workspace/file"])
        assert read_all(read_back)[0] == b"onetwo"
    sandbox.send("write", "/workspace/file", [])
    assert sandbox.ask("stat", "/workspace/file")["mode"] == "0751"  # kept
    assert sandbox.receive("read", "/workspace/file") == b""


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(name=NAME, pieces=st.lists(st.binary(max_size=70_000), max_size=4))
def test_any_name_and_any_content(sandbox: RunningSandbox, name: str, pieces: list[bytes]) -> None:
    path = f"/tmp/{name}"
    sandbox.send("write", path, pieces)
    assert sandbox.receive("read", path) == b"".join(pieces)
    assert name in [entry["name"] for entry in sandbox.ask("list", "/tmp", limit=10_000)["items"]]
    sandbox.ask("remove", path)
    sandbox.fails("NotFound", "stat", path)


def test_a_sparse_file_takes_no_room(sandbox: RunningSandbox) -> None:
    """Larger than its tmpfs, on the way in and, since reading a hole can fill it, on the way out."""
    size, zeros = 200 * MIB, bytes(4 * MIB)
    head = header(Entry(b"sparse", size=size))
    answer = sandbox.send("unpack", "/workspace", [head, b"x" + zeros[1:], *[zeros] * (size // len(zeros) - 1), END])
    assert (answer["files"], answer["bytes"]) == (1, size)
    for receive in (
        sandbox.receive("read", "/workspace/sparse"),
        sandbox.receive("pack", "/workspace/sparse")[512:-1024],
    ):
        assert (len(receive), receive[:2], receive.count(0)) == (size, b"x\0", size - 1)
    if sandbox.real:
        output = sandbox.host.streams.exec(sandbox.container.id, ["du", "-k", "/workspace/sparse"])
        assert int(read_all(output)[0].split()[0]) < 1024
    sandbox.ask("remove", "/workspace/sparse")


def test_a_folder_of_endless_names_is_listed_in_part(sandbox: RunningSandbox) -> None:
    target = b"x" * 4000
    links = (header(Entry(b"%04d" % number, "link", target=target)) for number in range(1500))
    sandbox.send("unpack", "/tmp", [*links, END])
    listed = sandbox.ask("list", "/tmp", limit=10_000)
    assert listed["truncated"] is True
    assert 100 < len(listed["items"]) < 1500


def test_folders(sandbox: RunningSandbox) -> None:
    sandbox.ask("mkdir", "/tmp/a/b/c", parents=True)
    sandbox.ask("mkdir", "/tmp/a/b/c", parents=True)
    sandbox.fails("Exists", "mkdir", "/tmp/a/b")
    sandbox.fails("NotFound", "mkdir", "/tmp/none/b")
    sandbox.send("write", "/tmp/a/file", [b"x"])
    listed = sandbox.ask("list", "/tmp/a")
    assert [(entry["name"], entry["type"]) for entry in listed["items"]] == [("b", "folder"), ("file", "file")]
    assert listed["truncated"] is False
    assert sandbox.ask("list", "/tmp/a", limit=1)["truncated"] is True
    sandbox.fails("NotAFolder", "list", "/tmp/a/file")
    sandbox.fails("IsAFolder", "read", "/tmp/a")
    sandbox.fails("IsAFolder", "write", "/tmp/a")
    sandbox.fails("NotEmpty", "remove", "/tmp/a")
    sandbox.ask("remove", "/tmp/a", recursive=True)
    sandbox.fails("NotFound", "stat", "/tmp/a")


def test_a_file_or_folder_is_moved(sandbox: RunningSandbox) -> None:
    sandbox.ask("mkdir", "/tmp/from/deep", parents=True)
    sandbox.send("write", "/tmp/from/deep/file", [b"x"])
    assert sandbox.ask("move", "/tmp/from", target="/tmp/to/new", parents=True)["type"] == "folder"
    sandbox.fails("NotFound", "stat", "/tmp/from")
    assert sandbox.receive("read", "/tmp/to/new/deep/file") == b"x"
    sandbox.send("write", "/tmp/to/other", [b"y"])
    sandbox.ask("move", "/tmp/to/new/deep/file", target="/tmp/to/other")  # what was there is replaced
    assert sandbox.receive("read", "/tmp/to/other") == b"x"
    sandbox.fails("NotFound", "move", "/tmp/none", target="/tmp/new/folder", parents=True)
    sandbox.fails("NotFound", "stat", "/tmp/new")
    sandbox.fails("BadPath", "move", "/tmp/to", target="/")
    if sandbox.real:
        assert "different file systems" in sandbox.fails("BadPath", "move", "/tmp/to", target="/workspace/to")
    sandbox.ask("remove", "/tmp/to", recursive=True)


def test_a_tree_is_listed_to_a_depth(sandbox: RunningSandbox) -> None:
    sandbox.ask("mkdir", "/tmp/a/b/c", parents=True)
    sandbox.send("write", "/tmp/a/b/file", [b"x"])
    sandbox.make("ln", "-s", ".", "/tmp/a/loop")

    def names(depth: int) -> list[str]:
        return [entry["name"] for entry in sandbox.ask("list", "/tmp/a", depth=depth)["items"]]

    assert names(1) == ["b", "loop"]
    assert names(2) == ["b", "b/c", "b/file", "loop"]
    assert names(64) == names(3) == names(2)
    assert sandbox.ask("list", "/tmp/a", depth=9, limit=2)["truncated"] is True
    sandbox.ask("remove", "/tmp/a", recursive=True)


def test_relative_paths_begin_where_commands_run(sandbox: RunningSandbox) -> None:
    sandbox.send("write", "relative/deep/file", [b"x"], parents=True)
    sandbox.fails("NotFound", "write", "missing/file")
    assert sandbox.receive("read", "/workspace/relative/deep/file") == b"x"
    assert "relative" in [entry["name"] for entry in sandbox.ask("list", ".")["items"]]
    assert (sandbox.ask("stat", ".")["name"], sandbox.ask("stat", "relative/.")["name"]) == ("workspace", "relative")
    sandbox.send("unpack", "relative/new/tree", [tree()], parents=True)
    names = {entry.name for entry in Reader(io.BytesIO(sandbox.receive("pack", "relative/.", top=".")).read)}
    assert {b"deep/file", b"new/tree/d/run"} <= names
    sandbox.fails("BadPath", "remove", ".", recursive=True)
    sandbox.ask("remove", "relative", recursive=True)
    if sandbox.real:
        answer = read_all(sandbox.host.streams.exec(sandbox.container.id, ["pwd"]))[0]
        assert answer == b"/workspace\n"


def test_a_tilde_is_the_users_home(sandbox: RunningSandbox) -> None:
    homed = RunningSandbox(sandbox.host)
    homed.container = sandbox.host.running(
        sandbox.host.new_uid(), user="20000:20000", tmpfs=WORKSPACE, limits=ROOMY, env=(("HOME", "/tmp/../tmp/me"),)
    )
    homed.send("write", "~/file", [b"x"], parents=True)
    assert homed.receive("read", "/tmp/me/file") == b"x"
    assert homed.ask("stat", "~")["name"] == "me"
    homed.send("write", "./~", [b"y"])
    assert homed.receive("read", "/workspace/~") == b"y"
    if sandbox.real:
        answer = read_all(sandbox.host.streams.exec(sandbox.container.id, ["sh", "-c", "echo $HOME"]))[0]
        assert sandbox.ask("stat", "~", follow=False)["name"] == (answer.decode().strip().rpartition("/")[2] or "/")


def test_what_can_not_be_done_says_so(sandbox: RunningSandbox) -> None:
    sandbox.fails("NotFound", "read", "/workspace/none")
    sandbox.fails("BadPath", "remove", "/")
    sandbox.fails("BadPath", "remove", "/workspace/..")
    sandbox.fails("BadPath", "write", "/workspace/..")
    sandbox.fails("BadPath", "stat", "a\0b")
    sandbox.fails("BadPath", "stat", "/workspace/" + "x" * 300)
    if sandbox.real:
        assert "read-only" in sandbox.fails("ReadOnly", "write", "/etc/file")


def test_paths_end_at_the_sandboxes_root_whatever_leads_where(sandbox: RunningSandbox) -> None:
    secret = "/etc/hostname"
    sandbox.make("ln", "-s", "../../../../../../../../etc", "/workspace/up")
    sandbox.make("ln", "-s", "/etc/shadow", "/workspace/abs")
    sandbox.make("ln", "-s", "loop", "/workspace/loop")
    with open(secret, "rb") as file:
        ours = file.read()
    for path in ("/../../../.." + secret, "/workspace/../../../.." + secret, "/workspace/up/hostname"):
        with suppress(FileError):
            assert sandbox.receive("read", path) != ours
    sandbox.fails("BadPath", "read", "/workspace/loop")
    assert sandbox.ask("stat", "/workspace/abs", follow=False)["target"] == "/etc/shadow"
    sandbox.send("write", "/workspace/abs", [b"x"])  # the link is replaced, not followed
    assert sandbox.ask("stat", "/workspace/abs", follow=False)["type"] == "file"


def test_what_blocks_is_never_opened(sandbox: RunningSandbox) -> None:
    sandbox.make("mkfifo", "/tmp/fifo")
    assert sandbox.ask("stat", "/tmp/fifo")["type"] == "other"
    sandbox.fails("NotAFile", "read", "/tmp/fifo")
    entries = {entry.name: entry.type for entry in Reader(io.BytesIO(sandbox.receive("pack", "/tmp", top="t")).read)}
    assert entries[b"PADDOCK.skipped"] == "note"
    assert b"t/fifo" not in entries
    if sandbox.real:
        for path in ("/dev/null", "/dev/zero", "/proc/kmsg", "/proc/1/mem", "/sys/kernel/profiling"):
            with pytest.raises(FileError):
                sandbox.receive("read", path)
        sandbox.fails("NotAFile", "list", "/proc")
    sandbox.ask("remove", "/tmp/fifo")


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


def test_a_tree_goes_in_and_comes_out(sandbox: RunningSandbox) -> None:
    sandbox.ask("mkdir", "/tmp/tree")
    done = sandbox.send("unpack", "/tmp/tree", [tree()])
    assert (done["files"], done["leftOut"]) == (2, [])
    out = list(Reader(io.BytesIO(sandbox.receive("pack", "/tmp/tree/d", top="e")).read))
    assert {entry.name: (entry.type, entry.mode, entry.target) for entry in out} == {
        b"e/": ("folder", 0o755, b""),
        b"e/run": ("file", 0o755, b""),
        b"e/to": ("link", 0o777, b"/anywhere"),
    }
    if sandbox.real:
        assert sandbox.ask("stat", "/tmp/tree/d/run")["uid"] == 20000
    reader = list(Reader(io.BytesIO(sandbox.receive("pack", "/tmp/tree/d/run", top="x")).read))
    assert [(entry.name, entry.type) for entry in reader] == [(b"x", "file")]
    sandbox.ask("remove", "/tmp/tree", recursive=True)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_an_archive_writes_nothing_outside_of_its_folder(sandbox: RunningSandbox, name: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        file.addfile(tarfile.TarInfo(name))
    sandbox.ask("mkdir", "/tmp/into", parents=True)
    with pytest.raises(FileError) as caught:
        sandbox.send("unpack", "/tmp/into", [out.getvalue()])
    assert caught.value.kind == "Unsafe"
    sandbox.fails("NotFound", "stat", "/tmp/x")
    sandbox.fails("NotFound", "stat", "/x")


def test_an_archive_is_not_written_through_a_link_in_the_sandbox(sandbox: RunningSandbox) -> None:
    sandbox.ask("mkdir", "/tmp/links", parents=True)
    sandbox.make("ln", "-s", "/workspace", "/tmp/links/d")
    with pytest.raises(FileError, match="symlink") as caught:
        sandbox.send("unpack", "/tmp/links", [tree()])
    assert caught.value.kind == "Unsafe"
    sandbox.fails("NotFound", "stat", "/workspace/run")


def test_sizes_are_bounded(sandbox: RunningSandbox) -> None:
    with pytest.raises(FileError) as caught:
        sandbox.send("write", "/tmp/large", [b"x" * 600, b"x" * 600], max_bytes=1000)
    assert caught.value.kind == "TooLarge"
    sandbox.fails("NotFound", "stat", "/tmp/large")
    sandbox.send("write", "/tmp/large", [b"x" * 1001])
    sandbox.fails("TooLarge", "read", "/tmp/large", max_bytes=1000)
    sandbox.fails("TooLarge", "pack", "/tmp/large", max_bytes=1000)
    sandbox.ask("remove", "/tmp/large")


def test_an_upload_that_breaks_off_leaves_what_was_there(sandbox: RunningSandbox) -> None:
    sandbox.send("write", "/tmp/kept", [b"before"])
    work = sandbox.begin("write", "/tmp/kept")
    work.send(b"x" * 300_000)
    work.close()
    with pytest.raises(FileError):
        work.send(b"more")
    assert sandbox.receive("read", "/tmp/kept") == b"before"
    assert [
        entry["name"] for entry in sandbox.ask("list", "/tmp")["items"] if entry["name"].startswith(".paddock")
    ] == []
    sandbox.ask("remove", "/tmp/kept")


def test_closing_lets_go_of_whoever_waits(sandbox: RunningSandbox) -> None:
    """A transfer that nobody reads is ended by its close, at once, and its process is gone."""
    sandbox.send("write", "/workspace/much", [b"x" * MIB] * 8)
    work = sandbox.begin("read", "/workspace/much")
    work.result()
    work.close()
    assert work.receive() == b""
    work.close()
    if sandbox.real:
        pid = work.pid  # type: ignore[attr-defined]
        wait_for("the worker is gone", lambda: not os.path.exists(f"/proc/{pid}"))
    sandbox.ask("remove", "/workspace/much")


def test_a_hundred_mebibytes_each_way_are_the_same(sandbox: RunningSandbox) -> None:
    piece = os.urandom(MIB)
    parts = [bytes([number]) + piece for number in range(100)]
    sandbox.send("write", "/workspace/large", parts)
    hexdigest = hashlib.sha256(b"".join(parts)).hexdigest()
    assert hashlib.sha256(sandbox.receive("read", "/workspace/large")).hexdigest() == hexdigest
    sandbox.ask("remove", "/workspace/large")


@pytest.mark.docker
def test_a_write_counts_as_the_sandboxes_memory_and_ends_only_itself(docker_sandbox: RunningSandbox) -> None:
    sandbox = docker_sandbox
    sandbox.send("write", "/workspace/fits", [b"x" * MIB] * 20)
    with pytest.raises(FileError, match="memory limit") as caught:
        sandbox.send("write", "/workspace/much", [b"x" * MIB] * 60)
    assert caught.value.kind == "NoSpace"
    assert sandbox.host.only(sandbox.container.uid).state == "running"
    assert not [entry for entry in sandbox.ask("list", "/workspace")["items"] if entry["name"].startswith(".paddock")]
    _, _, code = read_all(sandbox.host.streams.exec(sandbox.container.id, ["true"]))
    assert code == b"0"


@pytest.fixture
def docker_sandbox() -> Iterator[RunningSandbox]:
    with docker_host() as created:
        sandbox = RunningSandbox(created.settled())
        uid = created.new_uid()
        small = Limits(cpu_millicores=1000, memory_bytes=48 * MIB, pids=32)
        sandbox.container = created.running(uid, user="20000:20000", tmpfs=WORKSPACE, limits=small)
        yield sandbox


@pytest.mark.docker
def test_a_sandbox_that_ends_takes_its_transfers_along(docker_sandbox: RunningSandbox) -> None:
    sandbox = docker_sandbox
    work: Any = sandbox.begin("write", "/workspace/file")
    work.send(b"x")
    sandbox.host.hand.kill(sandbox.container.name)
    wait_for("the worker is gone", lambda: work._wait_for_exit(0) is not None)
    with pytest.raises(FileError) as caught:
        work.send(b"x" * MIB)
    assert caught.value.kind == "NotRunning"
    work.close()
    with pytest.raises(FileError) as caught:
        sandbox.begin("stat", "/")
    assert caught.value.kind in ("NotRunning", "Failed")


@pytest.mark.docker
def test_a_paused_sandbox_can_be_looked_at_and_not_written_to(docker_sandbox: RunningSandbox) -> None:
    sandbox = docker_sandbox
    sandbox.send("write", "/tmp/file", [b"x"])
    ok(
        sandbox.host.engine.act(
            PauseContainer(sandbox.container.uid, sandbox.container.name, sandbox.container.id, "a test")
        )
    )
    sandbox.container = sandbox.host.only(sandbox.container.uid)
    assert sandbox.receive("read", "/tmp/file") == b"x"
    assert "paused" in sandbox.fails("NotRunning", "write", "/tmp/file")


@pytest.mark.docker
def test_the_worker_is_the_sandboxes_user_with_no_rights_left(docker_sandbox: RunningSandbox) -> None:
    docker_sandbox.send("write", "/tmp/file", [b"x" * (4 * MIB)])
    work: Any = docker_sandbox.begin("read", "/tmp/file")
    work.result()  # it has opened the file, and waits for somebody to read all that
    with open(f"/proc/{work.pid}/status") as file:
        parts = {line.partition(":")[0]: line.partition(":")[2].strip() for line in file}
    assert set(parts["Uid"].split()) | set(parts["Gid"].split()) == {"20000"}
    assert {int(parts[entry], 16) for entry in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert parts["NoNewPrivs"] == "1"
    work.close()


@pytest.mark.docker
def test_a_worker_holds_its_own_descriptors_and_outlives_no_server(docker_sandbox: RunningSandbox) -> None:
    sandbox = docker_sandbox
    sandbox.send("write", "/tmp/file", [b"x" * (4 * MIB)])
    works: list[Any] = [sandbox.begin("read", "/tmp/file") for _ in range(3)]
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
    assert sandbox.receive("read", "/tmp/file") == b"x" * (4 * MIB)  # by another server
