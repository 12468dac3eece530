"""The card Connect: a link that may be passed on, until when it holds, and how to connect by SSH and an IDE."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.daemon import RunningDaemon, running
from tests.panel.browser import WAIT_MS, sandbox

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    settings = {"PADDOCK_PREVIEW_ADDRESS": "127.0.0.1:0", "PADDOCK_API_HOST": "127.0.0.1", "PADDOCK_API_PORT": "0"}
    with running(tmp_path_factory.mktemp("daemon"), **settings) as daemon:
        yield daemon


def test_a_link_may_be_passed_on(daemon: RunningDaemon, page: Page) -> None:
    program = "cd /tmp && echo '<h1>by a link</h1>' > index.html && exec python3 -m http.server 8000"
    daemon.apply(sandbox("passed", program))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/passed")
    page.goto(f"{page.url.partition('#')[0]}#/sandboxes/default/passed")
    card = page.get_by_role("region", name="Connect")
    expect(card).to_contain_text("paddock ssh passed")
    expect(card).to_contain_text("paddock code passed")
    card.get_by_label("Port").fill("8000")
    card.get_by_label("Hours").fill("1")
    card.get_by_role("button", name="Make a link").click()
    link = card.get_by_role("link", name="Open port 8000")
    expect(card).to_contain_text(re.compile(r"until .*[0-9].*; whoever has the link has the port"))
    with page.context.expect_page() as opening:
        link.click()
    opened = opening.value
    expect(opened.get_by_role("heading", name="by a link")).to_be_visible()
    assert "paddock-preview" not in opened.url
    assert opened.evaluate("[opener, document.referrer]") == [None, ""]
    card.get_by_label("Port").fill("8500")
    card.get_by_role("button", name="Make a link").click()
    expect(page.get_by_text("port 8500 has no previews")).to_be_visible()
