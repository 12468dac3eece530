"""`paddock config` and `--context`: precedence, faults of the file, and files that others may read."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli
from paddock import Paddock, PaddockError
from paddock._client.credentials import authorization
from paddock._client.server import locate
from paddock._connect import chosen_server
from tests.helpers_api import QUICKSTART, ApiStack

Config = Callable[..., Result]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [entry for entry in os.environ if entry.startswith("PADDOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home/paddock"


@pytest.fixture
def run() -> Config:
    def call(*words: str, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, words, input=stdin)

    return call


def test_contexts_are_created_chosen_and_deleted(run: Config, home: Path) -> None:
    assert run("config", "get-contexts").stderr.startswith("No contexts in ")
    assert "no context is current" in run("config", "current-context").stderr
    output = run("config", "set-context", "work", "--server", "https://h:1", "--token-stdin", "--use", stdin="pdk_x\n")
    assert output.stdout == "context work created\n"
    token = home / "work.token"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("pdk_x\n", 0o600)
    assert run("config", "set-context", "work", "-n", "team").stdout == "context work changed\n"
    run("config", "set-context", "local", "--server", "unix:///run/p.sock")
    assert run("config", "get-contexts", "-o", "name").stdout == "work\nlocal\n"
    row = run("config", "get-contexts", "--no-headers").stdout.splitlines()[0].split()
    assert row == ["*", "work", "https://h:1", "team", str(token)]
    assert "pdk_x" not in run("config", "view").stdout
    assert authorization(locate(None)) == {"Authorization": "Bearer pdk_x"}
    assert run("config", "use-context", "local").exit_code == 0
    assert run("config", "current-context").stdout == "local\n"
    assert run("config", "delete-context", "work").exit_code == 0
    assert not token.exists()
    assert "known contexts: local" in run("config", "use-context", "work").stderr
    assert "not a valid server address" in run("config", "set-context", "x", "--server", "ftp://x").stderr
    assert "malformed" in run("config", "set-context", "x", "--token-stdin", stdin="a b\n").stderr


def test_the_order_is_flag_variable_current_socket(run: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    run("config", "set-context", "one", "--server", "https://one", "-n", "first", "--use")
    run("config", "set-context", "two", "--server", "https://two", "-n", "second")

    def chosen(server: str | None = None, context: str | None = None) -> tuple[str, str]:
        observed = chosen_server(server, context=context, namespace=None, token="", ca_file="")
        return str(observed.server), observed.namespace

    assert chosen() == ("https://one", "first")
    monkeypatch.setenv("PADDOCK_CONTEXT", "two")
    assert chosen() == ("https://two", "second")
    monkeypatch.setenv("PADDOCK_NAMESPACE", "third")
    assert chosen() == ("https://two", "third")
    monkeypatch.setenv("PADDOCK_SERVER", "https://three")
    assert chosen() == ("https://three", "third")
    assert chosen(context="one") == ("https://one", "first")
    assert chosen("https://four") == ("https://four", "third")
    with pytest.raises(PaddockError, match="exclude each other"):
        chosen("https://four", "one")
    assert run("--server", "https://x", "--context", "one", "get", "sb").exit_code == 2


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_token_file_that_others_can_read_is_refused(run: Config, tmp_path: Path, mode: int) -> None:
    token = tmp_path / "token"
    token.write_text("pdk_x\n")
    token.chmod(mode)
    run("config", "set-context", "work", "--server", "https://h", "--token-file", str(token), "--use")
    with pytest.raises(PaddockError, match=r"others may read the token .* run `chmod 600"):
        Paddock().sandboxes.list()
    assert "others may read the token" in run("get", "sandboxes").stderr
    token.chmod(0o600)
    assert authorization(locate(None)) == {"Authorization": "Bearer pdk_x"}


def test_every_fault_of_the_file_is_told(run: Config, home: Path) -> None:
    home.mkdir(parents=True)
    text = 'current = "gone"\nmore = 1\n[[contexts]]\nname = "a"\nservr = "x"\n[[contexts]]\nserver = 5\n'
    (home / "config.toml").write_text(text)
    output = run("get", "sandboxes").stderr
    for fault in ("unknown field `more`", "context a: unknown field `servr`", "context 2: `server` must be a string"):
        assert fault in output
    assert "context 2: `name` is missing" in output
    assert "the current context gone is not defined" in output
    (home / "config.toml").write_text("current =")
    assert "not valid TOML" in run("get", "sandboxes").stderr


def test_commands_use_the_context(run: Config, served: ApiStack) -> None:
    served.apply(QUICKSTART.replace("name: quickstart", "name: far\n  namespace: team"))
    run("config", "set-context", "team", "--server", f"unix://{served.socket}", "-n", "team")
    assert run("--context", "team", "get", "sb", "-o", "name").stdout == "sandbox.paddock/far\n"
    assert run("--context", "team", "-n", "default", "get", "sb", "-o", "name").stdout == ""
    assert run("--context", "team", "-n", "default", "get", "sb", "-n", "team", "-o", "name").stdout != ""
    assert "context nope: not found" in run("--context", "nope", "get", "sb").stderr
    with Paddock(context="team") as paddock:
        assert [sandbox.name for sandbox in paddock.sandboxes.list()] == ["far"]
