"""The whole form of a sandbox, pools, tokens and lists that begin anew: on a daemon's API without an engine."""

import json
import re

import pytest
from playwright.sync_api import Route, expect

from controller.kinds.sandbox import KIND as SANDBOX
from tests.helpers_api import ApiStack
from tests.helpers_fixtures import quiet
from tests.panel.browser import WAIT_MS, sandbox
from tests.panel.test_kinds import SignIn, api, put, sign_in, stored

__all__ = ["api", "quiet", "sign_in"]
pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
PROVIDER = """\
apiVersion: paddock/v1alpha1
kind: Provider
metadata: {name: openai}
spec: {type: OpenAI, url: "https://api.example.org"}
"""
POOL = """\
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: python}
spec: {image: "paddock/base:1"}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: python}
spec: {templateRef: {name: python}, warmReplicas: 2, maxReplicas: 4}
"""


def test_every_field_of_the_form_is_in_the_object(api: ApiStack, sign_in: SignIn) -> None:
    api.apply(PROVIDER)
    page = sign_in("sandboxes/new")
    page.get_by_label("Name", exact=True).fill("whole")
    page.get_by_role("checkbox", name="openai provider").check()
    page.get_by_label("Enabled").uncheck()
    page.get_by_label(re.compile("^Image")).fill("paddock/base:1")
    page.get_by_label("Command").fill('sh -c "sleep 1"')
    for label, value in {"CPU": "500m", "Memory": "256Mi", "GPUs": "1", "Processes": "64", "Disk": "1Gi"}.items():
        page.get_by_label(re.compile(f"^{label}")).fill(value)
    levels = page.get_by_role("radio").evaluate_all("radios => radios.map((radio) => radio.value)")
    assert levels[:4] == ["full-isolation", "development", "build", "production"]
    page.get_by_role("radio", name=re.compile(r"Build \(Package Access\)")).check()
    page.get_by_label("Restart policy").select_option("OnFailure")
    page.get_by_label("Idle time").fill("600")
    page.get_by_label("When idle").select_option("Suspend")
    page.get_by_label("On suspension").select_option("Discard")
    page.get_by_role("switch", name="Agent").check()
    page.get_by_label("Network mode").select_option("none")
    expect(page.get_by_label("Network mode").locator("option", has_text="Host: refused")).to_be_disabled()
    page.get_by_role("switch", name="Read-only root").check()
    dropped = page.get_by_role("group", name="Capabilities").get_by_role("checkbox").first
    dropped.uncheck()
    page.get_by_label("Allowed hosts").fill("pypi.org, files.pythonhosted.org")
    page.get_by_role("button", name="Volume", exact=True).click()
    page.get_by_label("Source (volume)").fill("data")
    page.get_by_label("Target").fill("/data")
    page.get_by_label("Size").fill("2Gi")
    page.get_by_role("checkbox", name="Read-only", exact=True).check()
    page.get_by_role("button", name="Variable", exact=True).click()
    page.get_by_label("Name", exact=True).last.fill("MODE")
    page.get_by_label("Value").fill("<b>")
    page.get_by_role("button", name="YAML", exact=True).click()
    text = page.get_by_role("textbox", name="YAML").input_value()
    assert "mountPath: /data" in text
    assert "securityLevel: build" in text
    page.get_by_role("button", name="Review and create").click()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="whole")).to_be_visible()
    spec = stored(api, SANDBOX.name, "whole").spec
    limits = {"cpu": "500m", "memory": "256Mi", "gpus": 1, "pids": 64, "disk": "1Gi"}
    assert {each: spec["resources"]["limits"][each] for each in limits} == limits
    assert spec["runState"] == "Suspended"
    assert spec["restartPolicy"] == "OnFailure"
    life = {"idleTimeoutSeconds": 600, "onIdle": "Suspend", "onSuspend": "Discard"}
    assert life.items() <= spec["lifecycle"].items()
    assert spec["template"]["agent"] is not None
    assert spec["models"] == [{"providerRef": {"name": "openai"}}]
    assert spec["network"]["allowedHosts"] == ["pypi.org", "files.pythonhosted.org"]
    template = spec["template"]
    assert (template["image"], template["command"]) == ("paddock/base:1", ["sh", "-c", "sleep 1"])
    assert template["securityLevel"] == "build"
    security = template["security"]
    assert (security["network"]["mode"], security["readOnlyRootFilesystem"]) == ("none", True)
    assert isinstance(security["capabilities"], list)
    (volume,) = template["volumes"]
    assert {"name": "data", "mountPath": "/data", "size": "2Gi", "readOnly": True}.items() <= volume.items()
    assert template["env"] == [{"name": "MODE", "value": "<b>"}]


# Kind -> what a person fills in.
BLANKS = {
    "sandboxtemplates": {},
    "sandboxpools": {},
    "mcpservers": {"package.name": "server", "package.version": "1.0.0"},
    "providers": {"url": "https://api.example.org"},
    "quotas": {},
    "securityprofiles": {},
    "modelservers": {},
    "workflows": {},
    "workflowruns": {},
}


def test_new_objects_need_their_blanks_alone(api: ApiStack, sign_in: SignIn) -> None:
    page = sign_in("sandboxes")
    for plural, blanks in BLANKS.items():
        page.goto(f"{page.url.partition('#')[0]}#/{plural}/new")
        expect(page.get_by_role("heading", level=1)).to_contain_text("New ")
        page.get_by_label("Name", exact=True).first.fill("fresh")
        for path, value in blanks.items():
            block, _, field = path.rpartition(".")
            place = page.get_by_role("group", name=block.capitalize(), exact=True) if block else page
            place.get_by_label(re.compile(f"^{field}", re.IGNORECASE)).first.fill(value)
        page.get_by_role("button", name="Review and create").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Create")).to_be_enabled()
        dialog.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name="fresh")).to_be_visible()
    assert stored(api, "MCPServer", "fresh").spec["package"]["version"] == "1.0.0"


def test_yaml_has_lines_and_completions(api: ApiStack, sign_in: SignIn) -> None:
    page = sign_in("mcpservers/new")
    page.get_by_role("button", name="YAML", exact=True).click()
    text, choices = page.get_by_role("textbox", name="YAML"), page.get_by_role("listbox", name="Completions")
    expect(page.locator(".gutter")).to_contain_text("10")
    text.press("Control+End")
    page.keyboard.type("  tru")
    expect(choices.get_by_role("option")).to_have_text(re.compile("^trust"))
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(text).to_have_value(re.compile("\n  trust: verified$"))
    page.keyboard.press("Enter")
    page.keyboard.type("net")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+Space")
    expect(choices.get_by_role("option")).to_have_text(re.compile("^allowedHosts"))
    page.keyboard.press("Escape")
    expect(choices).to_have_count(0)
    page.get_by_role("button", name="Review and create").click()
    expect(page.locator(".gutter .refused").first).to_have_text("4")
    expect(page.get_by_role("alert")).to_contain_text("Line 9: spec.package.name")


def test_rows_are_acted_on_together(api: ApiStack, sign_in: SignIn) -> None:
    volumes = [{"name": "data", "mountPath": "/data", "size": "1Gi"}]
    for name in ("one", "two", "three"):
        api.apply(sandbox(name, template={"image": "paddock/base:1", "volumes": volumes}))
    page = sign_in("sandboxes")
    for name in ("one", "two"):
        page.get_by_role("checkbox", name=f"Select {name}").check()
    selection, dialog = page.get_by_role("group", name="Selection"), page.get_by_role("dialog")
    expect(selection).to_contain_text("2 selected")
    selection.get_by_role("button", name="Suspend").click()
    expect(dialog).to_contain_text("Stops its processes")
    dialog.get_by_role("button", name="Suspend").click()
    expect(dialog).to_have_count(0)
    assert [stored(api, SANDBOX.name, name).spec["runState"] for name in ("one", "two")] == ["Suspended"] * 2
    page.get_by_role("checkbox", name="Select all shown").check()
    selection.get_by_role("button", name="Suspend").click()
    expect(dialog).to_contain_text("2 more are so already")
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete three").click()
    expect(dialog).to_contain_text("Lost: what it wrote to its root file system and to memory. Stays: volume data")
    dialog.get_by_role("textbox").fill("three")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_have_count(0)
    assert stored(api, SANDBOX.name, "three").deleted_at is not None
    reading = sign_in("sandboxes", "viewer", "default")
    expect(reading.get_by_role("button", name="Delete one")).to_be_disabled()


def test_pools_show_their_members_and_are_scaled(api: ApiStack, sign_in: SignIn) -> None:
    api.apply(POOL)
    document = json.loads(sandbox("claimed", templateRef={"name": "python"}))
    del document["spec"]["template"]
    api.apply(json.dumps(document))
    put(api, stored(api, SANDBOX.name, "claimed"), status={"launchType": "Warm"})
    put(api, stored(api, "SandboxPool", "python"), status={"readyReplicas": 1, "claimedReplicas": 1})
    page = sign_in("sandboxpools")
    row = page.get_by_role("row", name="python")
    expect(row).to_contain_text("1 of 2")
    expect(row).to_contain_text("1 of 4")
    expect(row).to_contain_text("1 to come")
    row.get_by_role("button", name="Keep one more warm in python").click()
    expect(row).to_contain_text("1 of 3")
    assert stored(api, "SandboxPool", "python").spec["warmReplicas"] == 3
    row.get_by_role("link", name="python").first.click()
    expect(page.get_by_role("region", name="Members").first.get_by_role("row", name="claimed")).to_contain_text(
        "Claimed"
    )


def test_tokens_are_created_and_revoked(api: ApiStack, sign_in: SignIn) -> None:
    page = sign_in("tokens")
    page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("ci")
    dialog.get_by_label("Role").select_option("viewer")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.locator("pre")).to_contain_text("pdk_")
    dialog.get_by_role("button", name="Done").click()
    row = page.get_by_role("row", name="ci")
    expect(row).to_contain_text("viewer in default")
    row.get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text(re.compile("revoked", re.IGNORECASE))
    expect(row.get_by_role("button")).to_have_count(0)


def test_list_is_read_again_when_its_version_is_gone(api: ApiStack, sign_in: SignIn) -> None:
    api.apply(sandbox("early", runState="Suspended"))
    page = sign_in("hosts")
    expect(page.get_by_role("heading", name="Host")).to_be_visible()
    refused: list[str] = []

    def expire(route: Route) -> None:
        if refused:
            route.continue_()
            return
        refused.append(route.request.url)
        api.apply(sandbox("late", runState="Suspended"))  # between the list and its watch
        status = {"kind": "Status", "status": "Failure", "reason": "Expired", "message": "list again", "code": 410}
        route.fulfill(status=410, content_type="application/json", body=json.dumps(status))

    page.route(re.compile(r"/sandboxes\?.*watch=1"), expire)
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Sandboxes").click()
    expect(page.get_by_role("row", name="early")).to_be_visible()
    expect(page.get_by_role("row", name="late")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert len(refused) == 1
