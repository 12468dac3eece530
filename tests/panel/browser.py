"""Pages of a browser that note every error, policy report and request to another host; and small sandboxes."""

import json
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

WAIT_MS = 60_000
# Policy violations that a page reports to itself, also from scripts that swallow errors.
_LISTEN = """
globalThis.__reports = [];
addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) => {
  __reports.push(`${violatedDirective} ${blockedURI}`);
});
"""
_EXPECTED = ("Failed to load resource", "WebSocket connection")  # refusals, which the tests provoke


class Pages:
    """Pages of the browser; `check` fails for script errors, policy reports and requests to other hosts."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._pages: list[tuple[Page, str]] = []
        self.faults: list[str] = []

    def open(self, url: str, script: str = "", **options: Any) -> Page:
        """Open an address, whose pages begin with that script; `options` are those of a browser's context."""
        context = self._browser.new_context(**{"viewport": {"width": 1280, "height": 820}, **options})
        context.add_init_script(_LISTEN + script)
        context.set_default_timeout(WAIT_MS)
        self._contexts.append(context)
        page = context.new_page()
        origin = urlsplit(url).netloc
        self._pages.append((page, origin))
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("console", lambda each: self._console(each.type, each.text))
        page.on("request", lambda each: self._request(each.url, origin))
        page.goto(url)
        return page

    def _console(self, type_: str, text: str) -> None:
        expected = any(name in text for name in _EXPECTED)
        if "Content Security Policy" in text or (type_ == "error" and not expected):
            self.faults.append(f"console: {text}")

    def _request(self, url: str, origin: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.netloc != origin:
            self.faults.append(f"request to another host: {url}")

    def check(self) -> None:
        reports = [entry for page, _ in self._pages if not page.is_closed() for entry in page.evaluate("__reports")]
        assert [*self.faults, *reports] == []

    def close(self) -> None:
        while self._contexts:
            self._contexts.pop().close()


def sandbox(name: str, script: str = "exec sleep infinity", **fields: Any) -> str:
    """A small sandbox as JSON, which is YAML, too. `script` is run by a shell."""
    spec = {
        "template": {"image": "paddock/python:1", "command": ["sh", "-c", script]},
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 64}},
        **fields,
    }
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec})
