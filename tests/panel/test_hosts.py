"""The page of the hosts: the only one by itself, many as a list, and each of those."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from controller.kinds.meta import StoredObject
from controller.ports.place import Place
from tests.fakes.engine import FACTS
from tests.helpers_api import World, make_world
from tests.helpers_fixtures import quiet
from tests.panel.browser import WAIT_MS
from tests.panel.test_kinds import SignIn, sign_in

__all__ = ["quiet", "sign_in"]
pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)


@pytest.fixture
def world(tmp_path: Path, quiet: None) -> Iterator[World]:
    """The API of host a; the daemon of host b is away."""
    made = make_world(tmp_path, place=Place("a", "", alone=False))
    made.view.seen = replace(made.view.seen, facts=FACTS, revision=1)
    answered = {"type": "EngineReachable", "status": "True", "reason": "Answered", "message": ""}
    status = {"paddock": {"version": "1.2", "instanceID": "i-1"}, "conditions": [answered]}
    with made.store.transaction() as transaction:
        transaction.put(StoredObject("Host", "", "b", "uid-b", {}, status=status))
    yield made
    made.services.watches.close()
    made.files.close()
    made.store.close()


def test_many_hosts_are_a_list_with_a_page_each(world: World, sign_in: SignIn) -> None:
    page = sign_in("hosts")
    expect(page.get_by_role("row", name="a", exact=False).filter(has_text="Ready")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="daemon away")).to_be_visible()
    page.get_by_role("link", name="b", exact=True).click()
    expect(page.get_by_role("heading", name="Host b")).to_be_visible()
    expect(page.get_by_text("DaemonReachable")).to_be_visible()
    page.goto(page.url.replace("hosts/b", "hosts/c"))
    expect(page.get_by_text("There is no host c.")).to_be_visible()


def test_the_only_host_has_the_page(world: World, sign_in: SignIn) -> None:
    with world.store.transaction() as transaction:
        found = transaction.get("Host", "", "b")
        assert found is not None
        transaction.remove(found)
    page = sign_in("hosts")
    expect(page.get_by_role("heading", name="Host", exact=True)).to_be_visible()
    expect(page.get_by_text("Doctor", exact=True)).to_be_visible()
