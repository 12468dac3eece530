"""Previews in Chromium, as people and web apps use them, and as another sandbox's page attacks them."""

import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.daemon import RunningDaemon, running, wait_for
from tests.e2e.test_front_door import SANDBOX
from tests.frontdoor import program
from tests.frontdoor.fronts import DOMAIN, FRONTS, front, missing
from tests.frontdoor.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.docker, pytest.mark.frontdoor]
_APP = Path(program.__file__).read_text()
_MIB = 1 << 20


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium")
    options = [f"--host-resolver-rules=MAP *.{DOMAIN} 127.0.0.1", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture
def context(chromium: "Browser") -> "Iterator[BrowserContext]":
    context = chromium.new_context(ignore_https_errors=True)
    context.set_default_timeout(60_000)
    yield context
    context.close()


def _serve(daemon: RunningDaemon, name: str, *ports: int) -> None:
    daemon.apply(SANDBOX.replace("name: box", f"name: {name}"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")
    for port in ports:
        daemon.paddock("exec", name, "--detach", "--", "python3", "-c", _APP, str(port))


def _link(daemon: RunningDaemon, name: str, port: int) -> str:
    return daemon.paddock("open", name, str(port), "--print").stdout.strip()


def _origin(link: str) -> str:
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    settings = {"PADDOCK_PREVIEW_ADDRESS": "127.0.0.1:0", "PADDOCK_API_HOST": "127.0.0.1", "PADDOCK_API_PORT": "0"}
    with running(tmp_path_factory.mktemp("daemon"), **settings) as daemon:
        _serve(daemon, "box", 3000)
        _serve(daemon, "other", 3000)
        yield daemon


def _works(page: "Page | Any") -> dict[str, Any]:
    """Wait until the app's page has all that it asks for; return the headers that its request had."""
    page.wait_for_selector("h1:text('from inside')")
    page.wait_for_selector("body[data-socket='300000 vite-hmr'][data-events]:not([data-events='0'])[data-headers]")
    headers: dict[str, Any] = json.loads(page.evaluate("document.body.dataset.headers"))
    return headers


def test_an_app_works_by_its_link(daemon: RunningDaemon, context: "BrowserContext") -> None:
    link = _link(daemon, "box", 3000)
    page = context.new_page()
    sent: list[str] = []
    page.on("request", lambda request: sent.extend([request.url, *request.headers.values()]))
    page.goto(link)
    headers = _works(page)
    assert page.url == _origin(link) + "/"
    assert headers["origin"] == headers["referer"].rstrip("/") == "http://localhost:3000"
    assert "paddock" not in headers.get("cookie", "")
    assert page.evaluate("document.cookie") == "plain=1"
    token = link.rpartition("=")[2]
    assert [text for text in sent if token in text] == [link], "no other request and no referrer has the token"
    page.goto(_origin(link) + "/redirect")
    assert page.url == _origin(link) + "/landed?x=1"
    assert not any(token in line for line in daemon.log)


_ATTACK = """
async ([victim, api]) => {
  const tries = {
    read: () => fetch(victim, { credentials: 'include' }).then((answer) => answer.text()),
    write: () => fetch(victim, { method: 'POST', credentials: 'include', mode: 'no-cors', body: 'x' })
      .then(() => 'sent'),
    api: () => fetch(api, { credentials: 'include' }).then((answer) => answer.text()),
    apiHere: () => fetch('/apis/paddock/v1alpha1/namespaces/default/sandboxes').then((answer) => answer.text())
      .then((text) => text.includes('from inside') ? 'the program' : text),
    worker: () => navigator.serviceWorker.register(victim + 'worker.js'),
    script: () => new Promise((done, fail) => {
      const script = document.createElement('script');
      script.src = victim + 'worker.js'; script.onload = done; script.onerror = fail; document.head.append(script);
    }),
  };
  const outcomes = {};
  for (const [name, attempt] of Object.entries(tries)) {
    outcomes[name] = await attempt().then((text) => String(text).slice(0, 40), () => 'refused');
  }
  const socket = new WebSocket(victim.replace('http', 'ws') + 'socket', 'vite-hmr');
  outcomes.socket = await new Promise((done) => {
    socket.onopen = () => done('open'); socket.onerror = () => done('refused');
  });
  document.cookie = '__Host-paddock-preview=tossed; domain=localhost; path=/; secure';
  document.cookie = '__Host-paddock-preview=tossed; path=/; secure';
  const frame = document.createElement('iframe');
  frame.src = victim;
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; });
  try { outcomes.frame = frame.contentDocument ? 'read' : 'refused'; } catch { outcomes.frame = 'refused'; }
  return outcomes;
}
"""


def test_another_sandboxs_page_gets_nothing(daemon: RunningDaemon, context: "BrowserContext") -> None:
    _attack(daemon, context, str(daemon.served()["api"]))


def test_a_sibling_of_the_same_site_gets_nothing(fronted: RunningDaemon, context: "BrowserContext") -> None:
    _attack(fronted, context, "https://127.0.0.1:1")


def _attack(daemon: RunningDaemon, context: "BrowserContext", api: str) -> None:
    victim, attacker = _link(daemon, "box", 3000), _link(daemon, "other", 3000)
    victims_page, page = context.new_page(), context.new_page()
    victims_page.goto(victim)
    _works(victims_page)
    page.goto(attacker)
    _works(page)
    reached: list[int] = []
    page.on(
        "response", lambda answer: reached.append(answer.status) if answer.url.startswith(_origin(victim)) else None
    )
    outcomes = page.evaluate(
        _ATTACK, [_origin(victim) + "/", api + "/apis/paddock/v1alpha1/namespaces/default/sandboxes"]
    )
    assert outcomes.pop("write") in ("sent", "refused")
    assert outcomes.pop("apiHere") == "the program"
    assert set(outcomes.values()) == {"refused"}, outcomes
    assert reached
    assert set(reached) <= {401, 403}, "the victim's program was reached"
    page.reload()
    _works(page)  # what it tossed is not taken
    victims_page.reload()
    _works(victims_page)


@contextmanager
def _portal(text: str) -> Iterator[str]:
    """Serve a page of another site on this machine; browsers ask a person before one from elsewhere may frame us."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_a_frame_of_another_site_works(daemon: RunningDaemon, context: "BrowserContext") -> None:
    link = _link(daemon, "box", 3000)
    page = context.new_page()
    with _portal(f"<iframe src='{link}'></iframe>") as portal:
        page.goto(portal)
        frame = page.frame_locator("iframe")
        frame.locator("body[data-socket='300000 vite-hmr'][data-headers]").wait_for()
    (cookie,) = (cookie for cookie in context.cookies() if cookie["name"] == "__Host-paddock-preview-frame")
    assert (cookie["sameSite"], cookie["partitionKey"]) == ("None", "http://127.0.0.1")
    alone = context.new_page()
    answer = alone.goto(_origin(link))
    assert answer is not None
    assert answer.status == 401, "the frame's cookie is that page's alone"


def test_a_reused_name_has_nothing_of_before(daemon: RunningDaemon, context: "BrowserContext") -> None:
    _serve(daemon, "short", 3000)
    page = context.new_page()
    page.goto(_link(daemon, "short", 3000))
    _works(page)
    page.evaluate("localStorage.secret = 1; navigator.serviceWorker.register('/worker.js')")
    page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
    page.reload()
    assert page.inner_text("body") == "of the worker"
    before = page.url
    daemon.paddock("delete", "sandbox", "short", "--now")
    _serve(daemon, "short", 3000)
    later = context.new_page()
    later.goto(_link(daemon, "short", 3000))
    _works(later)
    assert later.evaluate("localStorage.length") == 0
    tried = page.evaluate(f"fetch('{later.url}', {{ credentials: 'include' }}).then(() => 'read', () => 'refused')")
    assert (tried, later.url != before) == ("refused", True), "a tab that stayed open"


def test_a_dead_port_is_a_page(daemon: RunningDaemon, context: "BrowserContext") -> None:
    page = context.new_page()
    answer = page.goto(_link(daemon, "box", 3999))
    assert answer is not None
    assert (answer.status, page.inner_text("h1")) == (502, "Nothing answers here")
    assert "start the program in the sandbox" in page.inner_text("p")


@pytest.fixture(scope="module", params=sorted(FRONTS))
def fronted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon behind a proxy that speaks https."""
    if missing(request.param):
        pytest.skip(f"needs {request.param}")
    folder, port, preview = tmp_path_factory.mktemp("front"), free_port(), free_port()
    settings = {
        "PADDOCK_PREVIEW_ADDRESS": f"127.0.0.1:{preview}",
        "PADDOCK_PREVIEW_DOMAIN": f"{DOMAIN}:{port}",
        "PADDOCK_TRUSTED_PROXIES": '["127.0.0.1"]',
    }
    with (
        running(folder / "daemon", **settings) as daemon,
        front(request.param, folder / "proxy", port, preview),
    ):
        _serve(daemon, "box", 3000)
        _serve(daemon, "other", 3000)
        yield daemon


def test_an_app_works_behind_a_proxy(fronted: RunningDaemon, context: "BrowserContext") -> None:
    link = _link(fronted, "box", 3000)
    assert link.startswith("https://3000--box--default--")
    page = context.new_page()
    page.goto(link)
    assert _works(page)["origin"] == "http://localhost:3000"
    page.goto(_origin(link) + "/redirect")
    assert page.url == _origin(link) + "/landed?x=1"
    sources = json.loads(fronted.paddock("audit", "-o", "json").stdout)
    entries = (
        [entry for entry in sources["items"] if entry["verb"] == "preview"] if isinstance(sources, dict) else sources
    )
    assert any(entry["actor"] == "preview link" and entry["source"] == "127.0.0.1" for entry in entries)


def test_plain_http_leads_to_https(fronted: RunningDaemon) -> None:
    parts = urlsplit(_link(fronted, "box", 3000))
    address = f"http://{fronted.environment['PADDOCK_PREVIEW_ADDRESS']}/page?x=1"
    headers = {"Host": parts.netloc, "X-Forwarded-Proto": "http"}
    answer = httpx.get(address, headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (308, f"https://{parts.netloc}/page?x=1")
    assert httpx.post(address, headers=headers, content=b"x").status_code == 403


def test_a_large_upload_takes_no_memory(fronted: RunningDaemon) -> None:
    link = _link(fronted, "box", 3000)
    parts, size = urlsplit(link), int(os.environ.get("PADDOCK_UPLOAD_MIB", "256"))
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    before = _peak_memory(fronted)
    pieces = (b"x" * _MIB for _ in range(size))
    headers = {"Host": parts.netloc, "X-Paddock-Preview-Token": parts.query.partition("=")[2]}
    start = time.monotonic()
    with httpx.Client(verify=trusting, timeout=600, headers=headers) as http:
        url, name = f"https://127.0.0.1:{parts.port}/upload", {"sni_hostname": parts.hostname}
        answer = http.post(url, extensions=name, content=pieces)
    seconds = time.monotonic() - start
    assert answer.json()["size"] == size * _MIB
    grown = _peak_memory(fronted) - before
    print(f"\nupload of {size} MiB in {seconds:.1f} s: the daemon's peak grew by {grown // _MIB} MiB")
    assert grown < 32 * _MIB


def _peak_memory(daemon: RunningDaemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


def _with_app(daemon: RunningDaemon, name: str, image: str) -> None:
    """Start a sandbox of an image with a web app; where there is no such image the test is skipped."""
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"needs the image {image}")
    spec = SANDBOX.replace("name: box", f"name: {name}").replace("paddock/python:1", image)
    daemon.apply(spec.replace("memory: 256Mi, pids: 64", "memory: 2Gi, pids: 512"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")


def _opened(context: "BrowserContext", link: str) -> "Page":
    """Return the page of an app that may still be starting."""
    page = context.new_page()

    def is_served() -> bool:
        answer = page.goto(link, wait_until="commit")
        return answer is not None and answer.ok

    wait_for("the app", is_served, 180)
    return page


def test_jupyter_works_by_its_link(daemon: RunningDaemon, context: "BrowserContext") -> None:
    """A notebook's kernel answers over a WebSocket, which compares Origin and Host."""
    _with_app(daemon, "lab", "paddock-test/apps:1")  # tests/frontdoor/apps/build.sh
    folder = "/opt/apps/jupyter"
    variables = {"PYTHONPATH": folder, "JUPYTER_PATH": f"{folder}/share/jupyter", "HOME": "/workspace"}
    variables["JUPYTERLAB_DIR"] = f"{folder}/share/jupyter/lab"
    options = [
        "--no-browser",
        "--ip=127.0.0.1",
        "--port=8888",
        "--IdentityProvider.token=",
        "--ServerApp.root_dir=/workspace",
    ]
    program = [
        "env",
        *(f"{name}={value}" for name, value in variables.items()),
        "python3",
        "-m",
        "jupyterlab",
        *options,
    ]
    daemon.paddock("exec", "lab", "--detach", "--", *program)
    page = _opened(context, _link(daemon, "lab", 8888))
    page.locator(".jp-LauncherCard[data-category='Notebook']").first.click()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").first.wait_for(state="attached")
    cell = page.locator(".jp-CodeCell .cm-content").first
    cell.click()
    cell.fill("print('kernel', 6 * 7)")
    page.keyboard.press("Shift+Enter")
    page.locator(".jp-OutputArea-output", has_text="kernel 42").first.wait_for()


def test_code_server_works_by_its_link(daemon: RunningDaemon, context: "BrowserContext") -> None:
    """Opt-in: PADDOCK_CODE_SERVER_IMAGE names an image with Node.js, and npm's code-server in /opt/app."""
    image = os.environ.get("PADDOCK_CODE_SERVER_IMAGE", "")
    if not image:
        pytest.skip("needs an image with code-server (PADDOCK_CODE_SERVER_IMAGE)")
    _with_app(daemon, "ide", image)
    program = ["node", "/opt/app/node_modules/code-server/out/node/entry.js"]
    options = ["--auth", "none", "--disable-workspace-trust", "--bind-addr", "127.0.0.1:8080"]
    daemon.paddock("exec", "ide", "--detach", "--", *program, *options, "/workspace")
    page = _opened(context, _link(daemon, "ide", 8080))
    page.locator(".monaco-workbench").wait_for()
    page.keyboard.press("Control+Backquote")
    page.locator(".terminal-wrapper .xterm").wait_for()
    page.locator(".terminal-wrapper .xterm-helper-textarea").focus()

    def is_written() -> bool:
        page.keyboard.type("echo from-the-editor > /workspace/note\n")  # the shell may still be starting
        output = daemon.paddock("exec", "ide", "--", "cat", "/workspace/note", check=False).stdout
        return output == "from-the-editor\n"

    wait_for("the file", is_written)
