"""Files of a sandbox over HTTP: results, refusals, and clean-up after a disconnect."""

import io
import os
import socket
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.kinds.observed.observed import State
from controller.service.sandbox.files import TransferLimits
from tests.daemon import wait_for
from tests.helpers_api import ApiStack, make_api

BASE = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart/files"
MIB = 1 << 20


class Files:
    """The served API, its files, and a client."""

    def __init__(self, api: ApiStack) -> None:
        self.api = api
        api.apply()
        self.root = api.files.root(api.view.show(api.sandbox()).id)
        self.http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(api.socket), verify=False), base_url="http://paddock", timeout=60
        )

    def ask(self, method: str, path: str, at: str = "", content: Any = None, **query: Any) -> httpx.Response:
        return self.http.request(method, f"{BASE}{at}", params={"path": path, **query}, content=content, timeout=30)

    def freed(self) -> None:
        wait_for("all is freed", lambda: not self.api.services.files.slots.used_count and not self.api.files.open)

    def raw(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self.api.socket))
        return connection


@pytest.fixture
def files(tmp_path: Path, quiet: None) -> Iterator[Files]:
    limits = TransferLimits(total=5, per_sandbox=3, max_bytes=200 * MIB, stall_seconds=3.0)
    api = make_api(tmp_path, transfers=limits)
    server = api.server()
    server.start()
    created = Files(api)
    try:
        yield created
    finally:
        created.http.close()
        server.stop()
        api.files.close()
        api.store.close()


def test_a_file_is_written_read_and_removed(files: Files) -> None:
    wrote = files.ask("PUT", "/tmp/a b", content=b"\x00\xff", mode="0640")
    assert (wrote.status_code, wrote.json()["size"], wrote.json()["mode"]) == (200, 2, "0640")
    read = files.ask("GET", "/tmp/a b")
    assert (read.content, read.headers["content-length"], read.headers["x-paddock-mode"]) == (b"\x00\xff", "2", "0640")
    assert read.headers["content-type"] == "application/octet-stream"
    assert files.ask("GET", "/tmp/a b", "/stat").json()["type"] == "file"
    assert files.ask("GET", "/tmp", "/list").json()["items"][0]["name"] == "a b"
    assert files.ask("DELETE", "/tmp/a b").json() == {}
    assert files.ask("GET", "/tmp/a b", "/stat").status_code == 404
    files.freed()


def test_folders_and_archives(files: Files) -> None:
    assert files.ask("POST", "/workspace/d/e", "/folder", parents=True).json()["type"] == "folder"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        info = tarfile.TarInfo("f")
        info.size = 3
        file.addfile(info, io.BytesIO(b"abc"))
    done = files.ask("PUT", "/workspace/d/e", "/archive", content=out.getvalue())
    assert done.json() == {"files": 1, "bytes": 3, "leftOut": [], "leftOutCount": 0}
    back = files.ask("GET", "/workspace/d", "/archive", top="x")
    assert back.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(back.content)) as read:
        assert sorted(read.getnames()) == ["x", "x/e", "x/e/f"]
    assert files.ask("DELETE", "/workspace/d", recursive=True).status_code == 200


@pytest.mark.parametrize(
    ("method", "at", "path", "code", "kind"),
    [
        ("GET", "", "/none", 404, "NotFound"),
        ("GET", "", "/tmp", 409, "IsAFolder"),
        ("GET", "/list", "/none", 404, "NotFound"),
        ("DELETE", "", "/", 400, "BadPath"),
        ("POST", "/folder", "/tmp", 409, "Exists"),
        ("PUT", "", "/none/../..", 400, "BadPath"),
        ("PUT", "/archive", "/tmp", 400, "BadArchive"),
    ],
)
def test_a_refusal_is_a_status_with_the_kind(
    files: Files, method: str, at: str, path: str, code: int, kind: str
) -> None:
    answer = files.ask(method, path, at, content=b"x" * 1000 if method == "PUT" else None)
    assert answer.status_code == code
    assert answer.json()["kind"] == "Status"
    assert answer.json()["details"]["causes"][0]["reason"] == kind
    assert answer.json()["message"].startswith(f"sandbox `quickstart`: {path}: ")
    files.freed()


def test_relative_paths_and_missing_folders(files: Files) -> None:
    assert files.ask("PUT", "a/b/file", content=b"x").status_code == 200
    assert files.ask("PUT", "none/file", content=b"x", parents=False).status_code == 404
    assert (files.root / "workspace/a/b/file").read_bytes() == b"x"
    assert [entry["name"] for entry in files.http.get(f"{BASE}/list").json()["items"]] == ["a"]


def test_what_is_not_there_or_not_running_is_said(files: Files) -> None:
    files.api.set_ready("False", "Completed")
    files.api.view.show(files.api.sandbox(), State.EXITED)
    assert files.ask("GET", "/tmp", "/list").status_code == 409
    files.api.view.show(files.api.sandbox(), State.PAUSED)
    assert files.ask("GET", "/tmp", "/list").status_code == 200
    assert files.ask("PUT", "/tmp/x", content=b"").status_code == 409
    text = BASE.replace("quickstart", "none")
    assert files.http.get(text, params={"path": "/"}).status_code == 404
    assert files.http.get(BASE).status_code == 400


def test_a_hundred_mebibytes_each_way_are_the_same(files: Files) -> None:
    piece = os.urandom(MIB)
    files.ask("PUT", "/tmp/large", content=(piece for _ in range(100)))
    assert (files.root / "tmp/large").stat().st_size == 100 * MIB
    with files.http.stream("GET", BASE, params={"path": "/tmp/large"}) as answer:
        remaining = b""
        for data in answer.iter_raw():
            remaining += data
            while len(remaining) >= MIB:
                assert remaining[:MIB] == piece
                remaining = remaining[MIB:]
    assert remaining == b""


def test_what_is_too_large_is_refused_before_and_on_the_way(files: Files) -> None:
    with files.raw() as link:
        head = f"PUT {BASE}?path=/tmp/x HTTP/1.1\r\nHost: paddock\r\nContent-Length: {201 * MIB}\r\n\r\n"
        link.sendall(head.encode())
        assert b" 413 " in link.recv(1000)
    piece = b"x" * MIB
    answer = files.ask("PUT", "/tmp/x", content=(piece for _ in range(201)))
    assert (answer.status_code, "transfer_max_bytes" in answer.json()["message"]) == (413, True)
    assert not (files.root / "tmp/x").exists()
    files.freed()


def downloads(files: Files, held: ExitStack, count: int) -> list[socket.socket]:
    """So many downloads whose clients have read nothing but the head."""
    (files.root / "tmp/much").write_bytes(b"x" * (32 * MIB))
    opened = []
    for _ in range(count):
        link = held.enter_context(files.raw())
        link.sendall(f"GET {BASE}?path=/tmp/much HTTP/1.1\r\nHost: paddock\r\n\r\n".encode())
        assert b" 200 " in link.recv(100)
        opened.append(link)
    return opened


def test_transfers_are_limited_and_freed_on_disconnect(files: Files) -> None:
    with ExitStack() as stack:
        downloads(files, stack, 3)
        answer = files.ask("GET", "/tmp", "/list")
        assert (answer.status_code, answer.json()["reason"]) == (429, "TooManyRequests")
        assert "transfers_per_sandbox" in answer.json()["message"]
    files.freed()
    assert files.ask("GET", "/tmp", "/list").status_code == 200


def test_aborted_upload_leaves_nothing(files: Files) -> None:
    head = f"PUT {BASE}?path=/tmp/x HTTP/1.1\r\nHost: paddock\r\nContent-Length: 1000\r\n\r\nbegin"
    with files.raw() as clients, files.raw() as leaves:
        clients.sendall(head.encode())
        leaves.sendall(head.encode())
        wait_for("both are under way", lambda: len(files.api.files.open) == 2)
        leaves.close()
        observed = b""
        while b"transfer_stall_seconds" not in observed:
            piece = clients.recv(2000)
            assert piece, observed
            observed += piece
    files.freed()
    assert not (files.root / "tmp/x").exists()


def test_transfer_counts_as_use(files: Files) -> None:
    woken = len(files.api.woken)
    files.ask("GET", "/tmp", "/list")
    assert len(files.api.woken) == woken + 2  # it began, and it ended
