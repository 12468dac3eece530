"""Access through the panel: tokens, rights, other sites' pages, and a daemon that goes away."""

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from controller.cli.relays.panel import PanelRelay
from paddock._client.connection import connect
from tests.daemon import RunningDaemon, start_daemon, wait_for
from tests.panel.browser import WAIT_MS, Pages, sandbox

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
API = "/apis/paddock/v1alpha1/namespaces/default/sandboxes"
Token = Callable[..., str]


def tcp(daemon: RunningDaemon) -> str:
    return str(daemon.served()["api"])


def sign_in(pages: Pages, daemon: RunningDaemon, text: str, at: str = "") -> Page:
    page = pages.open(f"{tcp(daemon)}/panel/{at}")
    page.get_by_label("Token").fill(text)
    page.get_by_role("button", name="Sign in").click()
    return page


def test_wrong_token_is_refused_in_words(daemon: RunningDaemon, pages: Pages) -> None:
    page = sign_in(pages, daemon, "pdk_wrong")
    expect(page.get_by_role("alert")).to_contain_text("token")
    expect(page.get_by_role("button", name="Sign in")).to_be_enabled()


def test_revoking_a_token_signs_out_and_ends_work(daemon: RunningDaemon, pages: Pages, token: Token) -> None:
    daemon.apply(sandbox("guarded"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/guarded")
    page = sign_in(pages, daemon, token("visitor"), "#/sandboxes/default/guarded/terminal")
    expect(page.locator(".xterm-rows")).to_contain_text("$")
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("exec sleep 98765\n")
    alive = ["exec", "guarded", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep 9876[5]'"]
    wait_for("the command runs", lambda: daemon.paddock(*alive, check=False).returncode == 0, 60)
    daemon.paddock("token", "revoke", "visitor")
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("revoked")
    assert page.locator(".xterm").count() == 0
    assert page.evaluate("sessionStorage.getItem('paddock.session')") is None
    wait_for("the command has ended", lambda: daemon.paddock(*alive, check=False).returncode != 0, 60)
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_buttons_follow_rights(daemon: RunningDaemon, pages: Pages, token: Token) -> None:
    daemon.apply(sandbox("seen", runState="Suspended"))
    page = sign_in(pages, daemon, token("reader", "viewer", "default"), "#/sandboxes/default/seen")
    button = page.get_by_role("button", name="Delete")
    expect(button).to_be_disabled()
    expect(button).to_have_attribute(
        "title", "token reader may not delete Sandbox; it needs the role user in namespace `default`"
    )
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Sandboxes").click()
    expect(page.get_by_role("link", name="seen")).to_be_visible()
    expect(page.get_by_role("button", name="New sandbox")).to_be_disabled()
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)


def test_pasted_addresses_sign_in(pages: Pages, relay: PanelRelay, daemon: RunningDaemon) -> None:
    page = pages.open(f"{relay.origin}/panel/")
    page.get_by_label("Token").fill(relay.url())
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(relay.url())  # into the tab that is open
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    assert "code=" not in page.url
    elsewhere = sign_in(pages, daemon, relay.url())
    expect(elsewhere.get_by_role("alert")).to_contain_text("another panel")


def test_addresses_change_nobody_who_is_signed_in(pages: Pages, relay: PanelRelay) -> None:
    page = pages.open(relay.url())
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    session, url = page.evaluate("sessionStorage.getItem('paddock.session')"), relay.url()
    refusal = page.get_by_role("status").filter(has_text="you are signed in as")
    for before in ("", "about:blank"):  # into the page that is open, and into its tab alone
        if before:
            page.goto(before)
        page.goto(url)
        expect(refusal).to_contain_text("sign out first")
        expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
        assert "code=" not in page.url
        assert page.evaluate("sessionStorage.getItem('paddock.session')") == session
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(url)  # its code is not used up
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()


def test_link_of_the_command_works_once(pages: Pages, relay: PanelRelay) -> None:
    url = relay.url()
    page = pages.open(url)
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    assert "code=" not in page.url
    page.reload()  # the tab keeps its session
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    again = pages.open(url)
    expect(again.get_by_role("alert")).to_contain_text("paddock panel")


def test_daemon_gone_and_back(tmp_path: Path, pages: Pages) -> None:
    daemon = start_daemon(tmp_path / "state")
    try:
        daemon.apply(sandbox("waiting", runState="Suspended"))
        with closing(connect(f"unix://{daemon.socket}")) as connection, PanelRelay(connection) as relay:
            page = pages.open(relay.url())
            row = page.get_by_role("row", name="waiting")
            expect(row).to_contain_text("Suspended")
            daemon.kill()
            expect(page.get_by_role("alert")).to_contain_text("No answer from the daemon")
            expect(row).to_contain_text("Unknown")
            daemon = start_daemon(tmp_path / "state")
            expect(page.get_by_role("alert")).to_have_count(0)
            expect(row).to_contain_text("Suspended")
            daemon.apply(sandbox("newcomer", runState="Suspended"))
            expect(page.get_by_role("row", name="newcomer")).to_be_visible()
    finally:
        daemon.stop()


# What a page of another site tries: each attempt ends with a line of what it could see.
_ATTACK = """
async ([base, path, body]) => {
  const tries = {
    simple: () => fetch(base + path, { method: 'POST', mode: 'no-cors', body,
                                       headers: { 'Content-Type': 'text/plain' } }),
    json: () => fetch(base + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body }),
    read: () => fetch(base + path),
    credentials: () => fetch(base + path, { credentials: 'include' }),
    schema: () => fetch(base + '/panel/schema/sandboxes.json'),
    session: () => fetch(base + '/panel/session', { method: 'POST', headers: { 'Content-Type': 'application/json' },
                         body: '{"code": "guess"}' }),
    preview: () => fetch(base + '/panel/previews', { method: 'POST', mode: 'no-cors', body: '{}' }),
  };
  const found = {};
  for (const [name, attempt] of Object.entries(tries)) {
    const seen = (answer) => answer.type === 'opaque' ? 'opaque' : `${answer.status} read`;
    found[name] = await attempt().then(seen, () => 'refused');
  }
  const ws = new WebSocket(base.replace('http', 'ws') + path + '/victim/exec?command=touch&command=/tmp/hacked');
  found.socket = await new Promise((done) => { ws.onopen = () => done('open'); ws.onerror = () => done('refused'); });
  const frame = document.createElement('iframe');
  frame.src = base + '/panel/';
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; frame.onerror = done; });
  try { found.frame = frame.contentDocument ? 'read' : 'refused'; } catch { found.frame = 'refused'; }
  const form = document.createElement('form');
  form.method = 'post'; form.enctype = 'text/plain'; form.action = base + path; form.target = 'sent';
  const field = document.createElement('input');
  field.name = body; field.value = '';
  form.append(field);
  const target = document.createElement('iframe');
  target.name = 'sent';
  document.body.append(target, form);
  const sent = new Promise((done) => { target.onload = done; });
  form.submit();
  await sent;
  return found;
}
"""


@contextmanager
def other_site() -> Iterator[str]:
    """An empty page at another origin."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><body>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("listener", ["relay", "tcp", "forwarded socket"])
def test_pages_of_other_sites_get_nothing(
    daemon: RunningDaemon, browser: Browser, relay: PanelRelay, listener: str
) -> None:
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    with other_site() as site, forwarded(daemon) as port:
        base = {"relay": relay.origin, "tcp": tcp(daemon), "forwarded socket": f"http://127.0.0.1:{port}"}[listener]
        page = context.new_page()
        page.goto(site)
        found = page.evaluate(_ATTACK, [base, API, sandbox("stolen")])
    context.close()
    allowed = {"opaque", "refused"}
    assert {name: each for name, each in found.items() if each not in allowed} == {}
    assert found["socket"] == "refused"
    assert found["frame"] == "refused"
    assert daemon.get("stolen") == {}


@contextmanager
def forwarded(daemon: RunningDaemon) -> Iterator[int]:
    """The daemon's socket at a TCP port, as by `ssh -L`: its connections come from a local user."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def copy(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        def relay(client: socket.socket) -> None:
            with client, socket.socket(socket.AF_UNIX) as made:
                made.connect(str(daemon.socket))
                back = threading.Thread(target=copy, args=(made, client))
                back.start()
                copy(client, made)
                back.join()

        relays: list[threading.Thread] = []
        held: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    held.append(client)
                    relays.append(threading.Thread(target=relay, args=(client,)))
                    relays[-1].start()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        for each in held:  # a browser keeps its connections for a while
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for running in (thread, *relays):
            running.join()
