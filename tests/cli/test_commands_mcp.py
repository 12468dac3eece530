"""`paddock mcp`: list and call tools, and merge the configuration of clients."""

import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli
from controller.kinds.common.chunk import Chunk
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import serving

Run = Callable[..., Result]
COMMAND = str(Path(sys.executable).absolute().parent / "paddock")
PLAIN = ["mcp", "--namespace", "default"]
BASIC = [*PLAIN, "--toolset", "basic"]
UNDERSCORE = [*PLAIN, "--names", "underscore", "--toolset", "basic"]
OWN = {"command": COMMAND, "args": BASIC}


@pytest.fixture
def paddock(api: ApiStack) -> Iterator[Run]:
    """Run `paddock mcp ...` against a served API with one running sandbox."""
    api.apply()
    api.view.show(api.sandbox())

    def run(*words: str, stdin: str | None = None, **environment: str) -> Result:
        return CliRunner().invoke(
            cli, ["--server", f"unix://{api.socket}", "mcp", *words], input=stdin, env=environment
        )

    with serving(api):
        yield run


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `paddock ...` in a project, with an empty home folder and no daemon."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for name in [entry for entry in os.environ if entry.startswith("PADDOCK_")]:
        monkeypatch.delenv(name)

    def run(*words: str, **environment: str) -> Result:
        home = {"HOME": str(tmp_path / "home"), "PATH": ""}
        return CliRunner().invoke(cli, words, env={**home, **environment})

    return run


@pytest.fixture
def config(command: Run) -> Run:
    """Run `paddock mcp config ...`."""
    return partial(command, "mcp", "config")


def test_tools_are_listed(paddock: Run) -> None:
    lines = paddock("tools").output.splitlines()
    assert re.split(r"\s{3,}", lines[0]) == ["NAME", "CHANGES", "DESCRIPTION"]
    parts = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert parts["docker.container.exec"] == "yes"
    assert parts["docker.file.read"] == "no"
    assert "docker.container.exec" not in paddock("--read-only", "tools").output
    basic = {line.split()[0] for line in paddock("tools", "--toolset", "basic").output.splitlines()[1:]}
    assert {"docker.container.exec", "docker.file.read"} < basic < set(parts)
    tools = json.loads(paddock("tools", "--names", "underscore", "-o", "json").output)["tools"]
    assert "docker_container_exec" in {tool["name"] for tool in tools}


def test_a_tool_is_called_with_values_or_json(paddock: Run, api: ApiStack) -> None:
    api.streams.run = lambda **_: iter((Chunk("stdout", b"hi\n"), Chunk("exit", b"0")))
    done = paddock("call", "docker_container_exec", "id=quickstart", 'command=["echo", "1"]', "stdin=12")
    assert json.loads(done.output)["stdout"] == "hi\n"
    assert list(api.streams.asked[-1][1]["stdin"]) == [b"12"]
    text = json.dumps({"id": "quickstart", "tail": 3})
    done = paddock("call", "docker.container.logs", "--json", "-", stdin=text)
    assert json.loads(done.output)["log"] == "hello\n"
    assert api.streams.asked[-1][1]["tail"] == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("call", "docker.container.logs", "id=nothing"), 1, "sandboxes `nothing` not found"),
        (("call", "docker.swarm.join"), 1, "Unknown tool: docker.swarm.join"),
        (("call", "sandbox.get", "quickstart"), 2, "`quickstart` is not KEY=VALUE"),
        (("call", "sandbox.get", "--json", "[1]"), 2, "must be one object"),
        (("call", "sandbox.get", "--json", "{}", "a=b"), 2, "leave KEY=VALUE out"),
        (("--sandbox", "x", "--read-only", "tools"), 2, "leave them out with --sandbox"),
    ],
)
def test_wrong_calls_say_what_is_wrong(paddock: Run, words: tuple[str, ...], code: int, said: str) -> None:
    done = paddock(*words)
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_a_token_is_created_for_tools(paddock: Run, api: ApiStack) -> None:
    arguments = ["--server", f"unix://{api.socket}", "token", "create", "ci", "--role", "user", "-n", "default"]
    outcome = CliRunner().invoke(cli, [*arguments, "--tool", "docker.file.*", "--tool", "sandbox.get"])
    text = outcome.stdout.strip().splitlines()[-1]
    names = {line.split()[0] for line in paddock("tools", PADDOCK_TOKEN=text).output.splitlines()[1:]}
    assert names == {"docker.file.read", "docker.file.write", "docker.file.list", "sandbox.get"}
    listed = CliRunner().invoke(cli, [*arguments[:2], "token", "list"]).output
    assert "tools=docker.file.*,sandbox.get" in listed


@pytest.mark.parametrize("client", ["claude", "cursor", "vscode", "codex"])
def test_config_prints_what_to_paste(config: Run, client: str, tmp_path: Path) -> None:
    done = config(client)
    read: Any = tomllib.loads if client == "codex" else json.loads
    observed = read(done.stdout)
    key = {"vscode": "servers", "codex": "mcp_servers"}.get(client, "mcpServers")
    created = observed[key]["paddock"]
    assert created["command"] == COMMAND
    assert created["args"] == (BASIC if client == "claude" else UNDERSCORE)
    assert "--write merges it" in done.stderr
    assert not list((tmp_path / "home").iterdir())


def test_config_without_a_client_is_for_most_of_them(config: Run, tmp_path: Path) -> None:
    done = config()
    assert json.loads(done.stdout)["mcpServers"]["paddock"]["args"] == UNDERSCORE
    for client in ("claude", "cursor", "vscode", "codex"):
        assert f"`paddock mcp config {client} --write` merges it into /" in done.stderr
    assert (config("--write").exit_code, "name one" in config("--write").stderr) == (2, True)
    file = tmp_path / "other.json"
    assert config("--write", "--file", str(file)).exit_code == 0
    assert json.loads(file.read_text()) == json.loads(done.stdout)


def test_config_carries_the_address_and_never_a_token(config: Run) -> None:
    environment = {"PADDOCK_SERVER": "https://host:9465", "PADDOCK_TOKEN_FILE": "/t", "PADDOCK_TOKEN": "pdk_secret"}
    done = config("claude", "--namespace", "team-a", "--read-only", **environment)
    created = json.loads(done.stdout)["mcpServers"]["paddock"]
    assert created["env"] == {"PADDOCK_SERVER": "https://host:9465", "PADDOCK_TOKEN_FILE": "/t"}
    assert created["args"] == ["mcp", "--namespace", "team-a", "--toolset", "basic", "--read-only"]
    assert "pdk_secret" not in done.output
    agent = json.loads(config("cursor", "--sandbox", "my-app").stdout)["mcpServers"]["paddock"]
    assert agent["args"] == ["mcp", "--sandbox", "my-app", "--namespace", "default"]


def test_write_merges_and_keeps_everything_else(config: Run, tmp_path: Path) -> None:
    file = tmp_path / "project/.mcp.json"
    assert config("claude", "--write").exit_code == 0
    assert json.loads(file.read_text()) == {"mcpServers": {"paddock": OWN}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    document = {"b": 1, "mcpServers": {"other": {"command": "é"}, "paddock": {"command": "old"}}, "a": [1.5, None]}
    file.write_text(json.dumps(document, indent="\t", ensure_ascii=False))
    file.chmod(0o640)
    assert "configured" in config("claude", "--write").stdout
    document["mcpServers"]["paddock"] = OWN  # type: ignore[index]
    assert file.read_text() == json.dumps(document, indent="\t", ensure_ascii=False) + "\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert "unchanged" in config("claude", "--write").stdout
    assert sorted(path.name for path in file.parent.iterdir()) == [".mcp.json"]


def test_config_names_the_command_by_its_path(config: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["bin/paddock", "mcp", "config"])
    created = json.loads(config("claude", PADDOCK_NAMESPACE="team-b").stdout)["mcpServers"]["paddock"]
    assert created["command"] == str(tmp_path / "project/bin/paddock")
    assert created["args"][:3] == ["mcp", "--namespace", "team-b"]


def test_write_follows_links_and_takes_a_byte_order_mark(config: Run, tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / "home/.cursor/mcp.json"
    real.write_bytes(b'\xef\xbb\xbf{"mcpServers": {}}')
    link.parent.mkdir()
    link.symlink_to(real)
    config("cursor", "--write")
    assert link.is_symlink()
    assert json.loads(real.read_text())["mcpServers"]["paddock"]["command"] == COMMAND


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{\n  "a": 1,\n  // mine\n}', ":3:3: "),
        (b"[]", "it is not an object"),
        (b'{"mcpServers": []}', "`mcpServers` in it is not an object"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b'{"a": 1}{', ":1:9: "),
    ],
)
def test_files_that_cannot_be_read_are_left_alone(config: Run, tmp_path: Path, text: bytes, said: str) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(text)
    done = config("claude", "--write", "--file", str(file))
    assert done.exit_code == 1
    assert said in done.output
    assert "nothing was changed" in done.output
    assert file.read_bytes() == text


def test_toml_is_edited_without_touching_the_rest(config: Run, tmp_path: Path) -> None:
    file = tmp_path / "home/.codex/config.toml"
    file.parent.mkdir()
    before = '# mine\nmodel = "x"  # kept\n\n[mcp_servers.other]\ncommand = "o"\n'
    old = '\n[mcp_servers.paddock]\ncommand = "old"\n[mcp_servers.paddock.env]\nA = "b"\n\n[tail]\nz = 1\n'
    file.write_text(before + old)
    assert "configured" in config("codex", "--write").stdout
    text = file.read_text()
    assert text.startswith(before)
    document = tomllib.loads(text)
    assert document["mcp_servers"]["paddock"] == {"command": COMMAND, "args": UNDERSCORE}
    assert document["tail"] == {"z": 1}
    assert "unchanged" in config("codex", "--write").stdout
    file.write_text('mcp_servers = {paddock = {command = "inline"}}\n')
    done = config("codex", "--write")
    assert (done.exit_code, "add these lines yourself" in done.output) == (1, True)
    file.write_text("a = [\n")
    done = config("codex", "--write")
    assert (done.exit_code, "nothing was changed" in done.output) == (1, True)


def test_enabling_configures_the_clients_in_use(command: Run, tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    assert command("config", "mcp", "enable", "docker-desktop").exit_code == 0
    everything = {"command": COMMAND, "args": [*PLAIN, "--toolset", "all"]}
    assert json.loads((project / ".mcp.json").read_text()) == {"mcpServers": {"paddock": everything}}
    (home / ".cursor").mkdir()
    output = command("-n", "team-a", "config", "mcp", "enable").stdout
    assert output.splitlines() == [f"{project}/.mcp.json configured", f"{home}/.cursor/mcp.json configured"]
    created = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["paddock"]
    assert created["args"] == ["mcp", "--namespace", "team-a", "--names", "underscore", "--toolset", "basic"]
    assert not (home / ".codex").exists()
    assert command("config", "mcp", "enable", "codex").exit_code == 0
    assert (home / ".codex/config.toml").exists()
    assert command("config", "mcp", "enable", "notepad").exit_code == 2


def test_clients_never_get_the_engines_socket(command: Run, tmp_path: Path) -> None:
    done = command("config", "mcp", "set", "docker.socket", "/var/run/docker.sock")
    assert (done.exit_code, 'docker_host = "unix:///var/run/docker.sock"' in done.stderr) == (1, True)
    assert command("config", "mcp", "set", "colour", "blue").exit_code == 2
    assert not any((tmp_path / "project").iterdir())
