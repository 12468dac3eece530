"""Archives as clients on this host carry them, without HTTP: the same bytes, refusals and limits as with it."""

import contextlib
import hashlib
import io
import json
import os
import socket
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.client import ClientError, Paddock, Refused
from controller.client.bulk_copy import Haul
from controller.client.files import Files as ClientFiles
from controller.client.transfer import Answer
from controller.kinds.observed.observed import State
from tests.api.test_files import BASE, MIB, Files
from tests.api.test_files import files as files
from tests.api.test_stalls import ask

INTO = f"{BASE}/haul?op=unpack&path=/workspace&as=raw"


@pytest.fixture
def client(files: Files) -> Iterator[ClientFiles]:
    with Paddock(f"unix://{files.world.socket}") as paddock:
        yield paddock.sandbox("quickstart").files


def tar(*contents: bytes) -> bytes:
    """An archive of files that are called 0, 1 ..."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number, content in enumerate(contents):
            info = tarfile.TarInfo(str(number))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def handshaken(files: Files, path: str) -> socket.socket:
    """A connection whose next byte is the first of what is carried."""
    made = ask(files.world, path, 15)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += made.recv(1)
    assert b"\r\nsec-websocket-protocol: raw.files.paddock\r\n" in head.lower()
    return made


def told(link: socket.socket) -> Any:
    data = b"".join(iter(lambda: link.recv(1 << 16), b""))
    (size,) = struct.unpack(">I", data[:4])
    assert len(data) == 4 + size
    return json.loads(data[4:])


def test_a_tree_goes_in_and_comes_out_as_it_was(files: Files, client: ClientFiles, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "large").write_bytes(os.urandom(MIB) * 100 + b"end")
    (source / "run").write_bytes(b"#!/bin/sh\n")
    (source / "run").chmod(0o751)
    (source / "link").symlink_to("run")
    (source / "none").touch()
    counted: list[int] = []
    assert client.push(source, "/workspace/tree", progress=counted.append) == []
    assert sum(counted) > 100 * MIB
    assert client.pull("/workspace/tree", tmp_path / "back") == []
    for made in (files.root / "workspace/tree", tmp_path / "back"):
        assert sorted(each.name for each in made.iterdir()) == ["empty", "large", "link", "none", "run"]
        assert os.readlink(made / "link") == "run"
        assert (made / "run").stat().st_mode & 0o777 == 0o751
        for name in ("large", "none"):
            with (made / name).open("rb") as one, (source / name).open("rb") as other:
                assert hashlib.file_digest(one, "sha256").digest() == hashlib.file_digest(other, "sha256").digest()
    files.freed()


def test_it_is_carried_so_and_in_the_same_words(files: Files, client: ClientFiles) -> None:
    assert client.unpack("/workspace", [tar(b"abc")]) == []
    with client.archive("/workspace/0", top="x") as hauled:
        assert isinstance(hauled, Haul)
        assert b"".join(hauled.pieces()) == files.ask("GET", "/workspace/0", "/archive", top="x").content
    with client.archive("/workspace") as left:  # a client that has seen enough
        assert left.read(10)
    files.freed()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(contents=st.lists(st.binary(max_size=70_000), max_size=4), size=st.integers(1, 100_000))
def test_any_content_in_any_pieces(files: Files, client: ClientFiles, contents: list[bytes], size: int) -> None:
    stream = tar(*contents)
    client.unpack("/workspace", cut(stream, max(size, len(stream) // 200)))
    for number, content in enumerate(contents):
        with client.archive(f"/workspace/{number}") as found:
            data = b"".join(found.pieces())
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            file = archive.extractfile(archive.getmembers()[0])
            assert file is not None
            assert file.read() == content


@pytest.mark.parametrize(
    ("path", "stream", "code", "words"),
    [
        ("/none", tar(b"x"), 404, "there is nothing"),
        ("/workspace", b"x" * 1000, 400, "no tar archive"),
        ("/workspace", tar(b"x" * 5000)[:2000], 400, "ends in the middle"),
        ("", b"", 400, "path must have"),
    ],
)
def test_a_refusal_is_as_over_http(
    files: Files, client: ClientFiles, path: str, stream: bytes, code: int, words: str
) -> None:
    with pytest.raises(Refused, match=words) as caught:
        client.unpack(path, [stream])
    assert caught.value.code == code
    if path:
        answer = files.ask("PUT", path, "/archive", content=stream)
        assert (answer.status_code, answer.json()["message"]) == (code, caught.value.message)
    files.freed()


def test_a_box_that_does_not_run_or_is_not_there(files: Files, client: ClientFiles) -> None:
    files.world.view.show(files.world.sandbox(), State.EXITED)
    with pytest.raises(Refused, match="not running") as caught, client.archive("/tmp"):
        pass
    assert caught.value.code == 409
    other = ClientFiles(client._server, "namespaces/default/sandboxes/none")
    with pytest.raises(Refused) as missing, other.archive("/tmp"):
        pass
    assert (missing.value.code, missing.value.reason) == (404, "NotFound")


def test_more_than_a_transfer_may_have_is_refused(files: Files, client: ClientFiles) -> None:
    def endless() -> Iterator[bytes]:
        yield tar(b"x" * 300)[:512]
        while True:
            yield bytes(MIB)

    with pytest.raises(Refused, match="transfer_max_bytes") as caught:
        client.unpack("/workspace", endless())
    assert caught.value.code == 413
    files.freed()
    with handshaken(files, INTO) as link:
        link.sendall(struct.pack(">I", 201 * MIB))
        assert told(link)["code"] == 413
    files.freed()


def test_a_client_that_sends_nothing_is_told(files: Files) -> None:
    with handshaken(files, INTO) as link:
        stream = tar(b"x" * 5000)
        link.sendall(struct.pack(">I", len(stream)) + stream[:3000])
        said = told(link)
    assert (said["code"], "transfer_stall_seconds" in said["message"]) == (400, True)
    files.freed()
    assert list((files.root / "workspace").iterdir()) == []


@pytest.mark.parametrize("said", [b"", b"\x00\x00", struct.pack(">I", 1536) + tar(b"abc")[:700], b"\x00\x00\x00\x05ab"])
def test_a_client_that_leaves_frees_all_and_leaves_nothing(files: Files, said: bytes) -> None:
    with handshaken(files, INTO) as link:
        link.sendall(said)
    files.freed()
    assert list((files.root / "workspace").iterdir()) == []


def test_what_comes_behind_the_end_ends_it(files: Files) -> None:
    with handshaken(files, INTO) as link:
        link.sendall(struct.pack(">I", 0) + b"more")
        link.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert b"".join(iter(lambda: link.recv(1000), b"")) == b""
    files.freed()


def test_an_archive_that_breaks_off_is_not_taken_for_whole(files: Files, client: ClientFiles, tmp_path: Path) -> None:
    (files.root / "tmp/big").write_bytes(b"x" * (8 * MIB))
    with client.archive("/tmp") as answer:
        assert answer.read(10)
        for each in list(files.world.files.open):
            each.close()
        with pytest.raises(ClientError, match="broke off"):
            list(answer.pieces())
    files.freed()


def test_who_can_not_splice_has_http(
    files: Files, client: ClientFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.client.bulk_copy.can_splice", lambda: False)
    (tmp_path / "file").write_bytes(os.urandom(3 * MIB))
    client.push(tmp_path / "file", "/workspace/file")
    with client.archive("/workspace/file") as answer:
        assert isinstance(answer, Answer)
    client.pull("/workspace/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()


def test_it_is_for_those_alone_who_ask_for_it(files: Files) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(files.world.socket)), base_url="http://paddock", timeout=60
    ) as http:
        answer = http.get(f"{BASE}/haul", params={"op": "pack", "path": "/tmp"}, headers={**upgrade, **key})
    assert (answer.status_code, answer.json()["reason"]) == (406, "NotAcceptable")
    files.freed()
