"""States of servers that nobody calls: without the engine, disabled, unsandboxed; and their warm sandboxes."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from controller.cli.main import cli
from controller.kinds.mcpserver import KIND, is_sandboxed, ready_condition, state_word
from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.sandboxpool import KIND as POOL
from controller.kinds.sandboxtemplate import KIND as TEMPLATE
from controller.mcp.servers import gateway
from controller.mcp.servers.sessions import Sessions, StartRefused
from controller.mcp.servers.starts import Starts
from tests.daemon import ROOT, wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import client, connected, serving
from tests.mcpserver.programs import Program, Servers
from tests.mcpserver.test_servers import PLACE, document, post
from tests.mcpserver.test_stdio import talks

SCRIPT = (Path(__file__).parent / "scripted_server.py").read_text()


@pytest.fixture
def sessions(api: ApiStack) -> Iterator[Sessions]:
    """Served sessions whose servers are programs of the test; the test sweeps."""
    servers: Any = Servers(api, lambda: Program(talks))
    created = Sessions(servers, api.meter)
    with serving(api, sessions=created):
        yield created
    created.close(0)


def stored(api: ApiStack, name: str = "one") -> StoredObject:
    return api.services.objects.get(KIND, "default", name)


def blind(api: ApiStack, why: str = "no such socket") -> None:
    api.view.seen = replace(api.view.seen, blind=why)


def test_is_docker_available(api: ApiStack, sessions: Sessions) -> None:
    api.apply(document("one"))
    api.apply(document("off", enabled=False))
    assert post(api, f"{PLACE}/one/mcp", "tools/list")[1]["result"]["tools"][0]["name"] == "echo"
    blind(api)
    assert post(api, "/mcp/servers", "tools/list")[1]["result"]["tools"] == []  # though they are known
    sessions.sweep()
    assert state_word(stored(api)) == "Answering"  # it may be back at once
    for _ in range(5):
        sessions.sweep()
    assert ready_condition(stored(api))["message"] == "the engine can't be reached: no such socket"
    events = [event for event in api.store.events(kind="MCPServer", name="one") if event.reason == "DockerUnavailable"]
    assert [event.count for event in events] == [1]  # one warning
    assert state_word(stored(api, "off")) == "Disabled"
    assert api.meter.gauges["paddock_mcp_servers", "user_added", "DockerUnavailable"] == 1
    with connected(api.socket) as mcp:
        observed = mcp.data("mcp.server.list")
    assert [(entry["name"], entry["state"]) for entry in observed["items"]] == [
        ("off", "Disabled"),
        ("one", "DockerUnavailable"),
    ]
    assert not observed["isDockerAvailable"]
    blind(api, "")
    sessions.sweep()
    assert state_word(stored(api)) == "Answering"
    assert post(api, "/mcp/servers", "tools/list")[1]["result"]["tools"][0]["name"] == "one.echo"
    line = ["--server", f"unix://{api.socket}", "why", "mcpserver/one"]
    why = CliRunner().invoke(cli, line).output
    assert why.startswith("mcpserver/one is as desired\n  Answering: its sessions ran on")
    assert "user_added: 512Mi memory, 500m cpu, 50 pids" in why
    assert "sandbox/one-" in why
    assert "pinned tools" in why


def test_servers_that_come_and_go_are_told(api: ApiStack, sessions: Sessions) -> None:
    api.apply(document("one"))
    sessions.sweep()

    async def ask() -> list[str]:
        path = "/mcp/servers?namespace=default"
        async with client(api.socket, path=path) as mcp, mcp.listen(tools_list_changed=True) as changes:
            await anyio.to_thread.run_sync(api.apply, document("two"))
            await anyio.to_thread.run_sync(sessions.sweep)
            names = [type(await anext(aiter(changes))).__name__]
            return names + [tool.name for tool in (await mcp.list_tools()).tools]

    assert anyio.run(ask) == ["ToolsListChanged", "one.echo", "two.echo"]


def test_is_sandboxed(api: ApiStack, sessions: Sessions) -> None:
    api.apply(document("one", trust="verified", sandbox="Preferred"))
    api.apply(document("two"))
    sessions.sweep()

    def hold(name: str) -> http.client.HTTPConnection:
        http_connection = http.client.HTTPConnection("localhost")
        http_connection.sock = socket.socket(socket.AF_UNIX)
        http_connection.sock.connect(str(api.socket))
        http_connection.request(
            "GET", f"{PLACE}/{name}/mcp", headers={"Paddock-Connection": "a", "Paddock-Unsandboxed": "true"}
        )
        return http_connection

    refusal = hold("two")
    assert "runs in a sandbox only" in json.loads(refusal.getresponse().read())["message"]
    refusal.close()
    reserved = hold("one")
    assert reserved.getresponse().status == 200
    wait_for("it shows", lambda: not is_sandboxed(stored(api)))
    assert is_sandboxed(stored(api, "two"))
    sessions.sweep()
    assert api.meter.gauges["paddock_mcp_sessions", "false"] == 1
    condition = stored_condition(stored(api), "Sandboxed")
    assert (condition["reason"], condition["message"]) == (
        "Unsandboxed",
        "sessions without a sandbox, as their users' own processes: 1",
    )
    with connected(api.socket) as mcp:
        assert [entry["isSandboxed"] for entry in mcp.data("mcp.server.list")["items"]] == [False, True]
    assert [event.reason for event in api.store.events(kind="MCPServer", name="one")] == ["Unsandboxed"]
    reserved.sock.shutdown(socket.SHUT_RDWR)
    reserved.close()
    wait_for("it shows", lambda: is_sandboxed(stored(api)))
    sessions.sweep()
    assert api.meter.gauges["paddock_mcp_sessions", "false"] == 0


def test_warm_sandboxes_come_from_a_pool_of_the_server(api: ApiStack, sessions: Sessions) -> None:
    api.apply(document("one", warmReplicas=2))
    sessions.sweep()
    pool = api.services.objects.get(POOL, "default", "mcp-one")
    template = api.services.objects.get(TEMPLATE, "default", "mcp-one")
    uid = stored(api).uid
    assert [owner_reference["uid"] for owner_reference in (*pool.owner_references, *template.owner_references)] == [
        uid,
        uid,
    ]
    assert (pool.spec["warmReplicas"], template.spec["resources"]["limits"]["pids"]) == (2, 50)
    anyio.run(Starts(sessions).session, api.services.mcp_servers.get("default", "one"), "ann", "a")
    [sandbox] = api.store.list("Sandbox")[0]
    assert sandbox.spec["templateRef"] == {"name": "mcp-one"}
    api.apply(document("one", warmReplicas=1, trust="verified"))
    for _ in range(2):
        sessions.sweep()
    assert api.services.objects.get(POOL, "default", "mcp-one").spec["warmReplicas"] == 1
    assert api.services.objects.get(TEMPLATE, "default", "mcp-one").spec["resources"]["limits"]["pids"] == 100
    api.apply(document("one"))
    sessions.sweep()
    objects = [entry for entry in api.store.list("SandboxPool")[0] if entry.deleted_at is None]
    assert not objects


def test_a_pool_of_others_is_not_taken_over(api: ApiStack, sessions: Sessions) -> None:
    second = {"apiVersion": "paddock/v1alpha1", "kind": "SandboxTemplate", "metadata": {"name": "mcp-one"}}
    api.apply(json.dumps({**second, "spec": {"image": "evil:1", "command": ["sleep", "1"]}}))
    api.apply(document("one", warmReplicas=1))
    sessions.sweep()
    assert api.services.objects.get(TEMPLATE, "default", "mcp-one").spec["image"] == "evil:1"
    assert not api.store.list("SandboxPool")[0]
    anyio.run(Starts(sessions).session, api.services.mcp_servers.get("default", "one"), "ann", "")
    [sandbox] = api.store.list("Sandbox")[0]
    assert sandbox.spec["template"]["image"] == "paddock/python:1"


def test_a_daemon_that_stops_begins_no_session(api: ApiStack, sessions: Sessions) -> None:
    api.apply(document("one"))
    server = api.services.mcp_servers.get("default", "one")
    anyio.run(Starts(sessions).session, server, "ann", "")
    sessions.close(0)
    assert all(entry.deleted_at is not None for entry in api.store.list("Sandbox")[0])
    with pytest.raises(StartRefused, match="the daemon stops"):
        anyio.run(Starts(sessions).session, server, "ann", "")
    assert sessions.count() == 0


def test_a_slow_server_is_listed_later(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_SLOW_SECONDS", 0.2)
    may_answer = threading.Event()

    def slow(message: dict[str, Any]) -> Any:
        may_answer.wait(60)
        return talks(message)

    programs = {"quick": talks, "slow": slow}

    class ByName(Servers):
        def start(self, server: Any, _sandbox: Any, stdin: Any) -> Any:
            return Program(programs[server.obj.name]).start(stdin)

    servers: Any = ByName(api, lambda: Program(talks))
    sessions = Sessions(servers, api.meter)
    for name in programs:
        api.apply(document(name))

    async def ask() -> list[list[str]]:
        path = "/mcp/servers?namespace=default"
        async with client(api.socket, path=path) as mcp, mcp.listen(tools_list_changed=True) as changes:
            before = [tool.name for tool in (await mcp.list_tools()).tools]
            may_answer.set()
            await anext(aiter(changes))
            return [before, [tool.name for tool in (await mcp.list_tools()).tools]]

    with serving(api, sessions=sessions):
        post(api, f"{PLACE}/quick/mcp", "tools/list")  # as quick as can be: its tools are known
        assert anyio.run(ask) == [["quick.echo"], ["quick.echo", "slow.echo"]]
    sessions.close(0)


def test_streams_end_with_the_daemon(api: ApiStack, sessions: Sessions) -> None:
    """Else its end would wait for clients that listen."""
    api.apply(document("one"))
    http_connection = http.client.HTTPConnection("localhost")
    http_connection.sock = socket.socket(socket.AF_UNIX)
    http_connection.sock.connect(str(api.socket))
    http_connection.request("GET", f"{PLACE}/one/mcp", headers={"Paddock-Connection": "a"})
    answer = http_connection.getresponse()

    async def listen() -> None:
        text, ours = "/mcp/servers?namespace=default", "/mcp"
        async with (
            client(api.socket, path=text) as first,
            client(api.socket, path=ours) as two,
            first.listen(tools_list_changed=True) as changes,
            two.listen(resources_list_changed=True) as updates,
        ):
            await anyio.to_thread.run_sync(api.services.watches.close)
            await anyio.to_thread.run_sync(sessions.close, 0)
            for subscription in (changes, updates):
                with anyio.fail_after(60):
                    assert [event async for event in subscription] == []

    anyio.run(listen)
    assert set(answer.read().split(b"\n\n")) == {b": connected", b""}
    http_connection.close()


def test_the_double_opt_in_runs_it_as_the_users_own_process(api: ApiStack, sessions: Sessions, tmp_path: Path) -> None:
    args, double = ["-c", SCRIPT, "none"], {"trust": "verified", "sandbox": "Preferred", "workingDir": str(tmp_path)}
    api.apply(document("one", **double, args=args, env=[{"name": "A", "value": "b"}]))
    api.apply(document("two", args=args))
    blind(api)
    for _ in range(3):
        sessions.sweep()
    environment = {**os.environ, "PADDOCK_SOCKET": str(api.socket)}

    def connect(name: str) -> Any:
        command = [sys.executable, "-m", "controller", "mcp", "connect", name, "--allow-unsandboxed"]
        pipes: dict[str, Any] = {"errors": "replace"} | dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, env=environment, cwd=ROOT, text=True, **pipes)

    with connect("two") as connection:
        assert "runs in a sandbox only" in connection.communicate(timeout=60)[1]
    with connect("one") as process:

        def ask(number: int, method: str, **params: Any) -> Any:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
            process.stdin.flush()
            while not (line := process.stdout.readline()).startswith("{"):  # the program's own chatter passes, too
                assert line
            return json.loads(line)["result"]

        ask(1, "initialize")
        result = ask(2, "tools/call", name="env", arguments={"text": "A"})
        assert result == {"content": [{"type": "text", "text": "b"}], "_meta": {"paddock/isSandboxed": False}}
        facts = ask(3, "tools/call", name="facts", arguments={})["content"][0]["text"]
        assert json.loads(facts)["folder"] == str(tmp_path)
        wait_for("it shows", lambda: not is_sandboxed(stored(api)))
        listed = CliRunner().invoke(cli, ["--server", f"unix://{api.socket}", "mcp", "list"]).output
        assert "UNSANDBOXED" in listed
        _, warning = process.communicate(timeout=60)
        assert "runs WITHOUT a sandbox, with your own permissions" in warning
    assert process.returncode == 0
    wait_for("it shows", lambda: is_sandboxed(stored(api)))
