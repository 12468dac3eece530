"""Pages of kinds: one that the panel has never heard of, MCP servers, images, and the agent in a sandbox."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest
import yaml
from playwright.sync_api import Page, expect

from controller.kinds.base import Model, Text, Whole
from controller.kinds.mcpserver import SESSION_LABEL
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind, Registry, discover
from tests.api.listeners import opened, token
from tests.daemon import ROOT, RunningDaemon, wait_for
from tests.helpers_api import ApiStack, make_api
from tests.helpers_fixtures import quiet
from tests.panel.browser import WAIT_MS, Pages, sandbox

__all__ = ["quiet"]
pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
SERVER = (ROOT / "specs/mcpserver/calculator.yaml").read_text()
OTHER_TOOLS = "sha256:" + "c" * 64


class Bulb(Model):
    """One bulb of a street lamp."""

    watts: Whole


class StreetLampSpec(Model):
    """A lamp that a later version may bring."""

    colour: Literal["warm", "cold"]
    """Colour of its light."""
    place: Text
    """Its state now."""
    bulbs: tuple[Bulb, ...] = ()


def reason(obj: StoredObject, _now: float) -> str:
    return next((str(each["reason"]) for each in obj.status.get("conditions", ())), "Pending")


LAMP = Kind(name="StreetLamp", plural="streetlamps", spec=StreetLampSpec, columns=(Column("STATUS", reason),))
SignIn = Callable[..., Page]


@pytest.fixture
def api(tmp_path: Any, quiet: None) -> Iterator[ApiStack]:
    """A daemon's API without an engine, that serves one kind more."""
    made = make_api(tmp_path, registry=Registry((*discover(), LAMP)))
    yield made
    made.services.watches.close()
    made.files.close()
    made.store.close()


@pytest.fixture
def sign_in(api: ApiStack, pages: Pages) -> Iterator[SignIn]:
    with opened(api, host="127.0.0.1") as listeners:

        def go(at: str, role: str = "admin", *namespaces: str) -> Page:
            page = pages.open(f"{listeners.url}/panel/#/{at}")
            page.get_by_label("Token").fill(token(api, role, *namespaces))
            page.get_by_role("button", name="Sign in").click()
            return page

        yield go
        pages.check()
        pages.close()  # before the listeners, which wait for watches


def put(api: ApiStack, obj: StoredObject, **parts: Any) -> StoredObject:
    with api.store.transaction() as transaction:
        return transaction.put(replace(obj, **parts))


def stored(api: ApiStack, kind: str, name: str) -> StoredObject:
    found = api.store.get(kind, "default", name)
    assert found is not None
    return found


def condition(reason: str, message: str, status: str = "False") -> dict[str, Any]:
    when = "2023-11-14T22:13:20Z"
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": when}


def test_unknown_kind_has_list_page_and_editor(api: ApiStack, sign_in: SignIn) -> None:
    document = {"colour": "warm", "place": "<b>corner</b>", "bulbs": [{"watts": 40}, {"watts": 60}]}
    head = {"apiVersion": "paddock/v1alpha1", "kind": "StreetLamp", "metadata": {"name": "first"}}
    api.apply(yaml.safe_dump({**head, "spec": document}))
    status = {"lit": {"hours": 12}, "conditions": [condition("Flickering", "its <i>bulb</i> is loose")]}
    lamp = put(api, stored(api, "StreetLamp", "first"), status=status)
    api.add_event(lamp, "Flickered", "twice in an hour", "Warning")
    page = sign_in("sandboxes")
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Street lamps").click()
    expect(page.get_by_role("heading", name="Street lamps")).to_be_visible()
    row = page.get_by_role("row", name="first")
    expect(row).to_contain_text("Flickering")
    row.get_by_role("link", name="first").click()
    expect(page.get_by_role("region", name="Conditions")).to_contain_text("its <i>bulb</i> is loose")
    expect(page.get_by_role("region", name="Spec")).to_contain_text("- watts: 40\n- watts: 60")
    expect(page.get_by_role("region", name="Status")).to_contain_text("lit.hours")
    expect(page.get_by_role("region", name="Events").first).to_contain_text("twice in an hour")
    page.get_by_role("link", name="YAML").click()
    expect(page.locator("pre")).to_contain_text("<b>corner</b>")
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Street lamps").click()
    page.get_by_role("link", name="New street lamp").click()
    expect(page.get_by_text("Its state now.")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("second")
    page.get_by_label("Place").fill("corner")
    page.get_by_text("Bulbs", exact=True).click()
    page.get_by_role("group", name="Bulbs").get_by_role("button", name="Add").click()
    page.get_by_label("Watts").fill("60")
    page.get_by_role("button", name="YAML", exact=True).click()
    expect(page.get_by_role("textbox", name="YAML")).to_have_value(
        "apiVersion: paddock/v1alpha1\nkind: StreetLamp\nmetadata:\n  name: second\n"
        "  namespace: default\nspec:\n  colour: warm\n  place: corner\n  bulbs:\n    - watts: 60\n"
    )
    page.get_by_role("button", name="Review and create").click()
    expect(page.get_by_role("dialog")).to_contain_text("be forecast now")  # there is no engine here
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="second")).to_be_visible()
    assert stored(api, "StreetLamp", "second").spec["bulbs"] == [{"watts": 60}]
    page.get_by_role("link", name="Edit").click()
    page.get_by_role("combobox", name="Colour").select_option("cold")
    page.get_by_role("button", name="Apply configuration").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    expect(page.get_by_role("region", name="Spec")).to_contain_text("cold")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("second")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Street lamps")).to_be_visible()


def test_changed_tools_of_a_server_are_approved(api: ApiStack, sign_in: SignIn) -> None:
    api.apply(SERVER)
    tools = {"count": 1, "names": ["add"], "leftOut": 0, "digest": "sha256:" + "a" * 64}
    changed = {**tools, "changedDigest": OTHER_TOOLS, "changedCount": 2}
    status = {"tools": changed, "conditions": [condition("ToolsChanged", "the definitions of its tools changed")]}
    server = put(api, stored(api, "MCPServer", "calculator"), status=status)
    api.apply(sandbox("session-1").replace('"name"', f'"labels": {{"{SESSION_LABEL}": "s1"}}, "name"'))
    owner = {"apiVersion": "paddock/v1alpha1", "kind": "MCPServer", "name": "calculator", "uid": server.uid}
    put(api, api.sandbox("session-1"), owner_references=(owner,))
    reading = sign_in("mcpservers/default/calculator", "viewer", "default")
    approve = reading.get_by_role("button", name="Approve tools")
    expect(approve).to_be_disabled()
    refusal = "token t0 may not update MCPServer; it needs the role operator in namespace `default`"
    expect(approve).to_have_attribute("title", refusal)
    page = sign_in("mcpservers", "operator", "default")
    row = page.get_by_role("row", name="calculator")
    expect(row).to_contain_text("ToolsChanged")
    row.get_by_role("link", name="calculator").click()
    expect(page.get_by_role("region", name="Tools")).to_contain_text("add")
    expect(page.get_by_role("region", name="How it runs")).to_contain_text("each session in a sandbox of its own")
    expect(page.get_by_role("region", name="Sessions").get_by_role("link", name="session-1")).to_be_visible()
    page.get_by_role("button", name="Approve tools").click()
    expect(page.get_by_role("dialog")).to_contain_text(OTHER_TOOLS)
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("button", name="Approve tools")).to_have_count(0)
    assert stored(api, "MCPServer", "calculator").spec["tools"]["digest"] == OTHER_TOOLS
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("button", name="Enable")).to_be_visible()
    assert stored(api, "MCPServer", "calculator").spec["enabled"] is False
    page.get_by_role("region", name="Sessions").get_by_role("button", name="End").click()
    page.get_by_role("dialog").get_by_role("button", name="End").click()
    wait_for("its deletion", lambda: api.sandbox("session-1").deleted_at is not None, 60)


def test_images_are_built_and_deleted(api: ApiStack, sign_in: SignIn) -> None:
    page = sign_in("images")
    page.get_by_role("button", name="Build an image").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name and tag").fill("team/tool:1")
    dialog.get_by_label("Dockerfile").fill("FROM paddock/base:1\nADD app /app\n")
    dialog.get_by_label("Files beside it").set_input_files({"name": "app", "mimeType": "", "buffer": b"x" * 700})
    dialog.get_by_role("button", name="Build").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Line 2")
    dialog.get_by_label("Dockerfile").fill("FROM paddock/base:1\nCOPY app /app\n")
    dialog.get_by_role("button", name="Build").click()
    row = page.get_by_role("row", name="team/tool:1")
    row.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    assert api.images.find("team/tool:1") is None


def test_secrets_are_set_and_never_shown(api: ApiStack, sign_in: SignIn) -> None:
    mounts = [{"name": "npm", "mountPath": "/run/npm"}]
    api.apply(sandbox("builder", template={"image": "paddock/base:1", "secrets": mounts}))
    page = sign_in("secrets")
    row = page.get_by_role("row", name="npm")
    expect(row).to_contain_text("not set")
    expect(row.get_by_role("link", name="Sandbox builder")).to_be_visible()
    row.get_by_role("button", name="Set npm").click()
    page.get_by_role("dialog").get_by_label("Value").fill("s3cr3t")
    page.get_by_role("dialog").get_by_role("button", name="Set", exact=True).click()
    expect(row.locator("time")).to_be_visible()
    assert (api.folder / "secrets/default/npm").read_text() == "s3cr3t"
    assert "s3cr3t" not in page.content()


def test_images_are_listed_and_pulled(api: ApiStack, sign_in: SignIn) -> None:
    page = sign_in("images", "user", "default")
    expect(page.get_by_role("row", name="paddock/base:1")).to_be_visible()
    page.get_by_label("Image to pull").fill("elsewhere.example/x:1")
    page.get_by_role("button", name="Pull").click()
    expect(page.get_by_role("alert")).to_contain_text("elsewhere.example/x:1")


def test_agent_state_and_tools_are_shown(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("coder", template={"image": "paddock/python:1", "agent": {"git": "None"}}))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/coder")
    page.goto(f"{page.url.partition('#')[0]}#/sandboxes/default/coder")
    agent = page.get_by_role("region", name="Agent")
    expect(agent).to_contain_text("OtherUser")
    expect(agent).to_contain_text("the daemon alone")
    agent.get_by_role("button", name="List its tools").click()
    expect(agent.get_by_text("file.read", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Why it is so")).to_contain_text("git None")
