"""The tab of code contexts: cells that share their variables, pictures, tables, and markup that can do nothing."""

import pytest
from playwright.sync_api import Page, expect

from tests.daemon import RunningDaemon, wait_for
from tests.panel.browser import WAIT_MS, Pages

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: notebook}
spec:
  template: {image: "paddock/python:1", agent: {}}
  resources: {limits: {memory: 256Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
HOSTILE = (
    "class Markup:\n"
    ' def _repr_html_(self): return \'<b id=shown>bold</b><script>parent.document.title = "owned"</script>'
    '<img src=x onerror="parent.document.title = 1">\'\n'
    "Markup()"
)
PNG = (
    "import base64\nclass Chart:\n def _repr_png_(self): return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAA"
    "AAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\nChart()"
)


def test_cells_share_variables_and_markup_does_nothing(daemon: RunningDaemon, page: Page, pages: Pages) -> None:
    daemon.apply(SANDBOX)
    wait_for("it runs", lambda: daemon.condition("notebook", "Ready").get("status") == "True")
    page.goto(f"{page.url.split('#')[0]}#/sandboxes/default/notebook/code")

    def run(code: str) -> None:
        page.get_by_label("Code", exact=True).last.fill(code)
        page.get_by_role("button", name="Run", exact=True).last.click()

    run("x = 41\nprint('<i>printed</i>')")
    expect(page.get_by_text("<i>printed</i>")).to_be_visible()
    expect(page.get_by_text("[1] ok")).to_be_visible()
    run("x + 1")
    expect(page.get_by_text("42", exact=True)).to_be_visible()
    run(HOSTILE)
    frame = page.frame_locator("iframe.foreign")
    expect(frame.locator("#shown")).to_have_text("bold")
    run(PNG)
    expect(page.locator("img.chart-picture")).to_be_visible()
    run("while True: pass")
    expect(page.get_by_text("running…")).to_be_visible()
    page.get_by_role("button", name="Interrupt").click()
    expect(page.get_by_text("[5] interrupted")).to_be_visible()
    run("x")
    expect(page.get_by_text("41", exact=True)).to_be_visible()
    assert page.title() not in ("owned", "1")
    # The browser has said of the frame alone what it blocked.
    assert pages.faults
    assert [fault for fault in pages.faults if "srcdoc" not in fault and "Content Security Policy" not in fault] == []
    pages.faults.clear()
