"""Prompt and throughput of SSH beside `paddock exec`, and a preview's GET beside the port proxy."""

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.daemon import running, wait_for
from tests.e2e.test_front_door import SANDBOX, Client

pytestmark = [
    pytest.mark.bench,
    pytest.mark.docker,
    pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client"),
]
_PROMPTS, _GETS, _MIB = 30, 300, 1 << 20
_SERVER = (
    "import http.server as h\n"
    "class H(h.BaseHTTPRequestHandler):\n"
    "    protocol_version = 'HTTP/1.1'\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers()\n"
    "        self.wfile.write(b'ok')\n"
    "    def log_message(self, *_): pass\n"
    "h.ThreadingHTTPServer(('127.0.0.1', 3000), H).serve_forever()\n"
)


def _alternately(rounds: int, **runs: Callable[[], object]) -> dict[str, list[float]]:
    """Return the sorted seconds that each takes, by turns, so that all meet the same load."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: sorted(values) for name, values in seconds.items()}


def _shown(seconds: dict[str, list[float]]) -> str:
    return ", ".join(
        f"{name} p50 {statistics.median(values) * 1000:.1f} p95 {values[int(len(values) * 0.95)] * 1000:.1f} ms"
        for name, values in seconds.items()
    )


def test_ssh_beside_exec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path / "daemon") as daemon:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
        (tmp_path / "home").mkdir()
        client = Client(daemon, tmp_path / "home")
        client.output("true")  # the first one starts the process
        prompts = _alternately(
            _PROMPTS, ssh=lambda: client.output("true"), exec=lambda: client.paddock("exec", "box", "--", "true")
        )
        size = 256
        copies = _alternately(
            3,
            ssh=lambda: client.run("ssh", "box.paddock", f"head -c {size * _MIB} /dev/zero"),
            exec=lambda: client.paddock("exec", "box", "--", "head", "-c", str(size * _MIB), "/dev/zero"),
        )
    rates = ", ".join(f"{name} {size / statistics.median(values):.0f} MiB/s" for name, values in copies.items())
    with capsys.disabled():
        print(f"\na command: {_shown(prompts)}; its output: {rates}; allowed: ssh p95 300 ms, twice exec's")


def test_a_get_of_a_preview(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path / "daemon", PADDOCK_PREVIEW_ADDRESS="127.0.0.1:0") as daemon:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
        daemon.paddock("exec", "box", "--detach", "--", "python3", "-c", _SERVER)
        parts = urlsplit(daemon.paddock("open", "box", "3000", "--print").stdout.strip())
        headers = {"Host": parts.netloc, "X-Paddock-Preview-Token": parse_qs(parts.query)["paddock-preview"][0]}
        path = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/box/proxy/3000/"
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{parts.port}", headers=headers) as preview,
            httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket)), base_url="http://localhost") as api,
        ):
            wait_for("the program", lambda: preview.get("/").text == "ok")
            seconds = _alternately(_GETS, preview=lambda: preview.get("/"), proxy=lambda: api.get(path))
    with capsys.disabled():
        print(f"\na GET: {_shown(seconds)}; allowed: 3 ms over the port proxy")
