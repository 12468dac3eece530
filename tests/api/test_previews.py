"""Links to ports: what a browser has of an earlier sandbox goes, and what is kept of links stays small."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from controller.api.preview.app import PreviewAddress, PreviewApp
from controller.kinds.runtime.preview import PARAMETER, PreviewTarget
from controller.service.front.previews import Previews
from tests.conftest import HandClock

_TARGET = PreviewTarget("default", "box", 3000)


class Sandboxes:
    """Stored sandboxes by their names; all are the current one of the name."""

    def __init__(self) -> None:
        self.uids = {"box": "uid-1"}

    def get(self, _kind: Any, _namespace: str, name: str) -> Any:
        return SimpleNamespace(uid=self.uids[name])

    def list(self, _kind: Any) -> Any:
        return SimpleNamespace(objects=[SimpleNamespace(uid=uid) for uid in self.uids.values()])


def _previews(folder: Path, sandboxes: Sandboxes) -> Previews:
    other: Any = SimpleNamespace(record_end=lambda *_: None)
    objects: Any = sandboxes
    clock = HandClock()
    return Previews(objects=objects, registry=other, tokens=other, recorder=other, clock=clock, folder=folder)


def _opened(app: PreviewApp, token: str, cookies: str = "") -> tuple[dict[str, str], str]:
    """Open a link in a browser; return the answer's headers, and the browser's cookies then."""
    headers = [(b"host", b"3000--box--default.localhost"), *([(b"cookie", cookies.encode())] if cookies else ())]
    query = urlencode({PARAMETER: token}).encode()
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": query, "headers": headers}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        await app(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(run())
    assert sent[0]["status"] == 303, sent
    pairs = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
    return dict(pairs), "; ".join(value.partition(";")[0] for name, value in pairs if name == "set-cookie")


def test_each_browser_drops_data_of_earlier_sandboxes(tmp_path: Path) -> None:
    sandboxes, other = Sandboxes(), SimpleNamespace()
    previews = _previews(tmp_path, sandboxes)
    app = PreviewApp(previews, other, other, PreviewAddress("http", "localhost"))  # type: ignore[arg-type]
    first, cookies = _opened(app, previews.create(_TARGET).token)
    again, _ = _opened(app, previews.create(_TARGET).token, cookies)
    second, _ = _opened(app, previews.create(_TARGET).token)
    sandboxes.uids["box"] = "uid-2"
    anew, _ = _opened(app, previews.create(_TARGET).token, cookies)
    clears = ["clear-site-data" in headers for headers in (first, again, second, anew)]
    assert clears == [True, False, True, True]


def test_only_voided_links_of_sandboxes_are_kept(tmp_path: Path) -> None:
    sandboxes = Sandboxes()
    previews = _previews(tmp_path, sandboxes)
    previews.void("default", "box")
    sandboxes.uids = {"box": "uid-2"}
    previews.void("default", "box")
    assert json.loads((tmp_path / "links.json").read_text()) == {"uid-2": {"counter": 1}}
