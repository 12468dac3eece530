"""Files and ports by the Python client, and the naming rules of `paddock cp`; the sandbox may be hostile."""

import asyncio
import io
import os
import socket
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import AsyncPaddock
from paddock import Paddock as Client
from paddock._client.errors import ClientError, Refused
from paddock._tools import functions
from paddock._transport import aio
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.raw_client import Paddock, Sandbox

MIB = 1 << 20


class ServedSandbox:
    """A served sandbox: its client, and its root in the fake engine."""

    def __init__(self, api: ApiStack, sandbox: Sandbox, root: Path) -> None:
        self.api, self.sandbox, self.files, self.root = api, sandbox, sandbox.files, root


@pytest.fixture
def sandbox(served: ApiStack) -> Iterator[ServedSandbox]:
    served.apply()
    root = served.files.root(served.view.show(served.sandbox()).id)
    with Paddock(f"unix://{served.socket}") as paddock:
        yield ServedSandbox(served, paddock.sandbox("quickstart"), root)


def test_files_by_the_client(sandbox: ServedSandbox) -> None:
    wrote = sandbox.files.write("/tmp/a b", b"\x00\xff", mode=0o640)
    assert (wrote.name, wrote.size, wrote.mode, wrote.type) == ("a b", 2, 0o640, "file")
    assert sandbox.files.read("/tmp/a b") == b"\x00\xff"
    assert [entry.name for entry in sandbox.files.entries("/tmp")] == ["a b"]
    assert sandbox.files.find("/tmp/none") is None
    assert sandbox.files.mkdir("/tmp/d/e", parents=True).type == "folder"
    sandbox.files.remove("/tmp/d", recursive=True)
    with pytest.raises(Refused, match="no such file or folder") as refusal:
        sandbox.files.read("/tmp/none")
    assert (refusal.value.code, refusal.value.reason) == (404, "NotFound")
    assert refusal.value.has_cause("NotFound", "path")


@pytest.mark.parametrize("path", ["/tmp/none/f", "/none/deep/f"])
def test_a_missing_folder_is_named(sandbox: ServedSandbox, path: str) -> None:
    folder = path.removesuffix("/f")
    with pytest.raises(Refused, match=f"the folder {folder} does not exist; create it first") as refusal:
        sandbox.files.mkdir(path)
    assert refusal.value.has_cause("NotFound", "path")


def test_relative_paths_begin_where_commands_run(sandbox: ServedSandbox, source: Path, tmp_path: Path) -> None:
    files = Client(f"unix://{sandbox.api.socket}").sandbox("quickstart").files
    files.write("src/deep/main.py", "1")
    assert (sandbox.root / "workspace/src/deep/main.py").read_text() == "1"
    assert [file_info.name for file_info in files.list()] == ["src"]
    files.upload(source / "run", "copied")
    files.upload(source / "run", "new/folder/")
    assert tree(sandbox.root / "workspace") == {"src/deep/main.py": "1", "copied": "#!", "new/folder/run": "#!"}
    files.download("src", tmp_path / "part")
    files.download(".", tmp_path / "whole")
    assert tree(tmp_path / "part") == {"deep/main.py": "1"}
    assert tree(tmp_path / "whole") == tree(sandbox.root / "workspace")


def test_a_sparse_file_is_not_read_into_memory(sandbox: ServedSandbox) -> None:
    """It takes no room in the sandbox, and would take all of its reader's."""
    (sandbox.root / "tmp").mkdir(exist_ok=True)
    with (sandbox.root / "tmp/sparse").open("wb") as file:
        file.truncate(1 << 33)
    (sandbox.root / "tmp/small").write_bytes(b"12345")
    with Client(f"unix://{sandbox.api.socket}") as paddock:
        quickstart = paddock.sandboxes.get("quickstart")
        with pytest.raises(ClientError, match="/tmp/sparse: has over 268,435,456 bytes"):
            quickstart.files.read_bytes("/tmp/sparse")
        with pytest.raises(ClientError, match="over 4 bytes"):
            quickstart.files.read("/tmp/small", max_bytes=4)
        assert quickstart.files.read("/tmp/small", max_bytes=5) == "12345"
        [read_file] = [function for function in functions(quickstart) if function.__name__ == "read_file"]
        assert "over 8,388,608 bytes; read a part of it with a command" in read_file("/tmp/sparse")

    async def with_asyncio() -> None:
        async with AsyncPaddock(f"unix://{sandbox.api.socket}") as paddock:
            async_sandbox = await paddock.sandboxes.get("quickstart")
            with pytest.raises(ClientError, match="over 4 bytes"):
                await async_sandbox.files.read_bytes("/tmp/small", max_bytes=4)

    asyncio.run(with_asyncio())


def test_silent_connections_take_no_thread_of_others(sandbox: ServedSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "_THREADS", 1)

    async def program(port: int) -> None:
        async with AsyncPaddock(f"unix://{sandbox.api.socket}") as paddock:
            quickstart = await paddock.sandboxes.get("quickstart")
            async with await quickstart.connect(port) as connection:
                waiting = asyncio.ensure_future(connection.receive())
                await asyncio.sleep(0)  # it begins to wait
                assert await asyncio.wait_for(quickstart.files.exists("/none"), 60) is False
                waiting.cancel()
                await asyncio.wait([waiting])

    with socket.create_server(("127.0.0.1", 0)) as silent:
        sandbox.api.ports.listen(80, silent.getsockname()[1])
        asyncio.run(program(80))


def test_find_tells_a_missing_file_from_a_missing_sandbox(sandbox: ServedSandbox) -> None:
    assert sandbox.files.find("/tmp/: /tmp/none: ") is None
    missing = Sandbox(sandbox.sandbox.connection, "default", "x: /tmp: ")
    with pytest.raises(Refused) as refusal:
        missing.files.find("/tmp")
    assert (refusal.value.code, refusal.value.has_cause("NotFound", "path")) == (404, False)


def test_a_refusal_during_an_upload_is_reported(sandbox: ServedSandbox) -> None:
    with pytest.raises(Refused, match="/tmp: it is a folder; give the path of a file"):
        sandbox.files.write("/tmp", (b"x" * MIB for _ in range(50)))


def test_a_stopped_daemon_is_reported(sandbox: ServedSandbox) -> None:
    (sandbox.root / "tmp/big").write_bytes(b"x" * (8 * MIB))
    with sandbox.files.open("/tmp/big") as answer:
        answer.read(10)
        for fake_work in list(sandbox.api.files.open):
            fake_work.close()
        with pytest.raises(ClientError, match="is incomplete"):
            for _ in answer.pieces():
                pass


def test_a_truncated_archive_is_reported(sandbox: ServedSandbox, tmp_path: Path) -> None:
    (sandbox.root / "tmp/big").write_bytes(b"x" * (8 * MIB))
    with sandbox.files.archive("/tmp") as answer:
        assert answer.read(10)
        for fake_work in list(sandbox.api.files.open):
            fake_work.close()
        with pytest.raises(ClientError, match="is incomplete"):
            list(answer.pieces())


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "src"
    (path / "sub").mkdir(parents=True)
    (path / "run").write_text("#!")
    (path / "run").chmod(0o755)
    (path / "sub" / "f").write_text("f")
    (path / "to").symlink_to("sub/f")
    return path


TREE = {"run": "#!", "sub/f": "f", "to": "sub/f"}


@pytest.mark.parametrize(
    ("at", "path", "where"),
    [
        ("", "/workspace", "workspace/src"),  # into a folder that is there
        ("", "/workspace/new", "workspace/new"),  # as a name that is free
        ("/.", "/workspace", "workspace"),  # what is in it
        ("/.", "/workspace/new", "workspace/new"),
    ],
)
def test_a_folder_goes_in_and_comes_out(
    sandbox: ServedSandbox, source: Path, tmp_path: Path, at: str, path: str, where: str
) -> None:
    observed: list[int] = []
    assert sandbox.files.push(f"{source}{at}", path, progress=observed.append) == []
    assert tree(sandbox.root / where) == TREE
    assert stat.S_IMODE((sandbox.root / where / "run").stat().st_mode) == 0o755
    assert sum(observed) > 0
    (tmp_path / "out").mkdir()
    assert sandbox.files.pull(f"/{where}", tmp_path / "out") == []
    assert tree(tmp_path / "out" / Path(where).name) == TREE
    assert sandbox.files.pull(f"/{where}/.", tmp_path / "all") == []
    assert tree(tmp_path / "all") == TREE


def test_a_file_goes_in_and_comes_out(sandbox: ServedSandbox, source: Path, tmp_path: Path) -> None:
    sandbox.files.push(source / "run", "/workspace")
    sandbox.files.push(source / "run", "/workspace/other")
    sandbox.files.push(source / "to", "/workspace/followed", follow=True)
    assert tree(sandbox.root / "workspace") == {"run": "#!", "other": "#!", "followed": "f"}
    sandbox.files.pull("/workspace/run", tmp_path / "got")
    assert (tmp_path / "got").read_text() == "#!"
    with pytest.raises(ClientError, match="No such file"):
        sandbox.files.push(source / "none", "/workspace")
    with pytest.raises(ClientError, match="not a folder in the sandbox"):
        sandbox.files.push(source, "/workspace/run")
    with pytest.raises(Refused, match="no such file or folder"):
        sandbox.files.pull("/none", tmp_path)


def test_a_hostile_sandbox_writes_nothing_outside_the_target(sandbox: ServedSandbox, tmp_path: Path) -> None:
    evil = sandbox.root / "workspace" / "evil"
    (evil / "d").mkdir(parents=True)
    (evil / "abs").symlink_to("/etc/passwd")
    (evil / "d" / "up").symlink_to("../../..")
    (evil / "d" / "fine").symlink_to("../file")
    (evil / "file").write_text("x")
    os.mkfifo(evil / "fifo")
    (tmp_path / "target").mkdir()
    left_out = sandbox.files.pull("/workspace/evil", tmp_path / "target")
    assert tree(tmp_path / "target" / "evil") == {"file": "x", "d/fine": "../file"}
    assert sorted(entry.split(" ")[0] for entry in left_out) == ["evil/abs", "evil/d/up", "evil/fifo"]
    # Nor does a link from the copied folder to the target's other files, which are none of the sandbox's.
    (tmp_path / "target" / ".bashrc").write_text("mine")
    for name in ("bashrc", "d/bashrc"):
        (evil / name).symlink_to("../" * (name.count("/") + 1) + ".bashrc")
    left_out = sandbox.files.pull("/workspace/evil", tmp_path / "target")
    assert "evil/bashrc was left out: a symlink to ../.bashrc leads out of the copied tree" in left_out
    assert tree(tmp_path / "target" / "evil") == {"file": "x", "d/fine": "../file"}
    (sandbox.root / "workspace" / "alone").symlink_to(".bashrc")
    assert len(sandbox.files.pull("/workspace/alone", tmp_path / "target")) == 1
    assert sorted(os.listdir(tmp_path / "target")) == [".bashrc", "evil"]
    # And what leads out of a target that is there already is not followed.
    (tmp_path / "outside").mkdir()
    (tmp_path / "target" / "evil" / "d" / "fine").unlink()
    (tmp_path / "target" / "evil" / "d").rmdir()
    (tmp_path / "target" / "evil" / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(ClientError, match="symlink"):
        sandbox.files.pull("/workspace/evil", tmp_path / "target")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_pull_is_bounded_and_holes_are_free(sandbox: ServedSandbox, tmp_path: Path) -> None:
    with (sandbox.root / "workspace/sparse").open("wb") as file:
        file.truncate(64 * MIB)
        file.write(b"x")
    assert sandbox.files.pull("/workspace/sparse", tmp_path, max_bytes=5000) == []
    status = (tmp_path / "sparse").stat()
    assert (status.st_size, status.st_blocks * 512 < MIB) == (64 * MIB, True)
    (sandbox.root / "workspace/much").write_bytes(b"x" * 5001)
    with pytest.raises(ClientError, match=r"more than 5000 bytes.*--max-size"):
        sandbox.files.pull("/workspace/much", tmp_path, max_bytes=5000)
    with pytest.raises(ClientError, match=r"more than 2 entries.*--max-entries"):
        sandbox.files.pull("/workspace", tmp_path, max_entries=2)
    assert not (tmp_path / "much").exists()


def test_a_sparse_file_stays_sparse_in_the_sandbox(sandbox: ServedSandbox, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"x")
        file.truncate(64 * MIB)
    sandbox.files.push(tmp_path / "sparse", "/workspace")
    status = (sandbox.root / "workspace/sparse").stat()
    assert (status.st_size, status.st_blocks * 512 < MIB) == (64 * MIB, True)
    assert sandbox.files.read("/workspace/sparse") == (tmp_path / "sparse").read_bytes()


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1777, 0o6777])
def test_no_special_bit_leaves_a_sandbox(sandbox: ServedSandbox, tmp_path: Path, mode: int) -> None:
    (sandbox.root / "workspace/d").mkdir()
    (sandbox.root / "workspace/d/run").touch()
    for entry in ("d", "d/run"):
        (sandbox.root / "workspace" / entry).chmod(mode)
    with sandbox.files.archive("/workspace/d", top="d") as answer:
        assert int(answer.header("x-paddock-mode"), 8) == mode & 0o777
        data = b"".join(answer.pieces())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert [(member.mode, member.uid, member.gid) for member in archive] == [(mode & 0o777, 65534, 65534)] * 2
    sandbox.files.pull("/workspace/d", tmp_path)
    for single in ("d", "d/run"):
        assert stat.S_IMODE((tmp_path / single).stat().st_mode) == mode & 0o777
    with sandbox.files.open("/workspace/d/run") as file:
        assert int(file.header("x-paddock-mode"), 8) == mode & 0o777


@pytest.fixture
def echoing(sandbox: ServedSandbox) -> Iterator[None]:
    """Port 80 of the sandbox echoes data and the end of the stream."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    sandbox.api.ports.listen(80, listener.getsockname()[1])
    threads: list[threading.Thread] = []

    def one(sock: socket.socket) -> None:
        with sock:
            try:
                while data := sock.recv(1 << 18):
                    sock.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(sock,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in [accepting, *threads]:
        thread.join()


def freed(sandbox: ServedSandbox) -> None:
    wait_for("all is freed", lambda: not sandbox.api.services.forward.slots.used_count)


@pytest.mark.usefixtures("echoing")
def test_a_connection_to_a_port(sandbox: ServedSandbox) -> None:
    with sandbox.sandbox.connect(80) as link:
        link.send(b"\x00" * 300_000 + b"end")
        link.end()
        observed = b""
        while data := link.receive():
            observed += data
        assert observed == b"\x00" * 300_000 + b"end"
    freed(sandbox)
    with pytest.raises(Refused, match="nothing listens on port 81"):
        sandbox.sandbox.connect(81)


@pytest.mark.usefixtures("echoing")
def test_forwarding_many_connections(sandbox: ServedSandbox) -> None:
    messages: list[str] = []
    with (
        sandbox.sandbox.forward(80, failed=messages.append) as forward,
        sandbox.sandbox.forward(81, failed=messages.append) as nowhere,
    ):
        links = [socket.create_connection(("127.0.0.1", forward.port)) for _ in range(30)]
        for number, link in enumerate(links):
            link.sendall(b"%02d" % number)
            link.shutdown(socket.SHUT_WR)
        for number, link in enumerate(links):
            with link:
                assert link.recv(10) == b"%02d" % number
                assert link.recv(10) == b""
        freed(sandbox)
        with socket.create_connection(("127.0.0.1", nowhere.port)) as link, pytest.raises(ConnectionResetError):
            link.recv(1)
        assert (
            messages == ["port 81: sandbox `quickstart`: nothing listens on port 81 in the sandbox"]
            or "81" in messages[0]
        )
        connection = socket.create_connection(("127.0.0.1", forward.port))
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
    with connection, pytest.raises(ConnectionResetError):
        connection.recv(1)
    freed(sandbox)
