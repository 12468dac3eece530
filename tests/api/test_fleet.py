"""Requests for sandboxes of other hosts: two daemons' APIs over one store, each with an engine of its own.

Host `a` is asked. What runs on `b` is seen by `b` alone, so that an answer shows who gave it.
"""

import asyncio
import hashlib
import io
import json
import os
import socket
import ssl
import tarfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import LogCapture
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from controller.api.app import create_app
from controller.api.fleet import forwarding, relay
from controller.api.fleet.forwarding import Forwarding
from controller.api.fleet.identity import HEADER, encode
from controller.api.fleet.links import Links
from controller.api.fleet.tls import FleetFilesError, FleetTls
from controller.api.listeners import ListenerRules, Listeners
from controller.api.streams.relay import Gone
from controller.cli.fleet_certificates import new_certificate
from controller.kinds.access.access import Caller, Grant
from controller.kinds.common.chunk import Chunk
from controller.kinds.meta import StoredObject
from controller.mcp.endpoint import McpEndpoint
from controller.ports import LeaseState
from controller.ports.fleet import ManyHosts
from controller.service.access import access
from controller.service.fleet.locations import Location, Locations
from controller.service.workflow.files import RunFiles, RunKey
from controller.store.sql_store import SqlStore
from tests.api.listeners import client, opened, token
from tests.daemon import wait_for
from tests.fleet_files import Authority, write_pair
from tests.helpers_api import ApiStack, make_api
from tests.plain_logs import configure_plain_logs

BASE = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"
ROOT = Caller("root (uid 0)", "unix pid 1 uid 0", (Grant(role="admin"),))


@dataclass
class Place:
    """One host: its API, listeners and way to other hosts."""

    api: ApiStack
    listeners: Listeners
    forwarding: Forwarding


class Leased:
    """The store, with leases of these hosts: a file has one daemon, and knows no others."""

    def __init__(self, store: SqlStore, held: Sequence[str]) -> None:
        self._store, self.held = store, list(held)

    def leases(self) -> list[LeaseState]:
        return [LeaseState(f"host/{name}", 1, name, 6.0) for name in self.held]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def place(api: ApiStack, name: str, tls: FleetTls | None, fleet: bool = True) -> Place:
    """Return a host's listeners, not started."""
    endpoint = McpEndpoint(api.services, api.meter)
    forwarding = Forwarding(Locations(api.store, name, ""), Links(tls), endpoint.sandbox_of)

    def make(who: Any) -> Any:
        return create_app(api.services, ready=list, meter=api.meter, who=who, forwarding=forwarding, mcp_app=endpoint)

    rules = ListenerRules(api.socket, fleet=("127.0.0.1", 0) if fleet else None, fleet_tls=tls, stall_seconds=60)
    return Place(api, Listeners(rules, api.store.tokens, api.clock, make), forwarding)


def bind(api: ApiStack, host: str, name: str = "quickstart") -> StoredObject:
    """Bind a sandbox to a host, as its daemon does."""
    return api.change(name, status={"host": host})


def announce(api: ApiStack, host: str, address: str) -> None:
    """Store a host's address, as its daemon does."""
    with api.store.transaction() as transaction:
        stored = transaction.get("Host", "", host)
        created = stored or StoredObject("Host", "", host, uid=f"uid-{host}", spec={}, created_at=0.0)
        transaction.put(replace(created, status={"address": address}))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def hosts(tmp_path: Path, authority: Authority, quiet: None) -> Iterator[tuple[Place, Place]]:
    """Hosts a and b, and a sandbox that runs on b."""
    first = make_api(tmp_path / "a")
    second = make_api(tmp_path / "b", store=first.store)
    places = [place(first, "a", authority.tls("a")), place(second, "b", authority.tls("b"))]
    first.apply()
    second.view.show(bind(first, "b"))
    try:
        for entry in places:
            entry.listeners.start()
        announce(first, "b", places[1].listeners.fleet_address)
        announce(first, "a", places[0].listeners.fleet_address)
        yield places[0], places[1]
    finally:
        for one_place in places:
            one_place.forwarding.links.close()
            one_place.listeners.stop()
            one_place.api.services.recorder.flush()
            one_place.api.services.watches.close()
            one_place.api.files.close()
        first.store.close()


def execute(api: ApiStack, *command: str, text: str = "", **more: Any) -> httpx.Response:
    with client(api, text) as created:
        return created.post(f"{BASE}/exec", json={"command": command or ("true",)}, **more)


def websocket(api: ApiStack, path: str, *protocols: str) -> ClientConnection:
    return unix_connect(str(api.socket), uri=f"ws://paddock{BASE}/{path}", subprotocols=list(protocols) or None)


def uses(api: ApiStack) -> list[tuple[str, str, str]]:
    """Return the recorded uses of the sandbox: caller, verb and outcome."""
    return [(entry.actor, entry.verb, entry.outcome) for entry in api.store.audit.entries() if entry.verb == "exec"]


def test_exec_runs_at_the_other_host(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    b.streams.run = lambda **_: iter((Chunk("stdout", b"there\n"), Chunk("exit", b"3")))
    for _ in range(3):
        answer = execute(a, "uname", "-a")
        assert (answer.status_code, answer.json()["stdout"], answer.json()["exitCode"]) == (200, "there\n", 3)
    assert not a.streams.asked
    assert [requested["command"] for _, requested in b.streams.asked] == [("uname", "-a")] * 3
    assert len(uses(a)) == 3, "one entry for each, of the daemon that was asked"
    assert {actor for actor, _, _ in uses(a)} == {f"{_me()} (uid {os.getuid()})"}


def _me() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def test_the_own_sandboxes_are_served_here(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    a.view.show(bind(a, "a"))
    assert execute(a).status_code == 200
    assert (len(a.streams.asked), len(b.streams.asked)) == (1, 0)


def test_a_sandbox_without_a_host_is_waited_for(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    bind(a, "")
    with ThreadPoolExecutor() as pool:
        submit = pool.submit(execute, a)
        assert not wait([submit], timeout=0.3).done
        bind(a, "b")
        assert submit.result().status_code == 200
    assert (len(a.streams.asked), len(b.streams.asked)) == (0, 1)


def test_a_sandbox_that_gets_no_host_says_why(hosts: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "BOUND_SECONDS", 0.2)
    a, b = (host.api for host in hosts)
    waits = {"type": "Scheduled", "status": "False", "reason": "NoHost", "message": "name a host: spec.host"}
    a.change("quickstart", status={"host": "", "conditions": [waits]})
    answer = execute(a)
    assert answer.status_code == 409
    assert answer.json()["message"] == "sandbox `quickstart` has no host yet: name a host: spec.host"
    with client(a) as created:
        assert created.get(f"{BASE}/why").status_code != 409  # any daemon explains it
    assert (len(a.streams.asked), len(b.streams.asked)) == (0, 0)


def ask_why(api: ApiStack) -> httpx.Response:
    with client(api) as created:
        return created.get(f"{BASE}/why")


def test_why_is_told_here_of_a_sandbox_whose_host_is_away(tmp_path: Path, authority: Authority, quiet: None) -> None:
    api = make_api(tmp_path, place=ManyHosts("a"))
    leases = Leased(api.store, "b")
    requested = place(api, "a", authority.tls("a"))
    requested.forwarding.locations = Locations(leases, "a", "")  # type: ignore[arg-type]
    announce(api, "b", "127.0.0.1:1")
    api.apply()
    lost = {"type": "Ready", "status": "Unknown", "reason": "HostLost", "message": "its daemon is away"}
    lost["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    api.change("quickstart", status={"host": "b", "conditions": [lost]})
    requested.listeners.start()
    try:
        assert ask_why(api).status_code == 503, "its daemon holds its lease: it is asked, and does not answer"
        leases.held = ["a"]
        answer = ask_why(api)
        assert answer.status_code == 200, answer.text
        assert [answer.json()[entry] for entry in ("verdict", "reason")] == ["Unknown", "HostLost"]
        assert execute(api).status_code == 503
    finally:
        requested.forwarding.links.close()
        requested.listeners.stop()
        api.store.close()


def test_a_daemon_without_a_host_inspects_none(hosts: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "BOUND_SECONDS", 0.2)
    a, _ = hosts
    bind(a.api, "")
    with client(a.api) as created:
        assert created.get(f"{BASE}/inspect").status_code == 200
        a.forwarding.locations = Locations(a.api.store, "api/a", "", "a")
        answer = created.get(f"{BASE}/inspect")
    assert (answer.status_code, "has no host yet" in answer.json()["message"]) == (409, True)


def ask_mcp(api: ApiStack, method: str, text: str = "", query: str = "", **params: Any) -> dict[str, Any]:
    """Send a message to the MCP endpoint of a host; return its result."""
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    accepts = {"accept": "application/json, text/event-stream"}
    with client(api, text) as created:
        answer = created.post(f"/mcp{query}", json=message, headers=accepts)
    assert answer.status_code == 200, answer.text
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    document: dict[str, Any] = json.loads(data[-1] if data else answer.text)
    assert document["id"] == 7
    return document


def execute_by_mcp(api: ApiStack, text: str = "", query: str = "", **named: str) -> dict[str, Any]:
    arguments = {"id": "quickstart", **named, "command": ["true"]}
    answer = ask_mcp(api, "tools/call", text, query, name="docker.container.exec", arguments=arguments)
    document: dict[str, Any] = answer["result"]
    return document


@pytest.mark.parametrize("named", ["quickstart", "default/quickstart", "pdk-default-quickstart", "c" * 64, "c" * 12])
def test_a_tool_works_in_the_sandbox_of_another_host(hosts: tuple[Place, Place], named: str) -> None:
    a, b = (host.api for host in hosts)
    instance = {"name": "pdk-default-quickstart", "containerID": "c" * 64}
    b.view.show(a.change("quickstart", status={"host": "b", "instanceRef": instance}))
    mcp = execute_by_mcp(a, id=named)
    assert not mcp.get("isError"), mcp
    assert mcp["structuredContent"]["exitCode"] == 0
    assert (len(a.streams.asked), len(b.streams.asked)) == (0, 1)
    a.services.recorder.flush()
    b.services.recorder.flush()
    assert len(uses(a)) == 1  # the daemon that does the work has recorded it, and the other one not again


def test_the_namespace_of_a_client_counts(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    assert execute_by_mcp(a, query="?namespace=other")["isError"]
    assert (len(a.streams.asked), len(b.streams.asked)) == (0, 0)
    assert not execute_by_mcp(a, query="?namespace=other", namespace="default").get("isError")
    assert (len(a.streams.asked), len(b.streams.asked)) == (0, 1)


def test_a_resource_of_another_host_is_read(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    b.streams.log = lambda **_: iter((Chunk("stdout", b"from b\n"),))
    mcp = ask_mcp(a, "resources/read", uri="sandbox://default/quickstart/logs")
    assert mcp["result"]["contents"][0]["text"] == "from b\n"


def test_what_any_daemon_answers_is_answered_here(hosts: tuple[Place, Place], caplog: pytest.LogCaptureFixture) -> None:
    a, _ = (host.api for host in hosts)
    hosts[1].listeners.stop()
    got = ask_mcp(a, "tools/call", name="sandbox.get", arguments={"name": "quickstart"})
    assert got["result"]["structuredContent"]["metadata"]["name"] == "quickstart"
    assert ask_mcp(a, "tools/list")["result"]["tools"]


def test_an_unreachable_host_fails_the_call_of_a_tool(hosts: tuple[Place, Place]) -> None:
    announce(hosts[0].api, "b", "127.0.0.1:1")
    mcp = execute_by_mcp(hosts[0].api)
    assert mcp["isError"]
    assert "its host `b` can't be reached" in mcp["content"][0]["text"]


def test_a_tool_needs_its_right_at_the_other_host_too(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    elsewhere = token(a, "user", "other")
    mcp = execute_by_mcp(a, elsewhere)
    assert mcp["isError"]
    assert "not found" in mcp["content"][0]["text"]
    assert (len(a.streams.asked), len(b.streams.asked)) == (0, 0)


EXEC = {"name": "docker.container.exec"}


@pytest.mark.parametrize(
    "params", [{}, {"name": 5}, {**EXEC, "arguments": {"id": 5}}, {**EXEC, "arguments": {"id": "a/b/c"}}]
)
def test_messages_that_are_not_valid_are_answered_here(hosts: tuple[Place, Place], params: dict[str, Any]) -> None:
    mcp = ask_mcp(hosts[0].api, "tools/call", **params)
    assert "error" in mcp or mcp["result"]["isError"]


def test_prometheus_finds_the_hosts(tmp_path: Path) -> None:
    api = make_api(tmp_path, place=ManyHosts("a"))
    url = "https://[fd00::2]:9464/metrics"
    with api.store.transaction() as transaction:
        for name, status in (("b", {"metricsURL": url}), ("c", {})):
            host = StoredObject("Host", "", name, uid=f"uid-{name}", spec={}, status=status, created_at=0.0)
            transaction.put(host)
    with opened(api), client(api) as created:
        answer = created.get("/sd/hosts")
    assert answer.headers["content-type"] == "application/json"
    labels = {"host": "b", "__scheme__": "https", "__metrics_path__": "/metrics"}
    assert answer.json() == [{"targets": ["[fd00::2]:9464"], "labels": labels}]


def test_a_followed_log_streams_and_ends_with_its_client(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    b.streams.log = b.streams.endless
    with client(a) as created:
        with created.stream("GET", f"{BASE}/logs", params={"follow": "true"}) as answer:
            texts = answer.iter_text()  # kept: the connection ends with it
            assert next(texts) == "first\n"
            assert not b.streams.closed.is_set()
        wait_for("the stream at the other host is closed", b.streams.closed.is_set)


def test_exec_over_a_websocket(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    b.streams.run = lambda **_: iter((Chunk("stdout", b"out\xff"), Chunk("exit", b"0")))
    with websocket(a, "exec?command=true", "v5.channel.k8s.io") as opened:
        assert opened.subprotocol == "v5.channel.k8s.io"
        received = [bytes(entry) for entry in opened]
    assert b"\x01out\xff" in received
    assert json.loads(received[-1][1:])["status"] == "Success"


def test_a_client_that_leaves_ends_its_command_there(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    b.streams.run = b.streams.endless
    with websocket(a, "exec?command=cat", "v5.channel.k8s.io") as opened:
        opened.recv()
    wait_for("the command at the other host is ended", b.streams.closed.is_set)


def test_refusals_of_the_other_host_arrive(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    with client(a) as created:
        answer = created.get(f"{BASE}/execs/nothing")
    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")
    b.streams.run = lambda **_: iter((Chunk("exit", b"0"),))
    with pytest.raises(InvalidStatus) as refusal:
        websocket(a, "exec", "v5.channel.k8s.io")
    assert refusal.value.response.status_code == 400
    assert "command" in json.loads(refusal.value.response.body or b"")["message"]


@contextmanager
def echoing(api: ApiStack) -> Iterator[None]:
    """Serve port 80 of the host's sandbox: what comes goes back, and the end too."""
    listener = socket.create_server(("127.0.0.1", 0))
    api.ports.listen(80, listener.getsockname()[1])

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                while data := sock.recv(65536):
                    sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_forwarded_port_carries_exact_bytes_and_half_closes(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    data = os.urandom(3 << 20)
    with echoing(b), websocket(a, "portforward?port=80", "raw.portforward.paddock", "portforward.paddock") as opened:
        assert opened.subprotocol == "portforward.paddock", "raw bytes are for a sandbox of this host"

        def feed() -> None:
            for at in range(0, len(data), 1 << 18):
                opened.send(data[at : at + (1 << 18)])
            opened.send("end")

        feeding = threading.Thread(target=feed)
        feeding.start()
        came = b""
        while isinstance(piece := opened.recv(), bytes):
            came += piece
        feeding.join()
    assert piece == "end"
    assert hashlib.sha256(came).digest() == hashlib.sha256(data).digest()


def test_a_file_streams_both_ways(hosts: tuple[Place, Place]) -> None:
    a = hosts[0].api
    data = os.urandom(5 << 20)

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(data), 1 << 18):
            yield data[at : at + (1 << 18)]

    headers = {"Content-Type": "application/octet-stream"}
    with client(a) as created:
        sent = created.put(f"{BASE}/files", params={"path": "/tmp/x"}, content=pieces(), headers=headers)
        assert sent.status_code == 200, sent.text
        got = created.get(f"{BASE}/files", params={"path": "/tmp/x"})
    assert got.content == data


_RUN = """
apiVersion: paddock/v1alpha1
kind: WorkflowRun
metadata: {name: r}
spec:
  sandboxRef: {name: quickstart}
  workflow: {stages: [{name: out, copy: {from: /out, artifact: out}}]}
"""


def test_files_of_a_run_are_those_of_its_host(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    with access.acting(ROOT):
        a.apply(_RUN)
    run = a.store.get("WorkflowRun", "default", "r")
    assert run is not None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("result"), io.BytesIO(b""))
    pieces = iter((packed.getvalue(), b""))
    files = RunFiles(b.folder / "runs" / "files", 1 << 20)
    files.keep(RunKey("default", run.uid), "out", "out", lambda: next(pieces, b""))
    path = f"{BASE.removesuffix('/sandboxes/quickstart')}/workflowruns/r/artifacts"
    with client(a) as created:
        assert created.get(path).json()["items"] == [], "it has no host: nothing is done of it"
        with a.store.transaction() as transaction:
            transaction.put(replace(run, status={**run.status, "host": "b"}))
        assert [entry["name"] for entry in created.get(path).json()["items"]] == ["out"]
        assert created.get(f"{path}/out").content == packed.getvalue()
        hosts[1].listeners.stop()
        response = created.get(path)
        assert (response.status_code, "workflowrun `r`: its host `b`" in response.text) == (503, True)


def test_a_token_bounds_the_forwarded_request(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    assert execute(a, text=token(a, "viewer")).status_code == 403
    assert execute(a, text=token(a, "user", "team-x")).status_code == 404
    assert not b.streams.asked
    assert execute(a, text=token(a, "user", images=["paddock/*"] * 900)).status_code == 200, "large grants pass, too"


# --- the fleet listener ---


def ask(
    b: Place,
    tls: FleetTls | ssl.SSLContext | None,
    headers: Sequence[tuple[str, str]],
    path: str = BASE + "/exec",
    method: str = "POST",
) -> int:
    """Ask the fleet listener directly; return the status."""
    context = tls.client if isinstance(tls, FleetTls) else tls
    host, _, port = b.listeners.fleet_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as plain:
        if context is None:
            created: Any = plain
        else:
            real = context if not isinstance(tls, FleetTls) else tls.current().client
            created = real.wrap_socket(plain, server_hostname="b")
        with created:
            lines = [f"{method} {path} HTTP/1.1", "host: b", "content-type: application/json", "content-length: 20"]
            lines += [f"{name}: {value}" for name, value in headers]
            created.sendall("\r\n".join([*lines, "", '{"command":["true"]}']).encode())
            head = b""
            while b"\r\n\r\n" not in head:
                piece = created.recv(65536)
                if not piece:
                    raise ConnectionResetError("no answer")
                head += piece
    return int(head.split()[1])


def identity(host: str, uid: str, caller: Caller = ROOT) -> tuple[str, str]:
    return HEADER, encode(host, caller, uid, "http").decode()


def test_the_fleet_listener_believes_a_host(hosts: tuple[Place, Place], authority: Authority) -> None:
    a, b = hosts
    uid = a.api.sandbox().uid
    tls = authority.tls("a", folder="again")
    assert ask(b, tls, [identity("a", uid)]) == 200
    assert ask(b, tls, []) == 403, "no identity"
    assert ask(b, tls, [identity("a", uid)] * 2) == 403, "two identities"
    assert ask(b, tls, [(HEADER, "{}")]) == 400
    assert ask(b, tls, [identity("a", "another-uid")]) == 421
    assert ask(b, tls, [identity("b", uid)]) == 403, "a host that claims another's name"
    assert ask(b, tls, [("authorization", "Bearer x")]) == 403
    nobody = Caller("nobody", "", (Grant(role="viewer"),))
    assert ask(b, tls, [identity("a", uid, nobody)]) == 403, "the grants hold there, too"
    assert len(b.api.streams.asked) == 1


def test_the_fleet_listener_serves_nothing_but_sandboxes_of_its_host(
    hosts: tuple[Place, Place], authority: Authority
) -> None:
    _, b = hosts
    tls = authority.tls("a", folder="again")
    for path in ("/apis/paddock/v1alpha1/tokens", "/mcp", "/apis/paddock/v1alpha1/namespaces/default/sandboxes/x"):
        assert ask(b, tls, [identity("a", "x")], path) in (403, 404, 405)
    assert not b.api.streams.asked


def test_peers_without_a_right_certificate_are_refused(
    hosts: tuple[Place, Place], authority: Authority, tmp_path: Path
) -> None:
    a, b = hosts
    uid, second = a.api.sandbox().uid, Authority(tmp_path / "other")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(authority.file)
    old = authority.tls("a", folder="old").current().client
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    past = datetime.now(UTC) - timedelta(days=30)
    refusal = [
        None,  # no TLS
        bare,  # no certificate
        old,
        FleetTls("a", second.files("a", trusts=authority.file)),
        FleetTls("a", authority.files("a", "expired", now=past, days=2)),
    ]
    for entry in refusal:
        with pytest.raises(OSError):
            ask(b, entry, [identity("a", uid)])
    assert not b.api.streams.asked


def test_forged_identities_are_refused_on_ordinary_listeners(hosts: tuple[Place, Place]) -> None:
    a, b = hosts
    for entry in (a, b):
        answer = execute(entry.api, headers=dict([identity("a", a.api.sandbox().uid)]))
        assert (answer.status_code, HEADER in answer.json()["message"]) == (400, True)
        with pytest.raises(InvalidStatus) as refusal:
            unix_connect(
                str(entry.api.socket),
                uri=f"ws://paddock{BASE}/exec?command=true",
                additional_headers=dict([identity("a", a.api.sandbox().uid)]),
            )
        assert refusal.value.response.status_code == 400
    assert not b.api.streams.asked


# --- hosts that can't be reached ---


def failure(api: ApiStack) -> str:
    answer = execute(api)
    assert answer.status_code == 503, answer.text
    return str(answer.json()["message"])


def test_an_unreachable_host_is_said_so(hosts: tuple[Place, Place]) -> None:
    a, b = hosts
    output = "sandbox `quickstart`: its host `b` can't be reached; "
    b.listeners.stop()
    assert failure(a.api).startswith(output)
    announce(a.api, "b", "")
    assert failure(a.api).startswith(output)
    announce(a.api, "b", "nonsense")
    assert failure(a.api).startswith(output)
    with pytest.raises(InvalidStatus) as refusal:
        websocket(a.api, "exec?command=true")
    assert refusal.value.response.status_code == 503


def test_a_silent_host_is_given_up(hosts: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.api.fleet.links.CONNECT_SECONDS", 0.05)
    a, _ = hosts
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        announce(a.api, "b", f"127.0.0.1:{silent.getsockname()[1]}")
        assert "no answer in time" in failure(a.api)


@pytest.mark.parametrize("wrong", ["other authority", "other name", "expired"])
def test_a_host_with_a_wrong_certificate_is_refused(
    hosts: tuple[Place, Place], authority: Authority, tmp_path: Path, wrong: str
) -> None:
    a, b = hosts
    past = datetime.now(UTC) - timedelta(days=30)
    tls = {
        "other authority": lambda: Authority(tmp_path / "other").tls("b"),
        "other name": lambda: authority.tls("c"),
        "expired": lambda: FleetTls("b", authority.files("b", "expired", now=past, days=2)),
    }[wrong]()
    away = replace_listeners(b, tls)
    try:
        announce(a.api, "b", away.listeners.fleet_address)
        text = failure(a.api)
    finally:
        away.listeners.stop()
    assert "certificate is" in text
    assert not b.api.streams.asked


def replace_listeners(b: Place, tls: FleetTls) -> Place:
    """Start a host's listeners anew with other certificates."""
    b.listeners.stop()
    away = place(b.api, "b", tls)
    away.listeners.start()
    return away


def test_a_refused_certificate_of_ones_own_is_said_so(
    hosts: tuple[Place, Place], authority: Authority, tmp_path: Path
) -> None:
    a, b = hosts
    a.forwarding.links.tls = FleetTls("a", Authority(tmp_path / "other").files("a", trusts=authority.file))
    text = failure(a.api)
    assert "it refuses this host's certificate" in text
    with pytest.raises(InvalidStatus) as refusal:
        websocket(a.api, "exec?command=true")
    assert "refuses this host" in json.loads(refusal.value.response.body or b"")["message"]
    assert not b.api.streams.asked


def test_without_certificates_no_host_is_reached(hosts: tuple[Place, Place]) -> None:
    a, _ = hosts
    a.forwarding.links.tls = None
    assert "set fleet_cert_file" in failure(a.api)


def test_an_unknown_host_is_told_from_one_without_an_address(hosts: tuple[Place, Place]) -> None:
    a, _ = hosts
    bind(a.api, "zzz")
    answer = execute(a.api)
    assert (answer.status_code, "there is no host `zzz`" in answer.json()["message"]) == (409, True)
    assert "there is no host `zzz`" in str(execute_by_mcp(a.api))
    announce(a.api, "zzz", "")
    assert "its daemon reports no address; set fleet_address there" in failure(a.api)


@pytest.mark.parametrize("leaves", ["websocket.send", "websocket.close", ""])
def test_a_client_that_leaves_breaks_nothing_off(hosts: tuple[Place, Place], leaves: str) -> None:
    a, b = hosts
    uid = a.api.sandbox().uid
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append("websocket.connect")
            return {"type": "websocket.connect"}
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == leaves:
            raise OSError  # as the server does once the client's connection has ended

    async def relayed() -> None:
        scope = {"type": "websocket", "raw_path": f"{BASE}/exec".encode(), "query_string": b"command=true"}
        protocols = {"headers": [(b"host", b"paddock")], "subprotocols": ["v5.channel.k8s.io"]}
        request = relay.Outgoing("b", b.listeners.fleet_address, identity("a", uid)[1].encode(), "")
        requested = relay.Client({**scope, **protocols}, receive, send, None)
        try:
            assert await relay.pass_on(a.forwarding.links, request, requested)
        except Gone:
            assert leaves
        finally:
            requested.forget()

    logs = LogCapture()
    configure_plain_logs(logs)
    asyncio.run(relayed())
    assert [entry for entry in logs.entries if "broke off" in entry["event"]] == []
    assert sent[-1] == (leaves or "websocket.close")


# --- objects that changed meanwhile ---


class Stale:
    """Locations whose first answers are old."""

    def __init__(self, real: Locations, *stale: Location) -> None:
        self.host, self.name, self._real, self.stale = real.host, real.name, real, list(stale)

    def of(self, kind: str, namespace: str, name: str) -> Location | None:
        return self.stale.pop(0) if self.stale else self._real.of(kind, namespace, name)


@pytest.mark.parametrize("way", ["body", "stream", "websocket"])
def test_a_changed_object_is_looked_up_and_passed_on_again(hosts: tuple[Place, Place], way: str) -> None:
    a, b = hosts
    old = Location("old-uid", "b", b.listeners.fleet_address)
    a.forwarding.locations = Stale(a.forwarding.locations, old)  # type: ignore[assignment]
    if way == "body":
        assert execute(a.api).status_code == 200
    elif way == "stream":
        headers = {"Content-Type": "application/octet-stream"}
        with client(a.api) as created:
            sent = created.put(f"{BASE}/files", params={"path": "/tmp/x"}, content=iter([b"ab", b"c"]), headers=headers)
            assert sent.status_code == 200, sent.text
            assert created.get(f"{BASE}/files", params={"path": "/tmp/x"}).content == b"abc"
    else:
        with websocket(a.api, "exec?command=true", "v5.channel.k8s.io") as opened:
            assert json.loads([bytes(entry) for entry in opened][-1][1:])["status"] == "Success"
    assert len(b.api.streams.asked) == (way != "stream")


def test_an_object_that_is_nowhere_is_given_up(hosts: tuple[Place, Place]) -> None:
    a, b = hosts
    old = Location("old-uid", "b", b.listeners.fleet_address)
    a.forwarding.locations = Stale(a.forwarding.locations, old, old)  # type: ignore[assignment]
    assert "its host `b` says that it is not bound there" in failure(a.api)
    a.forwarding.locations.stale += [old]  # type: ignore[attr-defined]
    bind(a.api, "a")
    assert "its host changed meanwhile" in failure(a.api)
    assert not b.api.streams.asked


def test_a_421_of_a_program_is_not_tried_again(hosts: tuple[Place, Place]) -> None:
    a, b = (host.api for host in hosts)
    requested = []
    listener = socket.create_server(("127.0.0.1", 0))
    b.ports.listen(80, listener.getsockname()[1])

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            requested.append(sock.recv(65536))
            sock.sendall(f"HTTP/1.1 421 No\r\n{HEADER}: misdirected\r\ncontent-length: 2\r\n\r\nno".encode())

    thread = threading.Thread(target=serve)
    thread.start()
    with listener, client(a) as created:
        answer = created.get(f"{BASE}/proxy/80/x", headers={"X-Mine": "1"})
        thread.join()
    assert (answer.status_code, answer.text, len(requested)) == (421, "no", 1)
    assert HEADER not in answer.headers
    assert b"x-mine: 1" in requested[0].lower()
    assert HEADER.encode() not in requested[0].lower()
    assert b"x-forwarded-proto: http\r\n" in requested[0].lower()
    assert b"x-forwarded-host: paddock\r\n" in requested[0].lower()


# --- rotation ---


def test_renewed_certificates_are_used_and_bad_ones_are_not(
    hosts: tuple[Place, Place], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.api.fleet.tls._CHECK_SECONDS", 0.0)
    files = authority.files("a", "rotated")
    tls = FleetTls("a", files)
    first = tls.current()
    write_pair(files, new_certificate(authority.pair, "a"))
    second = tls.current()
    assert second is not first
    files.cert.write_bytes(b"half a certif")
    assert tls.current() is second
    write_pair(files, new_certificate(authority.pair, "another"))
    assert tls.current() is second
    write_pair(files, new_certificate(authority.pair, "a"))
    assert tls.current() is not second


def test_files_of_another_host_are_refused_at_the_start(authority: Authority) -> None:
    with pytest.raises(FleetFilesError, match="is for `b`, not for host `a`"):
        FleetTls("a", authority.files("b"))
    files = authority.files("a")
    files.key.chmod(0o644)
    with pytest.raises(FleetFilesError, match="chmod 0600"):
        FleetTls("a", files)


def ask_servers(api: ApiStack, path: str = "/mcp/servers") -> httpx.Response:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    accepts = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    with client(api) as created:
        return created.post(path, json=message, headers={**accepts, "mcp-method": "tools/list"})


def test_mcp_servers_are_asked_at_the_leading_host(hosts: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = hosts
    leads = {"a": True, "b": True}
    for name, entry in (("a", a), ("b", b)):
        monkeypatch.setattr(entry.api.services.mcp_servers, "are_kept", lambda name=name: leads[name])
    address = b.listeners.fleet_address
    locations: list[Location | None] = [Location("", "b", address)]
    monkeypatch.setattr(a.forwarding.locations, "leader", lambda: locations[0])
    passed = b.api.services.mcp_servers.list
    requested: list[str] = []
    monkeypatch.setattr(
        b.api.services.mcp_servers, "list", lambda namespace=None: requested.append("b") or passed(namespace)
    )
    assert ask_servers(a.api).status_code == 200
    assert not requested, "it leads itself"
    leads["a"] = False
    assert ask_servers(a.api).status_code == 200
    assert requested
    text = "/apis/paddock/v1alpha1/namespaces/default/mcpservers/none/mcp"
    answer = ask_servers(a.api, text)
    assert (answer.status_code, "`none`" in answer.json()["message"]) == (404, True), "the leading host says so"
    leads["b"] = False
    answer = ask_servers(a.api)
    assert (answer.status_code, "MCP servers: its host `b`" in answer.json()["message"]) == (503, True)
    locations[0] = None
    answer = ask_servers(a.api)
    assert (answer.status_code, "no host leads the others now" in answer.json()["message"]) == (503, True)
