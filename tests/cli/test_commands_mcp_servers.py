"""`paddock mcp import|list|enable|disable|approve|export|connect`: other people's MCP servers."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controller.cli.commands.agents.mcp_servers import own_command
from controller.cli.main import cli
from controller.kinds.mcpserver import KIND
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import serving

Run = Callable[..., Result]
CONFIG = {
    "mcpServers": {
        "File System": {"command": "/usr/bin/npx", "args": ["-y", "@scope/files@2026.8.31", "/workspace"]},
        "time": {"command": "uvx.exe", "args": ["mcp-time==1.2"], "env": {"TZ": "UTC", "API_TOKEN": "hunter2"}},
        "remote": {"url": "https://example.org/mcp"},
        "shell": {"command": "bash", "args": ["-c", "x"]},
        "paddock": {"command": "paddock", "args": ["mcp"]},
    }
}


@pytest.fixture
def paddock(api: ApiStack) -> Iterator[Run]:
    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, ["--server", f"unix://{api.socket}", "mcp", *words], env={"PADDOCK_SOCKET": ""})

    with serving(api):
        yield run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "claude_desktop_config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def stored(api: ApiStack, name: str) -> Any:
    return api.services.objects.get(KIND, "default", name)


def test_a_client_configuration_becomes_servers(paddock: Run, api: ApiStack, file: Path) -> None:
    assert "kind: MCPServer" in paddock("import", str(file), "--dry-run").output
    done = paddock("import", str(file))
    assert done.exit_code == 0, done.output
    assert "mcpserver/file-system created" in done.output
    assert "remote: left out" in done.output
    assert "shell: left out" in done.output
    assert "hunter2" not in done.output
    time = stored(api, "time").spec
    assert (time["command"], time["trust"], time["sandbox"]) == ("uvx", "user_added", "Required")
    assert time["env"] == [{"name": "TZ", "value": "UTC"}]
    assert time["secrets"] == [{"name": "api-token", "env": "API_TOKEN"}]
    exported = json.loads(paddock("export", "vscode").output)["servers"]
    assert sorted(exported) == ["file-system", "time"]
    assert exported["time"]["args"] == ["mcp", "--server", "time"]


def test_an_import_with_a_refused_server_changes_nothing(paddock: Run, file: Path, api: ApiStack) -> None:
    file.write_text(json.dumps({"mcpServers": {**CONFIG["mcpServers"], "bad": {"command": "npx", "args": ["a\0b"]}}}))
    done = paddock("import", str(file))
    assert done.exit_code == 1
    assert "(bad)" in done.output
    assert "spec.args[0]" in done.output
    assert list(api.services.mcp_servers.list()) == []


@pytest.mark.parametrize(
    ("args", "which"),
    [
        (["--token=hunter2"], "argument 1 (`--token`)"),
        (["--verbose", "--api-key", "hunter2"], "argument 2 (`--api-key`)"),
        (["--authToken", "hunter2"], "argument 1 (`--authToken`)"),
        (["-e", "DB_PASS=hunter2"], "argument 2 (`DB_PASS`)"),
        (["--header", "Authorization: Bearer hunter2"], "argument 2 (`Authorization`)"),
        (["postgres://ann:hunter2@db/x"], "argument 1 (a URL with a login)"),
        (["--url=https://hunter2@example.org"], "argument 1 (a URL with a login)"),
        (["https://example.org/?a=1&access_token=hunter2"], "argument 1 (`access_token`)"),
        (["ghp_hunter2hunter2hunter2"], "argument 1 (a token)"),
    ],
)
def test_a_server_with_a_secret_argument_is_left_out(
    paddock: Run, api: ApiStack, file: Path, args: list[str], which: str
) -> None:
    bad = {"command": "python3", "args": args}
    file.write_text(json.dumps({"mcpServers": {"bad": bad, "good": {"command": "python3", "args": ["-y", "/key/a"]}}}))
    for message in (("--dry-run",), ()):
        done = paddock("import", str(file), *message)
        assert done.exit_code == 0, done.output
        assert f"bad: left out, {which} looks secret" in done.output
        assert "hunter2" not in done.output
    assert [server.obj.name for server in api.services.mcp_servers.list()] == ["good"]


@pytest.mark.parametrize(
    "args",
    [
        ["--token-file", "/run/token"],
        ["--no-auth", "--verbose"],
        ["-y", "@scope/monkey@1.2.3", "http://localhost:80/@a"],
        ["https://example.org:443/a?b=c", "--auth"],
        ["--from", "keyring-mcp==1.2"],
    ],
)
def test_arguments_without_a_secret_are_imported(paddock: Run, api: ApiStack, file: Path, args: list[str]) -> None:
    file.write_text(json.dumps({"servers": {"good": {"command": "python3", "args": args}}}))
    assert paddock("import", str(file)).exit_code == 0
    assert stored(api, "good").spec["args"] == args


_ENTRY = '{"command": "python3", "args": ["-y"]}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"mcpServers": {{"a": {_ENTRY}}}}}',
        f'\ufeff// settings\n{{"mcp": {{"servers": {{"a": {_ENTRY}, }},}}, /* "x": */ "y": "// no, [1,]"}}',
        f'{{"mcp.servers": {{"a": {_ENTRY}}}}}',
        f'{{"context_servers": {{"a": {_ENTRY}}}}}',
        '{"context_servers": {"a": {"command": {"path": "/bin/python3", "args": ["-y"]}, "settings": {}}}}',
        f'{{"mcpServers": {{}}, "servers": {{"a": {_ENTRY}}}}}',
    ],
)
def test_every_clients_file_is_read(paddock: Run, api: ApiStack, file: Path, text: str) -> None:
    file.write_text(text)
    done = paddock("import", str(file))
    assert done.exit_code == 0, done.output
    spec = stored(api, "a").spec
    assert (spec["command"], spec["args"]) == ("python3", ["-y"])


def test_values_are_kept_as_they_are_written(paddock: Run, api: ApiStack, file: Path) -> None:
    args, env = '["--on", true, null, 8080, 1.50, 1e3, ""]', '{"A": true, "B": 1.50, "C": null}'
    file.write_text(f'{{"servers": {{"a": {{"command": "python3", "args": {args}, "env": {env}}}}}}}')
    done = paddock("import", str(file))
    spec = stored(api, "a").spec
    assert spec["args"] == ["--on", "true", "null", "8080", "1.50", "1e3", ""]
    assert [(entry["name"], entry["value"]) for entry in spec["env"]] == [("A", "true"), ("B", "1.50")]
    assert "a: C: null leaves it unset, as it is in a sandbox" in done.output


def test_the_folder_of_a_server_is_kept_or_named(paddock: Run, api: ApiStack, file: Path) -> None:
    docker = {"command": "docker", "args": ["run", "-i", "-w", "/in/it", "mcp/time"], "cwd": "/home/ann"}
    servers = {
        "kept": {"command": "python3", "cwd": "/home/ann/project", "envFile": ".env", "args": ["${workspaceFolder}"]},
        "none": {"command": "python3", "cwd": "C:\\work"},
        "image": docker,
    }
    file.write_text(json.dumps({"servers": servers}))
    done = paddock("import", str(file))
    assert done.exit_code == 0, done.output
    folders = [stored(api, server).spec.get("workingDir") for server in servers]
    assert folders == ["/home/ann/project", None, "/in/it"]
    assert "kept: it starts in `/home/ann/project` of its sandbox, which has none of this host's files" in done.output
    assert "kept: its `envFile` is not read" in done.output
    assert "kept: ${workspaceFolder} stays as it is" in done.output
    assert "none: its `cwd` is left out" in done.output
    assert "image: `cwd` is the folder of `docker` itself" in done.output


def test_a_variable_with_a_login_becomes_a_secret(paddock: Run, api: ApiStack, file: Path) -> None:
    env = {"MONGO": "mongodb://ann:hunter2@db", "PLACE": "https://example.org"}
    file.write_text(json.dumps({"servers": {"good": {"command": "python3", "env": env}}}))
    assert "hunter2" not in paddock("import", str(file)).output
    spec = stored(api, "good").spec
    assert (spec["env"], spec["secrets"]) == (
        [{"name": "PLACE", "value": "https://example.org"}],
        [{"name": "mongo", "env": "MONGO"}],
    )


def test_disabled_entries_become_disabled_servers(paddock: Run, api: ApiStack, file: Path) -> None:
    entries = {"a": {"disabled": True}, "b": {"enabled": False}, "c": {"disabled": False, "enabled": True}}
    file.write_text(json.dumps({"servers": {key: {"command": "python3", **entry} for key, entry in entries.items()}}))
    assert paddock("import", str(file)).exit_code == 0
    assert [stored(api, name).spec["enabled"] for name in "abc"] == [False, False, True]


def test_a_dry_run_of_an_import_exits_as_the_import(paddock: Run, api: ApiStack, file: Path) -> None:
    file.write_text(json.dumps({"servers": {"bad": {"command": "npx", "args": ["a\0b"]}}}))
    for message in (("--dry-run",), ()):
        done = paddock("import", str(file), *message)
        assert done.exit_code == 1
        assert "spec.args[0]" in done.output
    assert paddock("import", str(file), "--dry-run").output.startswith("apiVersion")
    assert list(api.services.mcp_servers.list()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "1:2"),
        ("[]", "has none of `mcpServers`, `servers`, `mcp.servers`, `context_servers`"),
        ('{"servers": {"a": {"command": "npx", "args": "x"}}}', "a: left out, its `args` are no list"),
        ('{"servers": {"a": {"command": "npx", "args": [["x"]]}}}', "a: left out, its argument 1 is neither text"),
        ('{"servers": {"a": {"command": "npx", "env": ["x"]}}}', "a: left out, its `env` is no table"),
        ('{"mcpServers": {"a": {"url": "x"}}}', "no server that a sandbox could run"),
        ("\udcff", "not UTF-8"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_unreadable_configurations_are_refused(paddock: Run, file: Path, text: str, says: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = paddock("import", str(file))
    assert done.exit_code == 1
    assert says in done.output


def test_servers_are_disabled_enabled_and_listed(paddock: Run, file: Path, api: ApiStack) -> None:
    paddock("import", str(file))
    assert paddock("disable", "time", "file-system").output.splitlines()[0] == "mcpserver/time disabled"
    assert not stored(api, "time").spec["enabled"]
    rows = [line.split()[:5] for line in paddock("list").output.splitlines()]
    assert rows[0][:5] == ["NAME", "STATUS", "TRUST", "TOOLS", "SANDBOX"]
    assert ["time", "Disabled", "user_added", "-", "Required"] in rows
    paddock("enable", "time")
    assert stored(api, "time").spec["enabled"]
    assert "not found" in paddock("enable", "nobody").output


def test_changed_tools_are_approved(paddock: Run, file: Path, api: ApiStack) -> None:
    paddock("import", str(file))
    assert "has listed no tools yet" in paddock("approve", "time").output
    digest = f"sha256:{'a' * 64}"
    with api.store.transaction() as transaction:
        transaction.put(replace(stored(api, "time"), status={"tools": {"digest": "x", "changedDigest": digest}}))
    assert paddock("approve", "time").output == "mcpserver/time approved\n"
    assert stored(api, "time").spec["tools"]["digest"] == digest


def test_user_added_servers_never_run_without_a_sandbox(paddock: Run, file: Path) -> None:
    paddock("import", str(file))
    done = paddock("connect", "time", "--allow-unsandboxed")
    assert done.exit_code == 1
    assert "runs in a sandbox only" in done.output


def test_a_command_line_becomes_a_server(paddock: Run, api: ApiStack) -> None:
    done = paddock("enable", "--", "npx", "-y", "@scope/server-files@1.2.3", "/workspace", "--verbose")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("mcpserver/server-files created; its package is being installed: ")
    spec = stored(api, "server-files").spec
    assert (spec["command"], spec["args"][-2:]) == ("npx", ["/workspace", "--verbose"])
    assert "already exists" in paddock("enable", "npx", "@scope/server-files@1.2.4").output
    assert "mcpserver/newer created" in paddock("enable", "--name", "newer", "npx", "@scope/server-files@1.2.4").output
    output = paddock("enable", "uvx", "mcp-time")
    assert (output.exit_code, "names no version: write `mcp-time==1.2.3`" in output.output) == (1, True)
    assert "is for a command line" in paddock("enable", "-y", "newer").output
    assert "--image is for a command line" in paddock("enable", "--image", "x:1", "newer").output


def test_a_command_line_is_installed_on_an_image(paddock: Run, api: ApiStack) -> None:
    line = ("enable", "--image", "paddock/toolchain:1", "--", "uvx", "mcp-server-git@2026.1.0", "--repository", "/r")
    assert "mcpserver/mcp-server-git created; its package is being installed" in paddock(*line).output
    spec = stored(api, "mcp-server-git").spec
    assert spec["package"] == {"registry": "pypi", "name": "mcp-server-git", "version": "2026.1.0"}
    assert (spec["image"], spec["args"]) == ("paddock/toolchain:1", ["--repository", "/r"])
    two = paddock("enable", "--image", "x:1", "--", "uvx", "--with", "foo==1", "bar==2")
    assert "--image is for a command line with one package" in two.output
    output = paddock("enable", "--image", "x:1", "--", "docker", "run", "-i", "--rm", "example.org/server:1")
    assert "names an image already" in output.output


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"command": "npx", "args": ["foo@1.2.3", "x"]}, "npx foo@1.2.3 x"),
        ({"package": {"registry": "npm", "name": "foo", "version": "1.2.3"}, "args": ["x"]}, "npx -y foo@1.2.3 x"),
        (
            {"package": {"registry": "pypi", "name": "foo", "version": "1.2"}, "command": "bar"},
            "uvx --from foo==1.2 bar",
        ),
    ],
)
def test_the_own_command_line_of_a_package(spec: dict[str, Any], line: str) -> None:
    assert " ".join(own_command(spec)) == line


@pytest.mark.parametrize(
    ("args", "spec"),
    [
        (["run", "-i", "--rm", "mcp/time"], {"image": "mcp/time"}),
        (["container", "run", "-it", "--init", "mcp/time:1", "--utc"], {"image": "mcp/time:1", "args": ["--utc"]}),
        (
            ["run", "--rm", "-i", "--name=x", "--entrypoint", "/bin/serve", "-e", "TZ=UTC", "mcp/time", "-e", "A"],
            {
                "image": "mcp/time",
                "command": "/bin/serve",
                "args": ["-e", "A"],
                "env": [{"name": "TZ", "value": "UTC"}],
            },
        ),
        (
            ["run", "-eAPI_TOKEN", "--env=TZ", "--env", "PLAIN=1", "mcp/time@sha256:" + "a" * 64],
            {
                "image": "mcp/time@sha256:" + "a" * 64,
                "env": [{"name": "TZ", "value": "UTC"}, {"name": "PLAIN", "value": "1"}],
                "secrets": [{"name": "api-token", "env": "API_TOKEN"}],
            },
        ),
    ],
)
def test_docker_run_becomes_an_image(
    paddock: Run, api: ApiStack, file: Path, args: list[str], spec: dict[str, Any]
) -> None:
    entry = {"command": "docker", "args": args, "env": {"TZ": "UTC", "DOCKER_HOST": "tcp://x", "API_TOKEN": "hunter2"}}
    file.write_text(json.dumps({"mcpServers": {"time": entry}}))
    done = paddock("import", str(file))
    assert done.exit_code == 0, done.output
    assert "hunter2" not in done.output
    observed = stored(api, "time").spec
    assert {
        name: observed[name] for name in ("image", "command", "args", "env", "secrets") if observed.get(name)
    } == spec


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "-v", "/:/host", "mcp/time"], "a sandbox has no `-v` of `docker run`"),
        (["run", "--privileged", "mcp/time"], "a sandbox has no `--privileged` of `docker run`"),
        (["run", "--env-file=x", "mcp/time"], "a sandbox has no `--env-file` of `docker run`"),
        (["run", "--rm", "-i"], "`docker` runs no image there"),
        (["mcp", "gateway", "run"], "`docker` runs no image there"),
        (["run", "mcp/time", "--token=hunter2"], "argument 1 (`--token`) looks secret"),
    ],
)
def test_docker_run_that_asks_for_more_is_left_out(paddock: Run, file: Path, args: list[str], says: str) -> None:
    file.write_text(json.dumps({"mcpServers": {"time": {"command": "docker", "args": args}}}))
    done = paddock("import", str(file))
    assert done.exit_code == 1
    assert f"time: left out, {says}" in done.output
    assert "hunter2" not in done.output
    output = paddock("enable", "--", "docker", *args)
    assert output.exit_code == 1
    assert says in output.output


def test_what_docker_run_had_besides_is_said(paddock: Run, api: ApiStack) -> None:
    options = ("-i", "--network", "host", "-m", "64m", "--cpus=0.1", "-e", "TZ", "-e", "KEY")
    done = paddock("enable", "--", "docker", "run", *options, "x.org/mcp/time:1")
    assert done.exit_code == 0, done.output
    assert "it had the network `host`; list the hosts that it needs in spec.network.allowedHosts" in done.output
    assert "it had `-m 64m, --cpus 0.1`, and has the limits of its trust; lower them in spec.limits" in done.output
    assert "no value of TZ is known; write it to spec.env" in done.output
    assert "give KEY as secret `key` to the operator" in done.output
    assert "mcpserver/time created" in done.output
    assert stored(api, "time").spec["secrets"] == [{"name": "key", "env": "KEY"}]
