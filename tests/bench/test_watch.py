"""The API's figures over its socket: from a commit to a client's line, a list of 1,000, an apply of 1,000."""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from controller.documents.document import parse
from controller.kinds.registry import discover
from controller.store import rows
from controller.store.connect import connect
from tests.bench.test_store import bare_insert
from tests.contract.store_backends import new_sandbox
from tests.helpers_api import QUICKSTART, ApiStack, make_api
from tests.helpers_fixtures import quiet

__all__ = ["quiet"]
pytestmark = pytest.mark.bench
COUNT, ROUNDS = 1000, 3
API = "/apis/paddock/v1alpha1"
SANDBOXES = f"{API}/namespaces/default/sandboxes"


@pytest.fixture
def api(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    created = make_api(tmp_path)
    server = created.server()
    server.start()
    yield created
    created.services.watches.close()
    server.stop()
    created.store.close()


@pytest.fixture
def client(api: ApiStack) -> Iterator[httpx.Client]:
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(api.socket), verify=False), base_url="http://paddock", timeout=60
    ) as created:
        yield created


def documents(prefix: str) -> str:
    return "---\n".join(QUICKSTART.replace("name: quickstart", f"name: {prefix}-{index:04}") for index in range(COUNT))


def best(action: Callable[[int], object]) -> float:
    """Seconds of the quickest of some rounds."""
    spent = []
    for round_ in range(ROUNDS):
        start = time.perf_counter()
        action(round_)
        spent.append(time.perf_counter() - start)
    return min(spent)


def test_from_a_commit_to_the_line_at_the_client(api: ApiStack, client: httpx.Client) -> None:
    """From before the write is asked for: an upper bound of the time since its commit, which is amid it."""
    api.apply()
    requested, reported, content = [], [], []
    with client.stream("GET", SANDBOXES, params={"watch": "1", "resourceVersion": "1"}) as answer:
        lines = answer.iter_lines()
        for number in range(200):
            changed = QUICKSTART.replace("demo", f"demo-{number}")
            start = time.perf_counter()
            api.apply(changed)
            applied = time.perf_counter()
            next(lines)
            reported.append(time.perf_counter() - start)
            content.append(applied - start)
            started_at = time.perf_counter()
            client.get(f"{SANDBOXES}/quickstart")
            requested.append(time.perf_counter() - started_at)
    ours, write, bare = statistics.median(reported), statistics.median(content), statistics.median(requested)
    worst = sorted(reported)[int(len(reported) * 0.99)]
    print(
        f"\ncommit to line, the commit's own {write * 1000:.1f} ms included: median {ours * 1000:.1f} ms, "
        f"99 % {worst * 1000:.1f} ms; one GET: {bare * 1000:.1f} ms; ratio {ours / bare:.2f}"
    )


def test_list_a_thousand(api: ApiStack, client: httpx.Client) -> None:
    api.apply(documents("box"))

    def get(_: int) -> None:
        assert len(client.get(SANDBOXES).json()["items"]) == COUNT

    ours, bare = best(get), best(lambda _: api.store.list("Sandbox"))
    print(
        f"\nlist {COUNT} over the socket: {ours * 1000:.0f} ms; the store alone {bare * 1000:.0f} ms; {ours / bare:.1f}"
    )


def test_apply_a_thousand_documents_of_one_file(api: ApiStack, client: httpx.Client, tmp_path: Path) -> None:
    texts = [documents(f"ours{index}") for index in range(ROUNDS)]

    def apply(round_: int) -> None:
        answer = client.post(f"{API}/apply", json={"documents": [{"file": "app.yaml", "text": texts[round_]}]})
        assert len(answer.json()["items"]) == COUNT

    ours = best(apply)
    parsed = best(lambda round_: parse("app.yaml", texts[round_], discover()))
    database = connect(api.store._url)
    spec = api.store.list("Sandbox")[0][0].spec

    def bare_round(round_: int) -> None:
        sandboxes = (new_sandbox(f"bare{round_}-{index}", spec=spec, last_applied=spec) for index in range(COUNT))
        bare_insert(database, [rows.object_row(sandbox) for sandbox in sandboxes])

    bare = best(bare_round)
    database.close()
    print(
        f"\napply {COUNT} over the socket: {ours:.2f} s; parsing {parsed:.2f} s, bare SQLAlchemy {bare:.2f} s; "
        f"ratio {ours / (parsed + bare):.2f}"
    )
