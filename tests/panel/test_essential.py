"""The essential journey: create by the form, resize live, recreate, each with its plan first.

`make test` runs it where a browser is installed already, `make test-panel` always.
"""

import pytest
from playwright.sync_api import Page, expect

from tests.daemon import RunningDaemon, wait_for
from tests.panel.browser import WAIT_MS

pytestmark = [pytest.mark.journey, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)


def container(daemon: RunningDaemon, name: str) -> str:
    return str(daemon.get(name).get("status", {}).get("instanceRef", {}).get("containerID", ""))


def test_create_by_the_form_then_resize_live(daemon: RunningDaemon, page: Page) -> None:
    page.get_by_role("link", name="New sandbox").click()
    page.get_by_label("Name", exact=True).fill("formed")
    page.get_by_label("Command").fill('sh -c "echo hello; exec sleep infinity"')
    page.get_by_label("CPU").fill("100m")
    page.get_by_label("Memory").fill("64Mi")
    page.get_by_role("button", name="Variable", exact=True).click()
    page.get_by_label("Name", exact=True).last.fill("GREETING")
    page.get_by_label("Value").fill("<b>hi</b>")
    page.get_by_role("button", name="Review and create").click()
    plan = page.get_by_role("dialog")
    expect(plan.get_by_text("create pdk-formed")).to_be_visible()
    plan.get_by_role("button", name="Create").click()
    expect(page.locator(".head .status", has_text="Running")).to_be_visible()
    spec = daemon.get("formed")["spec"]
    assert spec["template"]["command"] == ["sh", "-c", "echo hello; exec sleep infinity"]
    assert spec["template"]["env"] == [{"name": "GREETING", "value": "<b>hi</b>"}]
    before = container(daemon, "formed")

    page.get_by_role("navigation", name="Sections").get_by_role("link", name="Edit").click()
    page.get_by_label("Memory").fill("96Mi")
    page.get_by_role("button", name="Apply configuration").click()
    row = plan.locator("tr", has_text="spec.resources.limits.memory")
    expect(row).to_contain_text("live")
    expect(row).to_contain_text("96Mi")
    plan.get_by_role("button", name="Apply").click()
    expect(page.locator(".head .status", has_text="Running")).to_be_visible()
    wait_for(
        "the new limit",
        lambda: (
            daemon.condition("formed", "Resized").get("status") == "True"
            and daemon.get("formed")["status"]["resources"]["limits"]["memory"] == "96Mi"
        ),
    )
    assert container(daemon, "formed") == before

    page.get_by_role("navigation", name="Sections").get_by_role("link", name="Edit").click()
    page.get_by_role("button", name="Remove variable GREETING").click()
    page.get_by_role("button", name="Apply configuration").click()
    expect(plan.locator("tr", has_text="spec.template.env")).to_contain_text("recreate")
    plan.get_by_role("button", name="Apply").click()
    wait_for("a new container", lambda: container(daemon, "formed") not in ("", before), 60)
    assert daemon.get("formed")["spec"]["template"]["env"] == []
