"""Answers, watches and logs that nobody reads cost bounded memory, and their neighbours little time."""

import asyncio
import contextlib
import json
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from controller.api.common.answer import PIECE_BYTES, AnswerLimit
from controller.api.streams.listing import ANSWER_BYTES
from controller.kinds.access.access import Caller
from controller.kinds.common.chunk import Chunk
from controller.service.access.access import acting
from tests.api.listeners import API, client
from tests.api.test_stalls import Flood
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack, make_api

ALL = f"{API}/namespaces/default/sandboxes"
NOTE = "x" * (200 << 10)
COUNT = 120  # with NOTE: 24 MB


@pytest.fixture
def crowded(tmp_path: Any, quiet: None) -> Iterator[ApiStack]:
    """A served API with many large sandboxes, and one that runs. Clients may pause for long."""
    api = make_api(tmp_path)
    api.apply()
    api.view.show(api.sandbox())
    large = replace(api.sandbox(), annotations={"example.org/note": NOTE})
    with api.store.transaction() as transaction:
        for number in range(COUNT):
            transaction.put(replace(large, name=f"large-{number:03}", uid=f"uid-{number}", resource_version=0))
    server = api.server(stall_seconds=600)
    server.start()
    yield api
    server.stop()
    api.services.watches.close()
    api.files.close()
    api.store.close()


@contextmanager
def unread(api: ApiStack, path: str, count: int) -> Iterator[list[socket.socket]]:
    """Clients that send a request, wait for its first bytes, and read no more."""
    with ExitStack() as undo:
        clients = []
        for _ in range(count):
            link = undo.enter_context(socket.socket(socket.AF_UNIX))
            link.settimeout(60)
            link.connect(str(api.socket))
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: paddock\r\n\r\n".encode())
            clients.append(link)
        for link in clients:
            assert link.recv(12, socket.MSG_PEEK).startswith(b"HTTP/1.1 ")
        yield clients


def typical_seconds(asking: httpx.Client) -> float:
    """Return the median time of a small request."""

    def once() -> float:
        start = time.monotonic()
        assert asking.get(f"{ALL}/quickstart").status_code == 200
        return time.monotonic() - start

    return statistics.median(once() for _ in range(11))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_list_with_a_limit_is_cut_by_size(crowded: ApiStack) -> None:
    with client(crowded) as viewer:
        names, query = [], {"limit": "500"}
        while True:
            answer = viewer.get(ALL, params=query)
            assert len(answer.content) < ANSWER_BYTES + (4 << 20)
            page = answer.json()
            names += [entry["metadata"]["name"] for entry in page["items"]]
            if not (remaining := page["metadata"].get("continue")):
                break
            query["continue"] = remaining
        rows = viewer.get(ALL, params={"limit": "500"}, headers={"Accept": "application/json;as=Table"}).json()
    assert names == [*(f"large-{number:03}" for number in range(COUNT)), "quickstart"]
    assert 0 < len(rows["rows"]) < COUNT
    assert rows["metadata"]["continue"]


def test_list_without_a_limit_is_whole(crowded: ApiStack) -> None:
    with client(crowded) as viewer:
        answer = viewer.get(ALL)
        rows = viewer.get(ALL, headers={"Accept": "application/json;as=Table"}).json()["rows"]
        chosen = viewer.get(ALL, params={"fieldSelector": "metadata.name!=quickstart"}).json()
    assert "content-length" not in answer.headers
    document = answer.json()
    assert len(document["items"]) == len(rows) == COUNT + 1 == len(chosen["items"]) + 1
    assert "continue" not in document["metadata"]
    assert int(document["metadata"]["resourceVersion"]) == crowded.store.revision()


@pytest.mark.parametrize(
    ("path", "count"),
    [
        (ALL, 40),  # with COUNT and NOTE: 960 MB, if all were kept; 390 without back-pressure alone
        (f"{ALL}?watch=1", 50),
        (f"{ALL}?watch=1&resourceVersion=1", 100),
        (f"{ALL}/quickstart/logs?follow=true", 100),
    ],
    ids=["lists", "watches", "resumed watches", "logs"],
)
def test_unread_answers_leave_neighbours_alone(crowded: ApiStack, path: str, count: int) -> None:
    crowded.streams.log = lambda **_: Flood(crowded.streams.closed)
    with client(crowded) as neighbour:
        assert len(neighbour.get(ALL).json()["items"]) == COUNT + 1  # what one reader costs is there before
        alone, resident = typical_seconds(neighbour), resident_bytes()
        with unread(crowded, path, count):
            for number in range(5):
                crowded.change(annotations={"example.org/note": NOTE, "number": str(number)})
            beside = typical_seconds(neighbour)
            grown = resident_bytes() - resident
        crowded.streams.closed.set()
    assert beside < 20 * alone + 0.1, f"{alone * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside"
    assert grown < 300 << 20, f"{grown >> 20} MiB more"


def test_healthy_watcher_beside_unread_ones_loses_nothing(crowded: ApiStack) -> None:
    path = f"{ALL}?watch=1"
    with client(crowded) as viewer, unread(crowded, path, 10), viewer.stream("GET", path) as lines:
        events = (json.loads(line) for line in lines.iter_lines())
        first = [next(events) for _ in range(COUNT + 1)]
        for number in range(150):
            crowded.change(annotations={"number": str(number)})
        changes = [next(events)["object"]["metadata"]["annotations"]["number"] for _ in range(150)]
    versions = [int(entry["object"]["metadata"]["resourceVersion"]) for entry in first]
    assert versions == sorted(versions)
    assert {entry["type"] for entry in first} == {"ADDED"}
    assert changes == [str(number) for number in range(150)]


def test_object_that_changes_before_it_is_sent_is_added_once(crowded: ApiStack) -> None:
    with client(crowded) as viewer, viewer.stream("GET", f"{ALL}?watch=1") as lines:
        wait_for("it watches", lambda: crowded.services.watches.count == 1)
        crowded.change("large-119", annotations={"changed": "yes"})
        with crowded.store.transaction() as transaction:
            transaction.remove(crowded.sandbox("large-118"))
        crowded.apply(QUICKSTART.replace("name: quickstart", "name: last"))
        document: dict[str, list[str]] = {}
        for line in lines.iter_lines():
            event = json.loads(line)
            name = event["object"]["metadata"]["name"]
            document.setdefault(name, []).append(event["type"])
            if name == "last":
                break
    assert document["large-119"] in (["ADDED"], ["ADDED", "MODIFIED"])
    assert document.get("large-118", []) in ([], ["ADDED", "DELETED"])
    assert all(types[0] == "ADDED" for types in document.values())


def test_watch_that_lags_by_bytes_ends_with_expired(crowded: ApiStack) -> None:
    revision = crowded.store.revision()
    with unread(crowded, f"{ALL}?watch=1&resourceVersion={revision}", 1) as (link,):
        wait_for("it watches", lambda: crowded.services.watches.count == 1)
        hub = crowded.services.watches
        for number in range(120):
            crowded.change(annotations={"example.org/note": NOTE, "number": str(number)})
            if number % 20 == 19:
                wait_for("it is handed on", lambda: hub._at == crowded.store.revision() or not hub.count)
        data = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            link.settimeout(20)
            while b'"reason":"Expired"' not in data[-4096:] and (piece := link.recv(1 << 20)):
                data += piece
    wait_for("it has ended", lambda: hub.count == 0)
    assert data.count(b'"type":"MODIFIED"') < 120


class Clients:
    """An application whose answers have `size` bytes, behind the limits, and its clients."""

    def __init__(self, size: int, most: int, share: float, wait_seconds: float) -> None:
        self._size = size
        self._limited = AnswerLimit(self._answer, share, most, wait_seconds)

    async def _answer(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(self._size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * self._size})

    async def ask(self, name: str, may_read: asyncio.Event) -> list[Message]:
        """Ask, and read from the second piece on only when it may."""
        got: list[Message] = []

        async def receive() -> Message:
            raise AssertionError

        async def send(message: Message) -> None:
            got.append(message)
            if len(got) > 2:
                await may_read.wait()

        with acting(Caller(name, "", ())):
            await self._limited({"type": "http", "path": "/", "headers": []}, receive, send)
        return got


def test_unread_answers_of_one_caller_refuse_only_its_own() -> None:
    size = 8 * PIECE_BYTES

    async def run() -> None:
        clients, may_read, reads = Clients(size, 4 * size, 0.5, 0.2), asyncio.Event(), asyncio.Event()
        reads.set()
        tasks = [asyncio.create_task(clients.ask("attacker", may_read)) for _ in range(2)]
        await asyncio.sleep(0.05)
        answer = await clients.ask("attacker", reads)
        assert answer[0]["status"] == 429
        assert json.loads(answer[1]["body"])["reason"] == "TooManyRequests"
        served = await clients.ask("neighbour", reads)
        assert served[0]["status"] == 200
        assert b"".join(document["body"] for document in served[1:]) == b"x" * size
        assert max(len(document["body"]) for document in served[1:]) == PIECE_BYTES
        may_read.set()
        for task in tasks:
            assert sum(len(document["body"]) for document in (await task)[1:]) == size
        assert (await clients.ask("attacker", reads))[0]["status"] == 200

    asyncio.run(run())


def test_an_answer_over_its_callers_share_is_whole() -> None:
    size = 4 * PIECE_BYTES

    async def run() -> None:
        clients, reads = Clients(size, size, 0.5, 0.2), asyncio.Event()
        reads.set()
        answer = await clients.ask("a", reads)
        assert sum(len(document["body"]) for document in answer[1:]) == size

    asyncio.run(run())


def test_small_answers_are_never_refused() -> None:
    async def run() -> None:
        clients, reads = Clients(PIECE_BYTES, 1, 1.0, 0.0), asyncio.Event()
        reads.set()
        assert [document.get("status") for document in await clients.ask("a", reads)] == [200, None]

    asyncio.run(run())


def test_a_slow_reader_of_a_log_gets_all_of_it(crowded: ApiStack) -> None:
    pieces = [f"{number:06}\n".encode() * 1000 for number in range(200)]
    crowded.streams.log = lambda **_: iter([Chunk("stdout", entry) for entry in pieces])
    with client(crowded) as viewer, viewer.stream("GET", f"{ALL}/quickstart/logs") as answer:
        data = b""
        for piece in answer.iter_raw(1 << 16):
            threading.Event().wait(0.002)
            data += piece
    assert data == b"".join(pieces)
