"""The page of a snapshot: what it has and lacks, its lineage, a fork of it, and a rollback with what goes first."""

import pytest
from playwright.sync_api import Page, expect

from tests.daemon import RunningDaemon, wait_for
from tests.panel.browser import WAIT_MS, sandbox
from tests.panel.test_journey import ready

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
SOCKET = "import socket; socket.socket(socket.AF_UNIX).bind('/tmp/listener')"


def show(page: Page, name: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}#/sandboxsnapshots/default/{name}")
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def test_a_snapshot_is_read_forked_and_rolled_back_to(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("origin", lifecycle={"shutdownGracePeriodSeconds": 0}))
    ready(daemon, "origin")
    daemon.paddock("exec", "origin", "--", "sh", "-c", f'echo first > /tmp/file; python3 -c "{SOCKET}"')
    daemon.paddock("snapshot", "create", "moment", "--from", "sandbox/origin")
    show(page, "moment")
    expect(page.locator(".head .status", has_text="Captured")).to_be_visible()
    expect(page.get_by_role("region", name="Not taken")).to_contain_text("/tmp/listener")
    lineage = page.get_by_role("region", name="Lineage")
    expect(lineage).to_contain_text("its image")
    expect(lineage).to_contain_text("no sandboxes")
    page.get_by_role("button", name="Fork").click()
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(page.get_by_text("origin-1: created")).to_be_visible()
    expect(lineage.get_by_role("link", name="origin-1")).to_be_visible(timeout=3 * WAIT_MS)
    ready(daemon, "origin-1")
    assert daemon.paddock("exec", "origin-1", "--", "cat", "/tmp/file").stdout == "first\n"
    daemon.paddock("exec", "origin", "--", "sh", "-c", "echo second > /tmp/file")
    page.get_by_role("button", name="Roll back").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What goes: its processes")
    before = daemon.get("origin")["metadata"]["generation"]
    dialog.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("origin: rolled back; its files until now are in before-origin")).to_be_visible()
    wait_for("the new container", lambda: daemon.condition("origin", "Ready").get("observedGeneration", 0) > before)
    ready(daemon, "origin")
    assert daemon.paddock("exec", "origin", "--", "cat", "/tmp/file").stdout == "first\n"
