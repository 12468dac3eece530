"""Six MCP servers of others, imported from a client's configuration, in sandboxes: npm's and PyPI's.

The image has their packages, and in the place of npx and uvx scripts that start what is installed.
"""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated

from tests.daemon import RunningDaemon, docker, remove_image, running
from tests.mcp.clients import FETCHED, Endpoint, conform, inspected
from tests.mcp.conftest import relayed

pytestmark = [
    pytest.mark.mcp,
    pytest.mark.docker,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
IMAGE = "paddock-test/mcp-servers:1"
PLACE = "/apis/paddock/v1alpha1/namespaces/default/mcpservers"
NPM, PYPI = "2026.8.31", "2026.10.19"
CONFIG = {
    "mcpServers": {
        "everything": {"command": "npx", "args": ["-y", f"@modelcontextprotocol/server-everything@{NPM}"]},
        "filesystem": {
            "command": "npx.cmd",
            "args": ["-y", f"@modelcontextprotocol/server-filesystem@{NPM}", "/workspace"],
        },
        "memory": {
            "command": "/usr/local/bin/npx",
            "args": ["-y", f"@modelcontextprotocol/server-memory@{NPM}"],
            "env": {"MEMORY_FILE_PATH": "/tmp/memory.json"},
        },
        "time": {"command": "uvx", "args": [f"mcp-server-time=={PYPI}"], "env": {"API_TOKEN": "hunter2-of-the-file"}},
        "git": {"command": "uvx", "args": [f"mcp-server-git=={PYPI}"]},
        "fetch": {"command": "uvx", "args": ["mcp-server-fetch==2026.10.24"]},
    }
}
NPX = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
name=${1%@*}; shift
exec node "/opt/node_modules/$name/dist/index.js" "$@"
"""
UVX = """#!/bin/sh
name=$(echo "${1%%==*}" | tr - _); shift
PYTHONPATH=/opt/servers exec python3 -m "$name" "$@"
"""
SECRET = "hunter2-of-the-operator"
Do = Callable[[Client], Any]


def packages(names: list[str]) -> set[str]:
    """Return the folders of npm's packages and of all that they need, as the lock file has them."""
    lock = json.loads((FETCHED / "node" / "package-lock.json").read_text())["packages"]
    observed: set[str] = set()
    todo = [f"node_modules/{entry}" for entry in names]
    while todo:
        folder = todo.pop()
        if folder in observed:
            continue
        observed.add(folder)
        for name in lock[folder].get("dependencies", {}):
            parts = folder.split("/node_modules/")
            places = ["/node_modules/".join([*parts[:depth], name]) for depth in range(len(parts), 0, -1)]
            todo.append(next((place for place in places if place in lock), f"node_modules/{name}"))
    return observed


def build(folder: Path) -> None:
    """Make an image of the packages that are here already."""
    npm = [f"@modelcontextprotocol/server-{entry}" for entry in ("everything", "filesystem", "memory")]
    for package in packages(npm):
        nested = shutil.ignore_patterns("node_modules")
        shutil.copytree(FETCHED / "node" / package, folder / package, ignore=nested, dirs_exist_ok=True)
    shutil.copytree(FETCHED / "servers", folder / "servers")
    shutil.copy(FETCHED / "venv" / "bin" / "node", folder / "node")
    (folder / "libraries").mkdir()
    git = str(shutil.which("git"))
    for library in subprocess.run(["ldd", git], check=True, capture_output=True, text=True).stdout.splitlines():
        path = library.partition("=> ")[2].partition(" (")[0]
        if path and "/libc.so" not in path:
            shutil.copy(path, folder / "libraries")
    shutil.copy(git, folder / "git")
    for name, text in (("npx", NPX), ("uvx", UVX)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    lines = [
        "FROM paddock/python:1",
        "USER 0:0",
        "COPY git node npx uvx /usr/local/bin/",
        "COPY libraries/ /usr/local/lib/",
        "COPY node_modules /opt/node_modules",
        "COPY servers /opt/servers",
        "RUN ldconfig",
        "USER 20000:20000",
    ]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    subprocess.run(["docker", "build", "-q", "-t", IMAGE, str(folder)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with the six, as the import made them; the image is added."""
    folder = tmp_path_factory.mktemp("image")
    build(folder)
    file = folder / "claude_desktop_config.json"
    file.write_text(json.dumps(CONFIG))
    secrets = tmp_path_factory.mktemp("secrets")
    (secrets / "default").mkdir(mode=0o700)
    (secrets / "default" / "api-token").write_text(SECRET)
    (secrets / "default" / "api-token").chmod(0o600)
    try:
        with running(tmp_path_factory.mktemp("daemon") / "state", PADDOCK_SECRETS_DIR=str(secrets)) as created:
            done = created.paddock("mcp", "import", str(file))
            assert "values that look secret were not read" in done.stderr
            for name in CONFIG["mcpServers"]:
                created.paddock("patch", "mcpserver", name, "-p", json.dumps({"spec": {"image": IMAGE}}))
            yield created
    finally:
        remove_image(IMAGE)


@pytest.fixture(scope="module")
def url(servers: RunningDaemon) -> Iterator[str]:
    """The daemon's Unix socket as a URL."""
    with relayed(str(servers.socket)) as port:
        yield f"http://127.0.0.1:{port}"


def sandboxes(daemon: RunningDaemon, of: str = "") -> list[dict[str, Any]]:
    names = tuple(f"{mcp_server}-" for mcp_server in ([of] if of else CONFIG["mcpServers"]))
    return [entry for entry in daemon.objects("sandboxes") if entry["metadata"]["name"].startswith(names)]


@asynccontextmanager
async def connected(daemon: RunningDaemon, name: str, era: str, **more: Any) -> AsyncIterator[Client]:
    transport = httpx2.AsyncHTTPTransport(uds=str(daemon.socket), verify=False)
    async with httpx2.AsyncClient(transport=transport, timeout=120) as http_client:
        path = f"{PLACE}/{name}/mcp" if name else "/mcp/servers?namespace=default"
        async with Client(
            streamable_http_client(f"http://localhost{path}", http_client=http_client), mode=era, **more
        ) as client:
            yield client


def talk(daemon: RunningDaemon, name: str, do: Do, era: str = "2026-07-28", **more: Any) -> Any:
    async def run() -> Any:
        with anyio.fail_after(120):
            async with connected(daemon, name, era, **more) as client:
                return await do(client)

    return anyio.run(run)


async def called(client: Client, tool: str, **given: Any) -> str:
    result = await client.call_tool(tool, given)
    text = "\n".join(getattr(entry, "text", "") for entry in result.content)
    assert not result.is_error, text
    return text


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
def test_each_server_answers_in_its_sandbox(servers: RunningDaemon, era: str) -> None:
    async def everything(client: Client) -> None:
        assert "Echo: hi" in await called(client, "echo", message="hi")

    async def filesystem(client: Client) -> None:
        await called(client, "write_file", path="/workspace/a.txt", content="kept")
        assert "kept" in await called(client, "read_text_file", path="/workspace/a.txt")
        tool = await client.call_tool("read_text_file", {"path": "/etc/passwd"})
        assert tool.is_error

    async def memory(client: Client) -> None:
        entity = {"name": "hedgehog", "entityType": "animal", "observations": ["it is round"]}
        await called(client, "create_entities", entities=[entity])
        assert "hedgehog" in await called(client, "read_graph")

    async def time(client: Client) -> None:
        assert "UTC" in await called(client, "get_current_time", timezone="UTC")

    async def git(client: Client) -> None:
        answer = await client.call_tool("git_status", {"repo_path": "/workspace"})
        assert "workspace" in answer.content[0].text  # it is no repository, says git itself

    async def fetch(client: Client) -> None:
        answer = await client.call_tool("fetch", {"url": "http://example.org/"})
        assert answer.is_error  # there is no network

    for name, do in (
        ("everything", everything),
        ("filesystem", filesystem),
        ("memory", memory),
        ("time", time),
        ("git", git),
        ("fetch", fetch),
    ):
        talk(servers, name, do, era)


def test_inside_is_only_lo_and_no_capability(servers: RunningDaemon) -> None:
    async def use(client: Client) -> None:
        await client.list_tools()
        await called(client, "everything.echo", message="x")
        await called(client, "time.get_current_time", timezone="UTC")

    talk(servers, "", use)
    for name, program in (("everything", "dist/index[.]js"), ("time", "mcp_server_tim[e]")):
        [sandbox, *_] = sandboxes(servers, name)
        container = sandbox["status"]["instanceRef"]["containerID"]
        script = (
            f"ls /sys/class/net; for p in /proc/[0-9]*; do if grep -qa {program} $p/cmdline; then"
            " grep -h CapEff $p/status; tr '\\0' ' ' < $p/cmdline; fi; done"
        )
        lines = docker("exec", container, "sh", "-c", script)
        assert lines.splitlines()[0] == "lo"
        assert "CapEff:\t0000000000000000" in lines
        assert SECRET not in lines


def test_secrets_are_in_no_log_inspect_argument_or_audit(servers: RunningDaemon) -> None:
    async def use(client: Client) -> str:
        await called(client, "get_current_time", timezone="UTC")
        return ""

    talk(servers, "time", use)
    [sandbox, *_] = sandboxes(servers, "time")
    container = sandbox["status"]["instanceRef"]["containerID"]
    pids = docker("top", container, "-eo", "pid,args")
    spoken = [docker("inspect", container), docker("logs", container), pids]
    spoken += [
        servers.paddock(*message).stdout for message in (("audit",), ("get", "mcpservers,sandboxes", "-o", "json"))
    ]
    spoken += [path.read_text(errors="replace") for path in servers.folder.rglob("*.log")]
    environments = [Path(f"/proc/{line.split()[0]}/environ").read_text() for line in pids.splitlines()[1:]]
    assert any(f"API_TOKEN={SECRET}" in environment for environment in environments)  # the server itself has it
    for text in spoken:
        assert SECRET not in text
        assert "hunter2-of-the-file" not in text


def test_filters_and_prefixes(servers: RunningDaemon) -> None:
    tools = {"spec": {"tools": {"allow": ["get-*", "echo"], "deny": ["get-env"]}, "prompts": {"deny": ["args-*"]}}}
    tools["spec"]["resources"] = {"allow": ["demo://resource/static/*"]}
    servers.paddock("patch", "mcpserver", "everything", "-p", json.dumps(tools))

    async def use(client: Client) -> None:
        names = {tool.name for tool in (await client.list_tools()).tools if tool.name.startswith("everything.")}
        assert {"everything.echo", "everything.get-sum"} <= names
        assert not {"everything.get-env", "everything.trigger-long-running-operation"} & names
        with pytest.raises(Exception, match="Unknown tool"):
            await client.call_tool("everything.get-env", {})
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert "everything.simple-prompt" in prompts
        assert "everything.args-prompt" not in prompts
        assert (await client.get_prompt("everything.simple-prompt")).messages
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        static = [name for name in uris if name.startswith("everything+demo://")]
        assert static
        assert (await client.read_resource(static[0])).contents[0].uri == static[0]
        with pytest.raises(Exception, match="Unknown resource"):
            await client.read_resource("everything+demo://resource/dynamic/text/1")

    talk(servers, "", use)
    open_again = {"tools": {"allow": ["*"], "deny": []}, "prompts": {"deny": []}, "resources": {"allow": ["*"]}}
    servers.paddock("patch", "mcpserver", "everything", "-p", json.dumps({"spec": open_again}))


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
def test_progress_and_cancellation(servers: RunningDaemon, era: str) -> None:
    observed: list[float] = []

    async def progress(done: float, _total: float | None, _message: str | None) -> None:
        observed.append(done)

    async def use(client: Client) -> None:
        tool = "trigger-long-running-operation"
        await client.call_tool(tool, {"duration": 1, "steps": 3}, progress_callback=progress)
        before = len(observed)
        with anyio.CancelScope() as scope:

            async def stop(*_: Any) -> None:
                scope.cancel()

            await client.call_tool(tool, {"duration": 3600, "steps": 36_000}, progress_callback=stop)
        assert before >= 3
        assert scope.cancelled_caught
        assert "Echo: still here" in await called(client, "echo", message="still here")

    talk(servers, "everything", use, era)


def test_subscriptions(servers: RunningDaemon) -> None:
    async def modern(client: Client) -> None:
        await called(client, "create_entities", entities=[])
        async with client.listen(resource_subscriptions=["memory://knowledge-graph"]) as changes:
            entity = {"name": "fox", "entityType": "animal", "observations": []}
            await called(client, "create_entities", entities=[entity])
            assert await anext(aiter(changes)) == ResourceUpdated("memory://knowledge-graph")

    talk(servers, "memory", modern)
    messages: list[str] = []

    async def hear(message: Any) -> None:
        if not isinstance(message, Exception):
            messages.append(message.method)

    async def legacy(client: Client) -> None:
        await client.subscribe_resource("memory://knowledge-graph")
        number = 0
        while "notifications/resources/updated" not in messages:  # its event stream opens sometime
            number += 1
            entity = {"name": f"fox-{number}", "entityType": "animal", "observations": []}
            await called(client, "create_entities", entities=[entity])

    talk(servers, "memory", legacy, "legacy", message_handler=hear)


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_the_gateway_conforms(servers: RunningDaemon, url: str, revision: str, tmp_path: Path) -> None:
    conform(Endpoint(f"{url}{PLACE}/everything/mcp"), revision, tmp_path, f"gateway-{revision}", "local")


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_inspector_uses_the_gateway(servers: RunningDaemon, url: str, era: str) -> None:
    endpoint = Endpoint(f"{url}/mcp/servers?namespace=default")
    names = {tool["name"] for tool in inspected(endpoint, "tools/list", era=era)["tools"]}
    assert {"everything.echo", "time.get_current_time", "git.git_status", "fetch.fetch"} <= names
    arguments = ("--tool-name", "everything.get-sum", "--tool-arg", "a=2", "b=3")
    assert "5" in inspected(endpoint, "tools/call", *arguments, era=era)["content"][0]["text"]
