"""SFTP, byte by byte: requests and their answers over a folder of this host as the sandbox's root."""

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.files import sftp
from controller.engine.files.results import CutOff

_NONE = struct.pack(">I", 0)


class Client:
    """Sends requests to a server, and reads its answers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
        self.server = sftp.Server(self._fd, "/workspace", "/home/user", 1 << 20)
        self._number = 0

    def close(self) -> None:
        self.server.close()
        os.close(self._fd)

    def ask(self, type_: int, body: bytes) -> tuple[int, bytes]:
        """Return the type and the body of the answer."""
        self._number += 1
        answer = self.server.answer(struct.pack(">BI", type_, self._number) + body)
        size, kind, number = struct.unpack_from(">IBI", answer)
        assert (size, number) == (len(answer) - 4, self._number)
        return kind, answer[9:]

    def code(self, type_: int, body: bytes) -> int:
        """Return the code of a status."""
        kind, answer = self.ask(type_, body)
        assert kind == sftp.STATUS, (kind, answer)
        return int(struct.unpack_from(">I", answer)[0])

    def handle(self, type_: int, body: bytes) -> bytes:
        kind, answer = self.ask(type_, body)
        assert kind == sftp.HANDLE, answer
        return answer

    def opened(self, path: str, flags: int, attributes: bytes = _NONE) -> bytes:
        return self.handle(sftp.OPEN, text(path) + struct.pack(">I", flags) + attributes)


def text(value: "str | bytes") -> bytes:
    return sftp.string(value.encode() if isinstance(value, str) else value)


def at(offset: int) -> bytes:
    return struct.pack(">Q", offset)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "etc").mkdir()
    old = os.umask(0)
    created = Client(tmp_path)
    yield created
    created.close()
    os.umask(old)


_READ, _WRITE, _APPEND, _CREATE, _TRUNCATE, _NEW = 1, 2, 4, 8, 16, 32


def test_a_file_is_written_and_read_at_any_offset(client: Client) -> None:
    handle = client.opened("file", _WRITE | _CREATE, struct.pack(">II", 4, 0o666))
    assert client.code(sftp.WRITE, handle + at(4) + text("data")) == sftp.OK
    assert client.code(sftp.WRITE, handle + at(0) + text("head")) == sftp.OK
    assert client.code(sftp.CLOSE, handle) == sftp.OK
    assert client.code(sftp.CLOSE, handle) == sftp.FAILURE
    file = client.root / "workspace/file"
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"headdata", 0o644)
    handle = client.opened("/workspace/file", _READ)
    assert client.ask(sftp.READ, handle + at(2) + struct.pack(">I", 4)) == (sftp.DATA, text("adda"))
    assert client.code(sftp.READ, handle + at(8) + struct.pack(">I", 4)) == sftp.EOF
    assert client.code(sftp.WRITE, handle + at(0) + text("x")) == sftp.FAILURE


def test_open_follows_its_flags(client: Client) -> None:
    file = client.root / "workspace/file"
    file.write_bytes(b"before")
    assert client.code(sftp.OPEN, text("none") + struct.pack(">I", _WRITE) + _NONE) == sftp.NO_SUCH_FILE
    assert client.code(sftp.OPEN, text("file") + struct.pack(">I", _WRITE | _CREATE | _NEW) + _NONE) == sftp.FAILURE
    handle = client.opened("file", _WRITE | _APPEND)
    assert client.code(sftp.WRITE, handle + at(0) + text("+")) == sftp.OK
    assert file.read_bytes() == b"before+"
    client.opened("file", _WRITE | _CREATE | _TRUNCATE)
    assert file.read_bytes() == b""


def test_names_are_changed_linked_and_removed(client: Client) -> None:
    sandbox = client.root / "workspace"
    (sandbox / "a").write_text("a")
    (sandbox / "b").write_text("b")
    assert client.code(sftp.RENAME, text("a") + text("b")) == sftp.FAILURE
    assert client.code(sftp.EXTENDED, text("posix-rename@openssh.com") + text("a") + text("b")) == sftp.OK
    assert client.code(sftp.SYMLINK, text("b") + text("link")) == sftp.OK
    assert client.ask(sftp.READLINK, text("link"))[1][4:].startswith(text("b"))
    assert client.code(sftp.EXTENDED, text("hardlink@openssh.com") + text("b") + text("hard")) == sftp.OK
    assert (sandbox / "hard").stat().st_nlink == 2
    assert client.code(sftp.MKDIR, text("folder") + struct.pack(">II", 4, 0o777)) == sftp.OK
    assert stat.S_IMODE((sandbox / "folder").stat().st_mode) & 0o777 == 0o755
    assert client.code(sftp.REMOVE, text("folder")) == sftp.FAILURE
    assert client.code(sftp.RMDIR, text("folder")) == sftp.OK
    assert client.code(sftp.REMOVE, text("none")) == sftp.NO_SUCH_FILE
    assert sorted(entry.name for entry in sandbox.iterdir()) == ["b", "hard", "link"]


def test_attributes_are_set_and_read(client: Client) -> None:
    file = client.root / "workspace/file"
    file.write_bytes(b"12345")
    attributes = struct.pack(">IQIII", 1 | 4 | 8, 3, 0o600, 1000, 2000)
    assert client.code(sftp.SETSTAT, text("file") + attributes) == sftp.OK
    status = file.stat()
    assert (status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime) == (3, 0o600, 2000)
    (client.root / "workspace/link").symlink_to("file")
    assert client.ask(sftp.STAT, text("link")) == (sftp.ATTRS, sftp.attributes_of(file.stat()))
    assert client.ask(sftp.LSTAT, text("link"))[1] == sftp.attributes_of((file.parent / "link").lstat())
    times = struct.pack(">III", 8, 3000, 4000)
    assert client.code(sftp.EXTENDED, text("lsetstat@openssh.com") + text("link") + times) == sftp.OK
    assert ((file.parent / "link").lstat().st_mtime, file.stat().st_mtime) == (4000, 2000)


def test_a_folder_is_listed_in_parts(client: Client) -> None:
    names = {f"name {number}" for number in range(450)}
    for name in names:
        (client.root / "workspace" / name).touch()
    handle, listed, answers = client.handle(sftp.OPENDIR, text(".")), set(), 0
    while (answer := client.ask(sftp.READDIR, handle))[0] == sftp.NAME:
        answers += 1
        fields = sftp.Fields(answer[1])
        for _ in range(fields.u32()):
            listed.add(fields.string().decode())
            fields.string()
            fields.attributes()
    assert (listed, answers, answer[1][:4]) == (names, 3, struct.pack(">I", sftp.EOF))


@pytest.mark.parametrize("path", ["../../../../etc/passwd", "/etc/../../etc/passwd", "link/etc/passwd", "deep/passwd"])
def test_no_path_leads_out_of_the_root(client: Client, path: str) -> None:
    (client.root / "etc/passwd").write_text("inside")
    (client.root / "workspace/link").symlink_to("/")
    (client.root / "workspace/deep").symlink_to("../../../../../../etc")
    handle = client.opened(path, _READ)
    assert client.ask(sftp.READ, handle + at(0) + struct.pack(">I", 100)) == (sftp.DATA, text("inside"))


def test_paths_are_expanded_and_normalised(client: Client) -> None:
    def named(answer: tuple[int, bytes]) -> bytes:
        assert answer[0] == sftp.NAME
        return sftp.Fields(answer[1][4:]).string()

    assert named(client.ask(sftp.REALPATH, text("."))) == b"/workspace"
    assert named(client.ask(sftp.REALPATH, text("a/../../x//y/."))) == b"/x/y"
    assert named(client.ask(sftp.EXTENDED, text("expand-path@openssh.com") + text("~/x"))) == b"/home/user/x"


def test_what_is_no_regular_file_is_never_opened(client: Client) -> None:
    os.mkfifo(client.root / "workspace/fifo")
    for flags in (_READ, _WRITE, _WRITE | _CREATE | _TRUNCATE):
        assert client.code(sftp.OPEN, text("fifo") + struct.pack(">I", flags) + _NONE) == sftp.FAILURE


def test_limits_hold(client: Client) -> None:
    handle = client.opened("file", _WRITE | _CREATE)
    assert client.code(sftp.WRITE, handle + at((1 << 20) - 1) + text("xy")) == sftp.FAILURE
    for _ in range(sftp.MOST_HANDLES - 1):
        client.handle(sftp.OPENDIR, text("."))
    assert client.code(sftp.OPENDIR, text(".")) == sftp.FAILURE
    before = len(os.listdir("/proc/self/fd"))
    assert client.code(sftp.OPENDIR, text(".")) == sftp.FAILURE
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("type_", [0, 2, 21, 99, 101, 199, 201, 255])
def test_unknown_requests_are_unsupported(client: Client, type_: int) -> None:
    assert client.code(type_, b"") == sftp.OP_UNSUPPORTED


def test_every_cut_request_is_answered(client: Client) -> None:
    requests = {
        sftp.OPEN: text("file") + struct.pack(">IIQIIIII", _READ, 15, 1, 2, 3, 4, 5, 6),
        sftp.WRITE: text("handle") + at(0) + text("data"),
        sftp.RENAME: text("a") + text("b"),
        sftp.EXTENDED: text("statvfs@openssh.com") + text("."),
    }
    for type_, body in requests.items():
        for size in range(len(body)):
            assert client.code(type_, body[:size]) in (sftp.BAD_MESSAGE, sftp.FAILURE, sftp.OP_UNSUPPORTED), size


@pytest.mark.parametrize("size", [1, 3, 4, 5, 7, 1000])
def test_a_stream_is_answered_however_it_is_cut(tmp_path: Path, size: int) -> None:
    packets = [struct.pack(">BI", sftp.INIT, 3), struct.pack(">BI", sftp.REALPATH, 7) + text("/a/b")]
    stream = b"".join(struct.pack(">I", len(packet)) + packet for packet in packets)
    pieces = iter([*(stream[at : at + size] for at in range(0, len(stream), size)), b""])
    answers: list[bytes] = []
    root = os.open(tmp_path, os.O_PATH)
    try:
        sftp.serve(root, {}, lambda _: next(pieces), answers.append, "/")
    finally:
        os.close(root)
    content = b"".join(answers)
    assert content[4:9] == struct.pack(">BI", sftp.VERSION_ANSWER, 3)
    assert content.endswith(text("/a/b") + text("/a/b") + _NONE)


@pytest.mark.parametrize(
    "data", [b"\0\0\0\0", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n", b"\0\0\0\1\x04", b"\0\0\0\2\1x"]
)
def test_bytes_that_are_not_sftp_end_it(tmp_path: Path, data: bytes) -> None:
    pieces = iter([data, b""])
    root = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(CutOff):
            sftp.serve(root, {}, lambda _: next(pieces), lambda _: None, "/")
    finally:
        os.close(root)
