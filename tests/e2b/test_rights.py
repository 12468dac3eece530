"""Rights of requests: which limits they have, and what is left of them."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from controller.e2b.app import E2BApp
from controller.e2b.envd.file_work import FileWork
from controller.e2b.envd.filesystem import FilesystemCalls
from controller.e2b.envd.processes import Stdin
from controller.e2b.envd.watch import WatchCalls
from controller.e2b.fields import Fields
from controller.e2b.metadata import LABEL
from controller.e2b.parts import Parts, Rules, load_key
from controller.e2b.signature import Access, AccessTokens
from controller.kinds.access.access import Grant, Token
from controller.kinds.meta import StoredObject
from controller.kinds.runtime.files import FileRequest
from controller.service.errors import Conflict
from tests.conftest import HandClock

_UID = "0a1b2c3d-0000-4000-8000-000000000001"
_TOKEN = Token("0123456789ab", "ci", "", Grant(role="user"), 0.0, "root")
_OBJECT = StoredObject("Sandbox", "default", "sb", _UID, {}, labels={LABEL: "true"})


def _parts(folder: Path, **more: Any) -> Parts:
    limits = SimpleNamespace(total=4)
    services: Any = SimpleNamespace(
        objects=SimpleNamespace(list=lambda *_, **__: SimpleNamespace(objects=[_OBJECT]), get=lambda *_: _OBJECT),
        files=SimpleNamespace(limits=limits),
        sandbox_streams=SimpleNamespace(rules=SimpleNamespace(pause_seconds=1.0)),
        parsing=None,
        folder_watches=None,
        usages=None,
        usage_history=SimpleNamespace(follow=lambda _: None),
        **more,
    )
    tokens: Any = SimpleNamespace(by_id=lambda _: _TOKEN)
    identify: Any = None
    return Parts(services, identify, tokens, HandClock(), Rules("e2b.localhost", {}, folder))


def test_requests_to_programs_have_the_limits_of_calls(tmp_path: Path) -> None:
    def wrap(_app: ASGIApp, **_: bool) -> ASGIApp:
        return PlainTextResponse("limited")

    async def ports(*_: Any) -> None:
        raise AssertionError("without a limit")

    app = E2BApp(_parts(tmp_path), ports, wrap)
    token = AccessTokens(load_key(tmp_path)).issue(Access(_UID, _TOKEN.id))
    headers = [(b"host", b"8080-sb.e2b.localhost"), (b"x-access-token", token.encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def request() -> None:
        await app(scope, receive, send)

    asyncio.run(request())
    assert sent[-1]["body"] == b"limited"


def test_work_of_a_client_that_leaves_is_closed(tmp_path: Path) -> None:
    event, proceed, closed = threading.Event(), threading.Event(), threading.Event()

    def begin(*_: Any) -> Any:
        event.set()
        proceed.wait(10)
        return SimpleNamespace(close=closed.set, result=dict)

    parts = _parts(tmp_path)
    parts.services.files.begin = begin  # type: ignore[method-assign]
    files = FileWork(parts)
    files._parts = SimpleNamespace(use=lambda *_, **__: None)  # type: ignore[assignment]
    place: Any = SimpleNamespace(namespace="default", name="sb")

    async def leave() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(files.result, place, FileRequest("stat", "/"))
                await anyio.to_thread.run_sync(event.wait, 10)
                scope.cancel()
                proceed.set()

    anyio.run(leave)
    assert closed.wait(10)


def test_a_watched_folder_is_recorded_once(tmp_path: Path) -> None:
    recorded: list[str] = []
    parts = _parts(tmp_path, recorder=SimpleNamespace(record_use=lambda ask, _: recorded.append(ask.sub)))
    item = {"name": "a", "type": "file", "size": 1, "modified": 1.0, "mode": "0644"}
    work = SimpleNamespace(result=lambda: {"items": [item], "truncated": False}, close=lambda: None)
    parts.services.files.begin = lambda *_: work  # type: ignore[method-assign,assignment,return-value]
    parts.services.registry = None  # type: ignore[misc,assignment]
    watches: Any = SimpleNamespace(open=lambda *_, **__: None)
    calls = WatchCalls(FilesystemCalls(FileWork(parts)), watches)
    place: Any = SimpleNamespace(namespace="default", name="sb", obj=_OBJECT, absolute=str)

    async def watch() -> None:
        id_ = (await calls.create_watcher(place, Fields({"path": "/"})))["watcherId"]
        for _ in range(3):
            await calls.get_watcher_events(place, Fields({"watcherId": id_}))

    asyncio.run(watch())
    assert recorded == ["files/list"]


def test_waiting_input_takes_no_thread() -> None:
    stdin = Stdin()

    async def fill() -> None:
        puts = [asyncio.create_task(stdin.put(b"x")) for _ in range(100)]
        done, _ = await asyncio.wait(puts, timeout=0.05)
        assert 0 < len(done) < 100
        before = threading.active_count()
        stdin.abandon()
        gather = await asyncio.gather(*puts, return_exceptions=True)
        assert threading.active_count() <= before
        assert any(isinstance(end, Conflict) for end in gather)

    asyncio.run(fill())
