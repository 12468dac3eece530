"""Fixtures of this folder: a daemon's API on a socket, and the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli
from tests.helpers_api import QUICKSTART, ApiStack
from tests.helpers_fixtures import api, quiet, served

__all__ = ["api", "quiet", "served"]
Run = Callable[..., Result]


@pytest.fixture
def paddock(served: ApiStack) -> Run:
    """Run `paddock ...` against the served API."""

    def run(*words: str, stdin: bytes | str | None = None) -> Result:
        return CliRunner().invoke(cli, ["--server", f"unix://{served.socket}", *words], input=stdin)

    return run


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., str]:
    """Write a spec file; return its path."""

    def write(text: str = QUICKSTART, name: str = "app.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return str(path)

    return write
