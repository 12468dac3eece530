"""Bad input of a panel: hostile text, broken uploads, slow lines, wrong clocks, specs of older versions."""

import json
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from controller.cli.relays.panel import PanelRelay
from paddock._client.connection import connect
from tests.daemon import RunningDaemon, start_daemon, wait_for
from tests.panel.browser import WAIT_MS, Pages, sandbox

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
MIB = 1 << 20
HOSTILE = "<img src=x onerror=alert(1)>"
BIDI, ANSI = "\u202egpj.exe", "\x1b[31mred\x1b[0m"
# The browser's clock, so many ms from the true one.
_CLOCK = """
(() => {
  const real = Date, offset = %d;
  globalThis.Date = class extends real {
    constructor(...given) { if (given.length) super(...given); else super(real.now() + offset); }
    static now() { return real.now() + offset; }
  };
})();
"""


def show(page: Page, name: str, tab: str = "") -> None:
    page.goto(f"{page.url.partition('#')[0]}#/sandboxes/default/{name}{f'/{tab}' if tab else ''}")
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def ready(daemon: RunningDaemon, name: str, script: str = "exec sleep infinity") -> None:
    daemon.apply(sandbox(name, script))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")


def slowed(page: Page, bytes_a_second: int) -> None:
    """Slow the page's network down, both ways; 0: as it is."""
    speed = bytes_a_second or -1
    both = {"downloadThroughput": speed, "uploadThroughput": speed}
    conditions = {"offline": False, "latency": 200 if bytes_a_second else 0, **both}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", conditions)


def test_files_with_hostile_names_and_long_lines(daemon: RunningDaemon, page: Page) -> None:
    ready(daemon, "strange")
    program = (
        f"import os; os.makedirs('/tmp/odd'); os.chdir('/tmp/odd')\n"
        f"for each in {[HOSTILE, BIDI, ANSI]!r}: open(each, 'w').write(each + chr(10) + 'x' * {MIB - 100})"
    )
    daemon.paddock("exec", "strange", "--", "python3", "-c", program)
    show(page, "strange", "files")
    page.get_by_role("navigation", name="Folder").wait_for()
    page.get_by_role("button", name="Root folder").click()
    page.get_by_role("button", name="tmp", exact=True).click()
    page.get_by_role("button", name="odd", exact=True).click()
    for name in (HOSTILE, "\\u202egpj.exe", "\\u001b[31mred\\u001b[0m"):
        page.get_by_role("button", name=name, exact=True).click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading")).to_contain_text(name)
        assert len(dialog.get_by_role("textbox").input_value()) > MIB - 100
        dialog.get_by_role("button", name="Close").first.click()
        expect(dialog).to_be_hidden()
    assert page.locator("main img").count() == 0


def test_terminal_obeys_no_foreign_sequences(daemon: RunningDaemon, page: Page) -> None:
    """A program's output may colour the terminal, but neither the page's title nor the clipboard, nor open a link."""
    ready(daemon, "painter")
    show(page, "painter", "terminal")
    rows = page.locator(".xterm-rows")
    expect(rows).to_contain_text(re.compile("[$#]"))
    page.locator(".xterm-helper-textarea").focus()
    osc = r"\033]0;stolen\007\033]52;c;c3RvbGVu\007\033]8;;http://evil.example\007link\033]8;;\007"
    page.keyboard.type(f"printf '{osc} \\033[31m{HOSTILE}\\033[0m\\n'\n")
    expect(rows).to_contain_text(HOSTILE)
    assert "stolen" not in page.title()
    assert page.locator(".xterm a").count() == 0
    page.keyboard.type(f"head -c {MIB} /dev/zero | tr '\\0' x; echo; echo still-$((40+2))\n")
    expect(rows).to_contain_text("still-42")


def test_stopped_upload_leaves_nothing(daemon: RunningDaemon, page: Page, tmp_path: Path) -> None:
    ready(daemon, "receiver")
    file = tmp_path / "large.bin"
    file.write_bytes(b"x" * (20 * MIB))
    show(page, "receiver", "files")
    page.get_by_role("navigation", name="Folder").wait_for()
    page.get_by_role("button", name="Root folder").click()
    page.get_by_role("button", name="tmp", exact=True).click()
    slowed(page, MIB)
    page.get_by_label("Files to upload").set_input_files(file)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("upload stopped; nothing was written")).to_be_visible()
    empty = ["exec", "receiver", "--", "sh", "-c", 'test -z "$(ls -A /tmp)"']
    wait_for("no file is left", lambda: daemon.paddock(*empty, check=False).returncode == 0, 60)
    # Once more, for what is slowed down may end with the request that was stopped.
    slowed(page, MIB // 4)
    page.get_by_label("Files to upload").set_input_files(file)
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.close()  # as if the browser were killed
    wait_for("no file is left", lambda: daemon.paddock(*empty, check=False).returncode == 0, 60)


@pytest.mark.parametrize("days", [-400, 400])
def test_ages_are_right_under_a_wrong_clock(daemon: RunningDaemon, pages: Pages, relay: PanelRelay, days: int) -> None:
    daemon.paddock("delete", "sandboxes", "--all", check=False)
    daemon.apply(sandbox("young", runState="Suspended"))
    page = pages.open(relay.url(), _CLOCK % (days * 86_400_000))
    row = page.get_by_role("row", name="young")
    expect(row.locator("time")).to_have_text(re.compile(r"^\d+s$|^[1-5]m$"))
    row.get_by_role("link", name="young").click()
    expect(page.get_by_role("region", name="Conditions").locator("time").first).to_have_text(re.compile("^[0-9]+[sm]$"))
    daemon.apply(sandbox("younger", runState="Suspended"))
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Sandboxes").click()
    expect(page.get_by_role("row", name="younger").locator("time")).to_have_text(re.compile(r"^\d+s$"))


def test_slow_client_sees_the_newest_state(daemon: RunningDaemon, pages: Pages, relay: PanelRelay) -> None:
    """Slow lines and a page that hangs: the daemon waits for neither, and the page shows what is true then."""
    ready(daemon, "chatty", "while :; do head -c 5000 /dev/zero | tr '\\0' y; echo; sleep 0.01; done")
    page = pages.open(relay.url())
    expect(page.get_by_role("row", name="chatty")).to_be_visible()
    slowed(page, 20_000)
    show(page, "chatty", "logs")
    expect(page.get_by_role("log")).to_contain_text("yyyy")
    daemon.paddock("patch", "sandbox", "chatty", "-p", '{"metadata": {"labels": {"seen": "by-others"}}}')
    slowed(page, 0)
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Sandboxes").click()
    expect(page.get_by_role("row", name="chatty")).to_be_visible()
    changing = threading.Thread(target=many_changes, args=(daemon,))
    changing.start()
    page.evaluate("(() => { const end = Date.now() + 2000; while (Date.now() < end); })()")
    changing.join()
    assert daemon.get("chatty")["metadata"]["labels"]["round"] == "last"
    page.get_by_label("Search").fill("round=last")
    expect(page.get_by_role("row", name="chatty")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def many_changes(daemon: RunningDaemon) -> None:
    path, type_ = "namespaces/default/sandboxes/chatty", "application/merge-patch+json"
    with closing(connect(f"unix://{daemon.socket}")) as connection:
        for number in (*range(50), "last"):
            patch = {"metadata": {"labels": {"round": str(number)}, "annotations": {"note": "z" * 4000}}}
            connection.request("PATCH", path, json=patch, content_type=type_)


def test_stored_spec_of_an_older_version(tmp_path: Path, pages: Pages) -> None:
    """It is shown with what is wrong with it, and can be mended here."""
    daemon = start_daemon(tmp_path / "state")
    daemon.apply(sandbox("old", runState="Suspended"))
    daemon.stop()
    with closing(sqlite3.connect(tmp_path / "state/paddock.db")) as database:
        (text,) = database.execute("SELECT spec FROM objects WHERE name = 'old'").fetchone()
        spec = {**json.loads(text), "retired": {"field": 1}, "priority": "high"}
        database.execute("UPDATE objects SET spec = ? WHERE name = 'old'", (json.dumps(spec),))
        database.commit()
    daemon = start_daemon(tmp_path / "state")
    try:
        with closing(connect(f"unix://{daemon.socket}")) as connection, PanelRelay(connection) as relay:
            page = pages.open(relay.url())
            expect(page.get_by_role("row", name="old")).to_be_visible()
            show(page, "old")
            expect(page.get_by_role("region", name="Conditions")).to_contain_text("priority")
            show(page, "old", "edit")
            page.get_by_role("button", name="YAML", exact=True).click()
            editor = page.get_by_role("textbox", name="YAML")
            expect(editor).to_have_value(re.compile("priority: high"))
            mended = editor.input_value().replace("  retired:\n    field: 1\n", "")
            editor.fill(mended.replace("priority: high", "priority: 5"))
            page.get_by_role("button", name="Apply configuration").click()
            page.get_by_role("dialog").get_by_role("button", name="Apply").click()
            expect(page.locator(".head .status", has_text="Suspended")).to_be_visible()
            wait_for("it is mended", lambda: daemon.get("old")["spec"].get("priority") == 5, 60)
            assert "retired" not in daemon.get("old")["spec"]
    finally:
        daemon.stop()
