"""The audit log over HTTP: entries of all writers by time, and a report of each chain."""

from collections.abc import Iterator

import httpx
import pytest

from controller.kinds.access.audit import AuditEntry
from controller.store.sql_store import SqlStore
from tests.api.listeners import API, client
from tests.helpers_api import World


@pytest.fixture
def api(served: World) -> Iterator[httpx.Client]:
    """Asks this host's daemon. That of host b has appended two entries."""
    served.apply()
    other = SqlStore(f"sqlite:///{served.folder / 'paddock.db'}", writer="b")
    other.open()
    now = served.clock.now()
    other.audit.append([AuditEntry(now + each, "eve", "", "exec", "Sandbox", "default", "box") for each in (-5, 5)])
    other.close()
    with client(served) as made:
        yield made


def test_entries_of_all_writers_come_by_time(api: httpx.Client) -> None:
    found = api.get(f"{API}/audit").json()["items"]
    assert [(each["writer"], each["id"]) for each in found] == [("b", 1), ("host", 1), ("b", 2)]
    of_b = api.get(f"{API}/audit", params={"writer": "b", "limit": "1"}).json()["items"]
    assert [(each["writer"], each["id"]) for each in of_b] == [("b", 2)]
    assert api.get(f"{API}/audit", params={"writer": ""}).json()["items"] == [], "older versions wrote none"


def test_the_report_sums_up_every_chain(api: httpx.Client) -> None:
    found = api.get(f"{API}/audit/verify").json()
    assert (found["entries"], found["pruned"], found["thinned"], found["problem"]) == (3, 0, 0, "")
    assert [(each["writer"], each["entries"], each["lastId"]) for each in found["chains"]] == [
        ("b", 2, 2),
        ("host", 1, 1),
    ]
    newest = found["chains"][0]
    assert (found["lastId"], found["lastHash"]) == (newest["lastId"], newest["lastHash"])
