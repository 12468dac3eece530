"""`paddock panel` and `port-forward --open` as people start them."""

import os
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.daemon import ROOT, RunningDaemon, wait_for
from tests.panel.browser import WAIT_MS, Pages, sandbox

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)
# A browser that notes what it was asked to open, and the mode of that file.
_BROWSER = """#!/bin/sh
printf '%s\\n' "$1" > "$NOTED.new" && mv "$NOTED.new" "$NOTED"
"""


@contextmanager
def started(daemon: RunningDaemon, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "controller", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env={**daemon.environment, **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def browser_of(folder: Path) -> dict[str, str]:
    program = folder / "browser"
    program.write_text(_BROWSER)
    program.chmod(0o755)
    return {"BROWSER": str(program), "NOTED": str(folder / "noted"), "XDG_RUNTIME_DIR": str(folder)}


def opened(folder: Path) -> str:
    noted = folder / "noted"
    wait_for("a browser was opened", noted.exists, 60)
    return noted.read_text().strip()


def test_prints_an_address_and_ends_with_the_command(daemon: RunningDaemon, pages: Pages) -> None:
    with started(daemon, "panel", "--no-open") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        page = pages.open(url)
        expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    assert process.returncode == 0
    expect(page.get_by_role("alert")).to_contain_text("No answer")


def test_redirect_file_is_private(daemon: RunningDaemon, pages: Pages, tmp_path: Path) -> None:
    with started(daemon, "panel", **browser_of(tmp_path)) as process:
        file = Path(opened(tmp_path).removeprefix("file://"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert file.stat().st_uid == os.geteuid()
        match = re.search(r'url=([^"]+)"', file.read_text())
        assert match is not None
        assert "code=" not in Path(f"/proc/{process.pid}/cmdline").read_text()
        page = pages.open(match[1])
        expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    wait_for("the file is gone", lambda: not file.parent.exists(), 60)


def test_port_forward_opens_the_port(daemon: RunningDaemon, tmp_path: Path) -> None:
    daemon.apply(sandbox("served", "cd /tmp && echo inside > index.html && exec python3 -m http.server 8000"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/served")
    with started(daemon, "port-forward", "served", ":8000", "--open", **browser_of(tmp_path)):
        url = opened(tmp_path)
        host = url.removeprefix("http://").removesuffix("/")
        assert ".localhost:" in host
        # Only a browser knows such names by itself.
        request = urllib.request.Request(f"http://127.0.0.1:{host.rpartition(':')[2]}/", headers={"Host": host})

        def inside() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return bool(answer.read() == b"inside\n")
            except OSError:
                return False

        wait_for("the sandbox answers", inside, 60)
