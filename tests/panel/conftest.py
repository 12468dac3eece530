"""A real daemon, `paddock panel`'s relay, and a browser whose every page must stay free of errors and reports."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.cli.relays.panel import PanelRelay
from paddock._client.connection import connect
from tests.daemon import RunningDaemon, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.panel.browser import Pages

if "PADDOCK_TEST_PANEL" not in os.environ:  # only `make test-panel` installs what these import
    collect_ignore_glob = ["test_[!e]*.py" if "PADDOCK_TEST_JOURNEY" in os.environ else "test_*.py"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    settings = {"PADDOCK_API_HOST": "127.0.0.1", "PADDOCK_API_PORT": "0"}
    with running(tmp_path_factory.mktemp("daemon"), **settings) as created:
        yield created


@pytest.fixture(scope="module")
def relay(daemon: RunningDaemon) -> Iterator[PanelRelay]:
    connection = connect(f"unix://{daemon.socket}")
    with PanelRelay(connection) as panel_relay:
        yield panel_relay
    connection.close()


@pytest.fixture(scope="module")  # while it is open, asyncio.run works in no test of this process
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "chromium is missing: run `make test-panel`"
    options = ["--disable-lcd-text", *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # grey edges: smaller pictures
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch(executable_path=program, args=options)
        yield launch
        launch.close()


@pytest.fixture
def pages(browser: "Browser") -> "Iterator[Pages]":
    from tests.panel.browser import Pages

    created = Pages(browser)
    try:
        yield created
        created.check()
    finally:
        created.close()


@pytest.fixture
def page(pages: "Pages", relay: PanelRelay) -> "Page":
    """The panel, signed in by the relay."""
    file = pages.open(relay.url())
    file.get_by_role("heading", name="Sandboxes").wait_for()
    return file


@pytest.fixture
def token(daemon: RunningDaemon, tmp_path: Path) -> Callable[..., str]:
    """Create a token by name and role, and return its text."""

    def create(name: str, role: str = "admin", namespace: str = "*") -> str:
        file = tmp_path / name
        daemon.paddock("token", "create", name, "--role", role, "--namespace", namespace, "--out", str(file))
        return file.read_text().strip()

    return create
