"""The audit page: whose entry each is where several daemons write, and the check of every chain."""

import time

from playwright.sync_api import Page, expect

from controller.kinds.access.audit import AuditEntry
from controller.store.sql_store import SqlStore
from tests.daemon import RunningDaemon
from tests.panel.browser import sandbox


def test_writers_are_shown_where_there_are_several(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("audited", runState="Suspended"))
    page.goto(page.url.partition("#")[0] + "#/audit")
    table = page.get_by_role("region", name="Audit")
    expect(table.get_by_text("Sandbox default/audited").first).to_be_visible()
    expect(table.get_by_role("columnheader", name="Writer")).to_have_count(0)
    store = SqlStore(f"sqlite:///{daemon.folder / 'paddock.db'}", writer="b")  # as another host's daemon
    store.open()
    store.audit.append([AuditEntry(time.time() + 5, "eve", "", "exec", "Sandbox", "default", "far")])
    store.close()
    expect(table.get_by_role("columnheader", name="Writer")).to_be_visible()
    newest = table.get_by_role("row").nth(1)
    expect(newest).to_contain_text("far")
    expect(newest.get_by_role("cell").nth(1)).to_have_text("b")
    page.get_by_role("button", name="Verify the log").click()
    expect(page.get_by_role("status").filter(has_text="of 2 chains are as they were written")).to_be_visible()
