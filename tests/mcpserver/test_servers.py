"""The gateway to other people's servers without an engine: what is refused, and by whom it may be used."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from controller.kinds.mcpserver import KIND, ready_condition
from controller.mcp.servers.sessions import Sessions, StartRefused
from controller.mcp.servers.starts import Starts
from controller.ports import StoreError
from controller.service.errors import Conflict, ServiceUnavailable
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import serving

PLACE = "/apis/paddock/v1alpha1/namespaces/default/mcpservers"


def document(name: str, **spec: Any) -> str:
    body = {"command": "python3", **spec}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": body})


@pytest.fixture
def served(api: ApiStack) -> Iterator[ApiStack]:
    with serving(api):
        yield api


def post(api: ApiStack, path: str, method: str, params: dict[str, Any] | None = None, **headers: str) -> Any:
    """Return the status and the JSON answer of one message."""
    connection = http.client.HTTPConnection("localhost")
    with socket.socket(socket.AF_UNIX) as connected:
        connected.connect(str(api.socket))
        connection.sock = connected
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        connection.request("POST", path, json.dumps(message), sent)
        with connection.getresponse() as answer:
            text = answer.read().decode()
        connection.close()
    data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    return answer.status, json.loads(data[-1] if data else text)


def test_tools_vanish_while_docker_is_missing(served: ApiStack) -> None:
    served.apply(document("one"))
    served.apply(document("two"))
    served.view.seen = replace(served.view.seen, blind="no such socket")
    status, listed = post(served, "/mcp/servers?namespace=default", "tools/list")
    assert (status, listed["result"]["tools"]) == (200, [])
    _, called = post(served, f"{PLACE}/one/mcp", "tools/call", {"name": "x", "arguments": {}})
    assert called["result"]["isError"]
    assert "DockerUnavailable" in called["result"]["content"][0]["text"]
    assert ready_condition(served.services.objects.get(KIND, "default", "one"))["reason"] == "DockerUnavailable"
    events = [
        event for event in served.store.events(kind="MCPServer", name="one") if event.reason == "DockerUnavailable"
    ]
    assert [event.count for event in events] == [1]  # one warning, however often it is asked


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"enabled": False}, "is disabled; enable it (`paddock mcp enable bad`)"),
        (
            {"command": "npx", "args": ["foo@1.2.3"], "startupSeconds": 1},
            "Installing: `foo@1.2.3` is not installed yet",
        ),
    ],
)
def test_a_server_that_can_not_start_says_why(served: ApiStack, spec: dict[str, Any], says: str) -> None:
    served.apply(document("bad", **spec))
    _, answer = post(served, f"{PLACE}/bad/mcp", "tools/list")
    assert says in answer["error"]["message"]


def test_addresses_are_checked(served: ApiStack) -> None:
    assert post(served, f"{PLACE}/nobody/mcp", "tools/list")[0] == 404
    served.apply(document("one"))
    assert post(served, f"{PLACE}/one/mcp?names=dots", "tools/list")[0] == 400
    assert post(served, f"{PLACE}/one/mcp", "tools/list", **{"Paddock-Connection": "a b"})[0] == 400
    _, unknown = post(served, "/mcp/servers", "tools/call", {"name": "two.x", "arguments": {}})
    assert "Unknown tool: two.x" in unknown["error"]["message"]


def test_calls_are_in_the_audit_log_before_they_start(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    served.apply(document("one"))
    served.view.seen = replace(served.view.seen, blind="no such socket")
    call = {"name": "one.echo", "arguments": {"text": "hidden"}}
    post(served, "/mcp/servers", "tools/call", call)
    post(served, f"{PLACE}/one/mcp", "tools/call", {**call, "name": "echo"})
    entries = [entry for entry in served.store.audit.entries() if (entry.kind, entry.verb) == ("MCPServer", "mcp")]
    assert [entry.name for entry in entries] == ["one", "one"]
    assert min(entries, key=lambda each: each.id).detail["arguments"] == {"text": "string"}

    def fail(*_: Any) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(served.services.recorder, "_append", fail)
    _, answer = post(served, "/mcp/servers", "tools/call", call)
    assert answer["result"]["isError"]
    assert "DockerUnavailable" not in answer["result"]["content"][0]["text"]


def test_a_refused_start_leaves_no_session(api: ApiStack) -> None:
    api.apply(document("one", startupSeconds=1))
    api.view.seen = replace(api.view.seen, blind="gone")
    sessions = Sessions(api.services.mcp_servers, api.meter)
    server = api.services.mcp_servers.get("default", "one")
    for _ in range(3):
        with pytest.raises(StartRefused, match="DockerUnavailable"):
            anyio.run(Starts(sessions).session, server, "ann", "")
    assert sessions.count() == 0


IMAGE = "registry.example/server:1"


@pytest.fixture
def image(running: ApiStack) -> ApiStack:
    """An API with a running sandbox, and an image that starts `serve all` in /srv."""
    running.images.remote[IMAGE] = "sha256:" + "c" * 64
    list(running.images.pull(IMAGE, seconds=1))
    running.images.programs[IMAGE] = (("serve",), ("all",), "/srv")
    return running


def started(api: ApiStack, **spec: Any) -> tuple[Any, Any]:
    """Start the server's program; return the command line and the folder that it got."""
    api.apply(document("one", **{"command": "", "image": IMAGE, **spec}))
    servers = api.services.mcp_servers
    servers.start(servers.get("default", "one"), api.sandbox(), iter(()))
    requested = api.streams.asked[-1][1]
    return requested["command"], requested["working_dir"]


def test_an_image_starts_as_docker_run_would(image: ApiStack) -> None:
    assert started(image) == (("serve", "all"), "/srv")
    assert started(image, args=["--one"]) == (("serve", "--one"), "/srv")
    assert started(image, command="other", args=["--one"]) == (("other", "--one"), "")


def test_an_image_that_starts_nothing_says_what_to_write(image: ApiStack) -> None:
    image.images.programs[IMAGE] = ((), (), "")
    with pytest.raises(Conflict, match="names no program; write `command:`"):
        started(image)
    image.images.away = True
    with pytest.raises(ServiceUnavailable):
        started(image)
    image.images.away = False
    with pytest.raises(ServiceUnavailable, match="no longer on this host; pull or build it"):
        started(image, image="registry.example/lost:1")
