"""The page of the hosts: the only one by itself, many as a list, and each of those."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from controller.api.fleet.collect import Collected, Missing
from controller.api.routes.sandbox import usage
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import UsageSample
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports.fleet import ManyHosts
from controller.service.sandbox.usage import Usages
from tests.fakes.engine import FACTS
from tests.helpers_api import QUICKSTART, ApiStack, make_api
from tests.helpers_fixtures import quiet
from tests.metrics.made_up import USAGE
from tests.panel.browser import WAIT_MS
from tests.panel.test_kinds import SignIn, sign_in

__all__ = ["quiet", "sign_in"]
pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)


@pytest.fixture
def api(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    """The API of host a; the daemon of host b is away."""
    created = make_api(tmp_path, place=ManyHosts("a"))
    created.view.seen = replace(created.view.seen, facts=FACTS, revision=1)
    answered = {"type": "EngineReachable", "status": "True", "reason": "Answered", "message": ""}
    status = {"paddock": {"version": "1.2", "instanceID": "i-1"}, "conditions": [answered]}
    with created.store.transaction() as transaction:
        transaction.put(StoredObject("Host", "", "b", "uid-b", {}, status=status))
    yield created
    created.services.watches.close()
    created.files.close()
    created.store.close()


def test_many_hosts_are_a_list_with_a_page_each(api: ApiStack, sign_in: SignIn) -> None:
    page = sign_in("hosts")
    expect(page.get_by_role("row", name="a", exact=False).filter(has_text="Ready")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="daemon away")).to_be_visible()
    page.get_by_role("link", name="b", exact=True).click()
    expect(page.get_by_role("heading", name="Host b")).to_be_visible()
    expect(page.get_by_text("DaemonReachable")).to_be_visible()
    page.goto(page.url.replace("hosts/b", "hosts/c"))
    expect(page.get_by_text("There is no host c.")).to_be_visible()


def test_the_only_host_has_the_page(api: ApiStack, sign_in: SignIn) -> None:
    with api.store.transaction() as transaction:
        host = transaction.get("Host", "", "b")
        assert host is not None
        transaction.remove(host)
    page = sign_in("hosts")
    expect(page.get_by_role("heading", name="Host", exact=True)).to_be_visible()
    expect(page.get_by_text("Doctor", exact=True)).to_be_visible()


@pytest.fixture
def used(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> ApiStack:
    """Sandbox `one` runs on host a and `two` on b, as the daemons of both report; host c gives no answer."""
    api.apply("---\n".join(QUICKSTART.replace("name: quickstart", f"name: {name}") for name in ("one", "two")))
    document = {}
    for name, host in (("one", "a"), ("two", "b")):
        limits = {"cpu": "500m", "memory": "512Mi"}
        obj = api.change(name, status={"host": host, "resources": {"limits": limits}})
        running = Container(id=name, name=name, uid=obj.uid, state=State.RUNNING)
        document[host] = {obj.uid: UsageSample(running, USAGE, api.clock.now(), 0.25, 5.0)}
    usages = {host: Usages(api.services.objects, lambda host=host: document[host], host) for host in document}
    api.services = replace(api.services, usages=usages["a"])
    present = {"kind": "SandboxMetricsList", "items": usages["b"].of_all(SANDBOX, None).items}
    answers = Collected({"b": present}, [Missing("c", "no answer in time")])
    monkeypatch.setattr(usage, "collect", lambda _request: answers)
    return api


@pytest.mark.usefixtures("used")
def test_sandboxes_of_all_hosts_show_host_and_use(sign_in: SignIn) -> None:
    page = sign_in("sandboxes")
    for name, host in (("one", "a"), ("two", "b")):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        expect(row.get_by_role("cell", name=host, exact=True)).to_be_visible()
        expect(row.get_by_role("meter", name="CPU")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Host")).to_be_visible()
    page.get_by_role("link", name="two", exact=True).click()
    expect(page.get_by_role("link", name="b", exact=True)).to_be_visible()
    page.go_back()
    expect(page.get_by_text("Without the usage on hosts that give no answer: c (no answer in time).")).to_be_visible()


@pytest.mark.usefixtures("used")
def test_the_list_of_hosts_shows_their_use(sign_in: SignIn) -> None:
    page = sign_in("hosts")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="a", exact=True))
    expect(row.get_by_role("meter", name="CPU")).to_be_visible()
    expect(row.get_by_role("meter", name="Memory")).to_be_visible()


def test_sandboxes_of_the_only_host_name_none(api: ApiStack, sign_in: SignIn) -> None:
    api.apply()
    api.change(status={"host": "a"})
    page = sign_in("sandboxes")
    expect(page.get_by_role("link", name="quickstart", exact=True)).to_be_visible()
    expect(page.get_by_role("columnheader", name="Host")).to_have_count(0)
