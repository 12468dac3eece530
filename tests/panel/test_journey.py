"""Journeys through the panel: kill and see it return, log, terminal, files, charts, conflict, preview, delete."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from controller.cli.relays.panel import PanelRelay
from tests.daemon import RunningDaemon, docker, wait_for
from tests.panel.browser import WAIT_MS, Pages, sandbox

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
PROMPT = re.compile(r"[$#]")


def container(daemon: RunningDaemon, name: str) -> str:
    return str(daemon.get(name).get("status", {}).get("instanceRef", {}).get("containerID", ""))


def ready(daemon: RunningDaemon, name: str) -> None:
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")


def show(page: Page, name: str, tab: str = "") -> None:
    page.goto(f"{page.url.partition('#')[0]}#/sandboxes/default/{name}{f'/{tab}' if tab else ''}")
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def badge(page: Page) -> str:
    return page.locator(".head .status").inner_text()


def test_killed_sandbox_returns_with_a_death_record(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("mortal", "echo last words; exec sleep infinity"))
    ready(daemon, "mortal")
    show(page, "mortal")
    expect(page.locator(".head .status", has_text="Running")).to_be_visible()
    docker("kill", container(daemon, "mortal"))
    expect(page.get_by_role("region", name="Last end")).to_contain_text("Killed")
    expect(page.get_by_role("region", name="Last end")).to_contain_text("last words")
    expect(page.locator(".head .status", has_text="Running")).to_be_visible()
    expect(page.locator(".facts > div", has_text="Restarts").first).to_contain_text(re.compile("[1-9]"))


def test_terminal_runs_commands(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("typed"))
    ready(daemon, "typed")
    show(page, "typed", "terminal")
    rows = page.locator(".xterm-rows")
    expect(rows).to_contain_text(PROMPT)
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("echo $((6*7))-$TERM; stty size\n")
    expect(rows).to_contain_text("42-xterm-256color")
    page.keyboard.type("exit 3\n")
    expect(page.get_by_text("ended with code 3")).to_be_visible()
    page.get_by_role("button", name="New shell").click()
    expect(rows).to_contain_text(PROMPT)


def test_upload_edit_and_download(daemon: RunningDaemon, page: Page, tmp_path: Path) -> None:
    daemon.apply(sandbox("filed"))
    ready(daemon, "filed")
    file = tmp_path / "notes <b>.txt"
    file.write_text("first\n")
    show(page, "filed", "files")
    page.get_by_role("navigation", name="Folder").wait_for()
    page.get_by_role("button", name="Root folder").click()
    page.get_by_role("button", name="tmp", exact=True).click()
    page.get_by_label("Files to upload").set_input_files(file)
    page.get_by_role("button", name="notes <b>.txt", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("second\n")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    with page.expect_download() as found:
        page.get_by_role("button", name="Download notes <b>.txt").click()
    assert Path(found.value.path()).read_text() == "second\n"
    page.get_by_role("button", name="Remove notes <b>.txt").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("This folder is empty")).to_be_visible()


def test_log_follows_is_searched_and_stays_text(daemon: RunningDaemon, page: Page) -> None:
    script = (
        "echo '<img src=x onerror=alert(1)>'; printf '\\033[31mred\\033[0m \\342\\200\\256evil\\n';"
        " head -c 1000000 /dev/zero | tr '\\0' x; echo;"
        " while [ ! -e /tmp/go ]; do sleep 0.2; done; echo later; exec sleep infinity"
    )
    daemon.apply(sandbox("talker", script))
    ready(daemon, "talker")
    show(page, "talker", "logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("<img src=x onerror=alert(1)>")
    expect(log).to_contain_text("red \\u202eevil")
    expect(log).to_contain_text("the line has")
    assert page.locator(".log img").count() == 0
    daemon.paddock("exec", "talker", "--", "touch", "/tmp/go")
    expect(log).to_contain_text("later")
    page.get_by_label("Search the log").fill("LATER")
    expect(log.locator("mark")).to_have_text("later")
    expect(log.locator(".l")).to_have_count(1)


def test_charts_show_use_and_limits(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("busy", "while :; do :; done"))
    ready(daemon, "busy")
    show(page, "busy", "charts")
    for title, limit in (("CPU", "0.10 cores"), ("Memory", "64.0 MiB"), ("Processes (PIDs)", "64")):
        expect(page.get_by_role("region", name=title, exact=True)).to_contain_text(f"limit {limit}")
    expect(page.get_by_role("region", name="CPU", exact=True).locator("canvas")).to_be_visible()
    expect(page.get_by_text("The last hour")).to_be_visible()
    daemon.paddock("delete", "sandbox", "busy")


def test_conflict_shows_the_other_change_and_keeps_mine(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("contested", runState="Suspended"))
    show(page, "contested", "edit")
    page.get_by_label("Memory").fill("80Mi")
    daemon.paddock("patch", "sandbox", "contested", "-p", '{"spec": {"priority": 7}}')
    page.get_by_role("button", name="Apply configuration").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("tr", has_text="spec.priority")).to_contain_text("7")
    dialog.get_by_role("button", name="Take my changes").click()
    expect(page.get_by_label("Memory")).to_have_value("80Mi")
    page.get_by_role("button", name="Apply configuration").click()
    dialog.get_by_role("button", name="Apply").click()
    wait_for("both changes", lambda: daemon.get("contested")["spec"]["resources"]["limits"]["memory"] == "80Mi", 60)
    assert daemon.get("contested")["spec"]["priority"] == 7


def test_yaml_and_form_are_the_same_object(daemon: RunningDaemon, page: Page) -> None:
    page.get_by_role("link", name="New sandbox").click()
    page.get_by_label("Name", exact=True).fill("Bad Name")
    page.get_by_label("Memory").fill("512m")
    page.get_by_role("button", name="Review and create").click()
    expect(page.locator(".field.invalid")).to_have_count(2)
    expect(page.locator(".field.invalid", has_text="Memory")).to_contain_text("512Mi")
    page.get_by_label("Name", exact=True).fill("by-yaml")
    page.get_by_label("Memory").fill("64Mi")
    page.get_by_role("button", name="YAML", exact=True).click()
    text = page.get_by_role("textbox", name="YAML")
    text.fill(text.input_value().replace("runState: Running", "runState: Suspended\n  priority: 3"))
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.get_by_label("Enabled")).not_to_be_checked()
    page.get_by_role("button", name="Review and create").click()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.locator(".head .status", has_text="Suspended")).to_be_visible()
    assert daemon.get("by-yaml")["spec"]["priority"] == 3


def test_delete_asks_for_the_name(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(sandbox("doomed", runState="Suspended"))
    show(page, "doomed")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    dialog.get_by_role("textbox").fill("doomed")
    dialog.get_by_role("button", name="Delete").click()
    wait_for("it is gone", lambda: not daemon.get("doomed"), 60)
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    expect(page.get_by_role("link", name="doomed")).to_have_count(0)


def test_preview_has_an_origin_of_its_own(daemon: RunningDaemon, pages: Pages, page: Page, relay: PanelRelay) -> None:
    daemon.apply(
        sandbox("web", "cd /tmp && echo '<h1>from inside</h1>' > index.html && exec python3 -m http.server 8000")
    )
    ready(daemon, "web")
    show(page, "web")
    page.get_by_role("region", name="Preview").get_by_label("Port").fill("8000")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open", exact=True).click()
    found = opened.value
    expect(found.get_by_role("heading", name="from inside")).to_be_visible()
    assert not found.url.startswith(relay.origin)
    assert ".localhost:" in found.url, "cookies ignore ports"
    assert found.evaluate("[opener, sessionStorage.length]") == [None, 0]
    tried = found.evaluate(
        "(url) => fetch(url, {method: 'POST', body: '{}'}).then((each) => each.status, () => 'refused')",
        f"{relay.origin}/apis/paddock/v1alpha1/sandboxes",
    )
    assert tried == "refused"
    page.get_by_role("region", name="Preview").get_by_label("Port").fill("8001")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open", exact=True).click()
    expect(opened.value.get_by_role("heading", name="Nothing answers at port 8001")).to_be_visible()


def test_names_and_labels_stay_text(daemon: RunningDaemon, page: Page) -> None:
    daemon.paddock("delete", "sandbox", "--all", check=False)
    document = json.loads(sandbox("labelled", runState="Suspended"))
    document["metadata"]["annotations"] = {"note": "<script>globalThis.hacked = 1</script>\u202e"}
    daemon.apply(json.dumps(document))
    show(page, "labelled", "yaml")
    expect(page.locator("pre")).to_contain_text("<script>")
    assert page.evaluate("globalThis.hacked") is None
