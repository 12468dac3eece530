"""The audit log over HTTP: entries of all writers by time, and a report of each chain."""

from collections.abc import Iterator

import httpx
import pytest

from controller.kinds.access.audit import AuditEntry
from controller.store.sql_store import SqlStore
from tests.api.listeners import API, client
from tests.helpers_api import ApiStack


@pytest.fixture
def api(served: ApiStack) -> Iterator[httpx.Client]:
    """Asks this host's daemon. That of host b has appended two entries."""
    served.apply()
    store = SqlStore(f"sqlite:///{served.folder / 'paddock.db'}", writer="b")
    store.open()
    now = served.clock.now()
    store.audit.append([AuditEntry(now + entry, "eve", "", "exec", "Sandbox", "default", "box") for entry in (-5, 5)])
    store.close()
    with client(served) as created:
        yield created


def test_entries_of_all_writers_come_by_time(api: httpx.Client) -> None:
    document = api.get(f"{API}/audit").json()["items"]
    assert [(entry["writer"], entry["id"]) for entry in document] == [("b", 1), ("host", 1), ("b", 2)]
    of_b = api.get(f"{API}/audit", params={"writer": "b", "limit": "1"}).json()["items"]
    assert [(entry["writer"], entry["id"]) for entry in of_b] == [("b", 2)]
    assert api.get(f"{API}/audit", params={"writer": ""}).json()["items"] == [], "older versions wrote none"


def test_the_report_sums_up_every_chain(api: httpx.Client) -> None:
    document = api.get(f"{API}/audit/verify").json()
    assert (document["entries"], document["pruned"], document["thinned"], document["problem"]) == (3, 0, 0, "")
    assert [(chain["writer"], chain["entries"], chain["lastId"]) for chain in document["chains"]] == [
        ("b", 2, 2),
        ("host", 1, 1),
    ]
    newest = document["chains"][0]
    assert (document["lastId"], document["lastHash"]) == (newest["lastId"], newest["lastHash"])
