"""Everybody can use it: screen readers, the keyboard alone, dark and light, narrow screens."""

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Page, expect

from controller.cli.relays.panel import PanelRelay
from tests.daemon import ROOT, RunningDaemon, wait_for
from tests.panel.browser import WAIT_MS, Pages, sandbox

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
SCREENSHOTS = Path(__file__).resolve().parents[2] / "controller/api/panel/screenshots"
MOST_BYTES = 100 << 10
QUOTA = {"hard": {"cpu": "4", "memory": "2Gi", "pids": 2048, "sandboxes": 20}}
TEMPLATE = {"image": "paddock/python:1", "command": ["sleep", "infinity"], "resources": {"limits": {"memory": "64Mi"}}}
EXAMPLES = ("workflow/build.yaml", "workflowrun/run.yaml", "plugin/docker-mcp-tools.yaml")
NAMED = "metadata: {name: "
# Page -> text by which it is seen to be there.
SHOWN = {
    "sandboxes": "shop-api",
    "sandboxes/new": "Full Isolation (No Network)",
    "sandboxes/default/shop-api": "As its spec asks",
    "sandboxes/default/shop-api/charts": "Processes (PIDs)",
    "sandboxes/default/shop-api/logs": "listening",
    "sandboxes/default/shop-api/files": "This folder is empty",
    "sandboxes/default/shop-api/terminal": "$",
    "sandboxes/default/shop-api/events": "Started",
    "sandboxes/default/shop-api/attest": "Compared with its rendered config",
    "sandboxes/default/shop-api/yaml": "apiVersion",
    "sandboxes/default/shop-api/edit": "Volumes",
    "sandboxpools": "python",
    "sandboxpools/default/python": "Conditions",
    "quotas": "Waiting for room (1)",
    "securityprofiles": "full-isolation",
    "hosts": "Show all",
    "events": "Started",
    "instances": "pdk-shop-api",
    "mcpservers": "calculator",
    "mcpservers/default/calculator": "How it runs",
    "mcpservers/new": "Package that has the server",
    "sandboxes/agents/coder": "List its tools",
    "models": "openrouter",
    "providers/default/openrouter": "Requests, last minute",
    "providers/new": "Review and create",
    "workflows/agents/build": "It has not run yet",
    "workflowruns": "hello",
    "workflowruns/agents/hello": "1 of 1 done",
    "plugins/agents/docker-mcp-tools": "It needs none",
    "projects": "No projects",
    "images": "paddock/python:1",
    "secrets": "Values are set here",
    "audit": "create",
    "tokens": "No tokens",
}


def document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


@pytest.fixture(scope="module")
def busy(daemon: RunningDaemon) -> RunningDaemon:
    """A host with a bit of everything."""
    big = {"resources": {"limits": {"cpu": "100m", "memory": "1900Mi"}}}
    level = {"template": {**TEMPLATE, "command": ["sh", "-c", "sleep 1; exit 3"]}, "restartPolicy": "OnFailure"}
    documents = [
        document("Quota", "team", QUOTA),
        document("SandboxTemplate", "python", TEMPLATE),
        document("SandboxPool", "python", {"templateRef": {"name": "python"}, "warmReplicas": 2, "maxReplicas": 4}),
        sandbox("shop-api", "echo listening; while :; do echo ok; sleep 1; done"),
        sandbox("shop-worker", "while :; do :; done"),
        sandbox("experiments", runState="Suspended"),
        sandbox(
            "importer", "echo cannot open input >&2; exit 3", **{k: v for k, v in level.items() if k != "template"}
        ),
        sandbox("training", **big),
        document("Provider", "openrouter", {"type": "OpenAI", "url": "https://models.example.org/v1"}),
        (ROOT / "specs/mcpserver/calculator.yaml").read_text(),
        # Beside the namespace with a quota, whose queue is looked at.
        *(
            (ROOT / "specs" / each).read_text().replace(NAMED, f"{NAMED[:-6]}namespace: agents, name: ", 1)
            for each in EXAMPLES
        ),
    ]
    coder = json.loads(sandbox("coder", template={"image": "paddock/python:1", "agent": {}}))
    documents.append(json.dumps({**coder, "metadata": {"name": "coder", "namespace": "agents"}}))
    daemon.apply("\n---\n".join(documents))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/shop-api")
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/shop-worker")
    return daemon


def show(page: Page, relay: PanelRelay, path: str) -> None:
    page.goto(f"{relay.origin}/panel/#/{path}")
    expect(page.locator("main").get_by_text(SHOWN[path]).first).to_be_visible()


def signed_in(pages: Pages, relay: PanelRelay, **options: Any) -> Page:
    page = pages.open(relay.url(), **options)
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_findings(busy: RunningDaemon, pages: Pages, relay: PanelRelay, scheme: str) -> None:
    page = signed_in(pages, relay, color_scheme=scheme, bypass_csp=False)
    serious = []
    for path in SHOWN:
        show(page, relay, path)
        serious += findings(page, path, dark=scheme == "dark")
    show(page, relay, "sandboxes/default/shop-api/edit")
    page.get_by_label("Memory").fill("80Mi")
    page.get_by_role("button", name="Apply configuration").click()
    expect(page.get_by_text("spec.resources.limits.memory")).to_be_visible()
    serious += findings(page, "plan", dark=scheme == "dark")
    assert serious == []


def findings(page: Page, place: str, *, dark: bool) -> list[str]:
    """Serious and critical findings of axe, as text. xterm's own rows are left to its screen reader mode.

    In the dark only colours differ.
    """
    options: dict[str, Any] = {"resultTypes": ["violations"], **({"runOnly": ["color-contrast"]} if dark else {})}
    found = Axe().run(page, context={"exclude": [[".xterm"]]}, options=options).response["violations"]
    return [
        f"{place}: {each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0].get('failureSummary', '')}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_narrow_screens_scroll_in_one_direction(busy: RunningDaemon, pages: Pages, relay: PanelRelay) -> None:
    page = signed_in(pages, relay, viewport={"width": 320, "height": 640})
    for path in SHOWN:
        show(page, relay, path)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{path} is {wide} px too wide"
        if path.endswith("events"):
            assert page.locator(".scroll").evaluate("(region) => region.scrollWidth - region.clientWidth") == 0
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Pools").click()
    expect(page.get_by_role("heading", name="Pools")).to_be_visible()


def test_menu_of_a_narrow_screen_closes(busy: RunningDaemon, pages: Pages, relay: PanelRelay) -> None:
    page = signed_in(pages, relay, viewport={"width": 768, "height": 600})
    show(page, relay, "projects")  # a short page
    bar, menu = page.locator(".bar-top"), page.get_by_role("button", name="Menu")
    assert bar.bounding_box()["height"] < 80
    for close in (lambda: page.keyboard.press("Escape"), lambda: page.mouse.click(700, 300)):
        menu.click()
        sign_out = page.get_by_role("button", name="Sign out")
        expect(sign_out).to_be_in_viewport(ratio=1)
        close()
        expect(sign_out).to_be_hidden()
    menu.click()
    page.get_by_role("link", name="Projects").click()  # the page where one is
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()


def test_keyboard_alone_creates_a_sandbox(busy: RunningDaemon, pages: Pages, relay: PanelRelay) -> None:
    page = signed_in(pages, relay)

    def tab_to(name: str, limit: int = 80) -> None:
        for _ in range(limit):
            page.keyboard.press("Tab")
            text = page.evaluate(
                "[document.activeElement.innerText, document.activeElement.getAttribute('aria-label'),"
                " document.activeElement.labels?.[0]?.innerText].filter(Boolean).map((each) => each.trim())"
            )
            if any(each == name or each.startswith(f"{name} ") for each in text):
                return
        raise AssertionError(f"Tab does not reach {name}")

    tab_to("New sandbox")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="New sandbox")).to_be_focused()
    tab_to("Name")
    page.keyboard.type("typed-in")
    tab_to("Enabled")
    page.keyboard.press("Space")
    tab_to("Memory")
    page.keyboard.type("64Mi")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_role("dialog").get_by_role("button", name="Create")).to_be_enabled()
    tab_to("Create", 6)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="typed-in", exact=True)).to_be_visible()
    wait_for("it is stored", lambda: busy.get("typed-in"))
    assert busy.get("typed-in")["spec"]["runState"] == "Suspended"
    busy.paddock("delete", "sandbox", "typed-in")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshots_are_small(
    busy: RunningDaemon, pages: Pages, relay: PanelRelay, scheme: str, tmp_path: Path
) -> None:
    folder = SCREENSHOTS if os.environ.get("PADDOCK_SCREENSHOTS") else tmp_path
    folder.mkdir(exist_ok=True)
    page = signed_in(pages, relay, color_scheme=scheme, viewport={"width": 1200, "height": 750})
    for name, path in {
        "sandboxes": "sandboxes",
        "sandbox": "sandboxes/default/shop-api",
        "charts": "sandboxes/default/shop-worker/charts",
        "plan": "sandboxes/default/shop-api/edit",
    }.items():
        page.goto(f"{relay.origin}/panel/#/{path}")
        settle(page, name)
        file = folder / f"{name}-{scheme}.png"
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
        assert file.stat().st_size < MOST_BYTES, file.name


def settle(page: Page, name: str) -> None:
    """Wait for what a person would look at."""
    if name == "sandboxes":
        expect(page.locator("table.data .meter").first).to_be_visible()
    elif name == "sandbox":
        expect(page.get_by_text("As its spec asks", exact=True)).to_be_visible()
    elif name == "charts":
        expect(page.locator("canvas").first).to_be_visible()
        # Beside other work it gets less than its limit, which no picture should show.
        use = "0.10 cores" if os.environ.get("PADDOCK_SCREENSHOTS") else re.compile(r"0\.(0[1-9]|10) cores")
        expect(page.get_by_role("region", name="CPU").locator("b").first).to_have_text(use)
        expect(page.get_by_role("region", name="CPU").get_by_role("img")).to_have_attribute(
            "data-samples", re.compile("^([89]|[0-9]{2,})$")
        )
    else:
        page.get_by_label("CPU").fill("250m")
        page.get_by_label("Memory").fill("128Mi")
        page.get_by_role("button", name="Apply configuration").click()
        expect(page.get_by_text("Quota afterwards")).to_be_visible()
