"""Lists and watches of the SDK read in pages: no answer of the daemon grows with the store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paddock import AsyncPaddock, Paddock
from tests.helpers_api import QUICKSTART, ApiStack, make_api
from tests.helpers_fixtures import quiet

__all__ = ["quiet"]
NAMES = [f"box-{number}" for number in range(7)]


@pytest.fixture
def api(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    created = make_api(tmp_path)
    server = created.server()
    server.start()
    created.apply("---\n".join(QUICKSTART.replace("name: quickstart", f"name: {name}") for name in NAMES))
    yield created
    created.services.watches.close()
    server.stop()
    created.store.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.URL]:
    """The requests that are sent. A page has two objects."""
    sent: list[httpx.URL] = []
    for form in ("_sync", "_async"):
        monkeypatch.setattr(f"paddock.{form}.objects._PAGE", 2)
    real = httpx.Client.build_request

    def build(client: httpx.Client, *given: object, **more: object) -> httpx.Request:
        request = real(client, *given, **more)  # type: ignore[arg-type]
        sent.append(request.url)
        return request

    monkeypatch.setattr(httpx.Client, "build_request", build)
    return sent


def test_a_list_reads_every_page(api: ApiStack, asked: list[httpx.URL]) -> None:
    with Paddock(f"unix://{api.socket}") as paddock:
        names = [document["metadata"]["name"] for document in paddock.objects("sandboxes").list()]
        assert [sandbox.name for sandbox in paddock.sandboxes.list(selector="app=none")] == []
    assert names == NAMES
    pages = [url for url in asked if url.path.endswith("/sandboxes") and "app" not in str(url)]
    assert [page.params.get("limit") for page in pages] == ["2"] * 4
    assert [bool(page.params.get("continue")) for page in pages] == [False, True, True, True]


def test_a_watch_goes_on_from_its_pages(api: ApiStack, asked: list[httpx.URL]) -> None:
    with Paddock(f"unix://{api.socket}") as paddock:
        events = paddock.objects("sandboxes").watch(timeout=60)
        first = [next(events) for _ in NAMES]
        assert [(watch_event.type, watch_event.object["metadata"]["name"]) for watch_event in first] == [
            ("ADDED", name) for name in NAMES
        ]
        api.apply(QUICKSTART.replace("name: quickstart", "name: later"))
        later = next(events)
        assert (later.type, later.object["metadata"]["name"]) == ("ADDED", "later")
    watched = [url for url in asked if url.params.get("watch")]
    assert [int(url.params["resourceVersion"]) for url in watched] == [len(NAMES)]


def test_the_client_of_asyncio_reads_pages_too(api: ApiStack, asked: list[httpx.URL]) -> None:
    async def names() -> list[str]:
        async with AsyncPaddock(f"unix://{api.socket}") as paddock:
            return [document["metadata"]["name"] for document in await paddock.objects("sandboxes").list()]

    assert asyncio.run(names()) == NAMES
