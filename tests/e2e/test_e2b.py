"""E2B's protocol on a real daemon at full-isolation, by plain HTTP: what its clients send, and what hostile ones do."""

import base64
import json
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import pytest

from controller.e2b.frames import END, frame
from controller.e2b.signature import Operation, SignedUrl, signature
from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif("PADDOCK_TEST_FOREIGN" in os.environ, reason="this protocol serves the sandboxes of its host"),
]
STREAM = "application/connect+json"


@dataclass
class Client:
    """A client of E2B with one API key."""

    http: httpx.Client
    key: str

    def control(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.http.request(method, path, headers={"X-API-KEY": self.key}, json=body, timeout=60)

    def create(self, **body: Any) -> "E2bSandbox":
        answer = self.control("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600, **body})
        assert answer.status_code == 201, answer.text
        return E2bSandbox(self.http, answer.json())


@dataclass
class E2bSandbox:
    """A sandbox as its client knows it."""

    http: httpx.Client
    shown: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.shown["sandboxID"])

    @property
    def headers(self) -> dict[str, str]:
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": self.shown["envdAccessToken"]}

    def call(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers={**self.headers, **headers})

    def start(self, line: str, seconds: float = 30.0) -> list[dict[str, Any]]:
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", line]}
        headers = {**self.headers, "content-type": STREAM, "connect-timeout-ms": str(seconds * 1000)}
        body = frame({"process": process, "stdin": False})
        answer = self.http.post("/process.Process/Start", content=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return frames_in(answer.content)

    def run(self, line: str) -> tuple[str, dict[str, Any]]:
        *events, end, last = self.start(line)
        assert last == {}, last
        texts = [event["event"]["data"]["stdout"] for event in events if "stdout" in event["event"].get("data", {})]
        return b"".join(map(base64.b64decode, texts)).decode(), end["event"]["end"]

    def write(self, path: str, data: bytes) -> httpx.Response:
        headers = {**self.headers, "content-type": "application/octet-stream"}
        return self.http.post("/files", params={"path": path}, content=data, headers=headers)

    def read(self, path: str) -> httpx.Response:
        return self.http.get("/files", params={"path": path}, headers=self.headers)


def frames_in(data: bytes) -> list[dict[str, Any]]:
    observed = []
    while data:
        flags, size = struct.unpack_from(">BI", data)
        observed.append(json.loads(data[5 : 5 + size]))
        data = data[5 + size :]
    assert flags == END
    return observed


def key_of(daemon: RunningDaemon, namespace: str = "default") -> str:
    config = str(daemon.folder / "config")
    daemon.environment["XDG_CONFIG_HOME"] = config
    printed = daemon.paddock("e2b", "env", "-n", namespace, "-o", "json").stdout
    assert daemon.paddock("e2b", "env", "-n", namespace, "-o", "json").stdout == printed  # not another key each time
    return str(json.loads(printed)["E2B_API_KEY"])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("e2b"), PADDOCK_E2B_ADDRESS="127.0.0.1:0") as started:
        yield started


@pytest.fixture(scope="module")
def client(daemon: RunningDaemon) -> Iterator[Client]:
    with httpx.Client(base_url=daemon.served()["e2b"]) as http:
        yield Client(http, key_of(daemon))


@pytest.fixture(scope="module")
def sandbox(client: Client) -> E2bSandbox:
    return client.create(metadata={"k": "a b"}, envVars={"FOO": "bar"})


def test_a_sandbox_runs_commands_and_keeps_files(client: Client, sandbox: E2bSandbox, daemon: RunningDaemon) -> None:
    assert sandbox.run("echo $FOO; pwd") == (
        "bar\n/home/user\n",
        {"exitCode": 0, "exited": True, "status": "exit status 0"},
    )
    assert sandbox.run("exit 3")[1]["exitCode"] == 3
    assert sandbox.write("a/b.txt", b"hello").json() == [
        {"path": "/home/user/a/b.txt", "name": "b.txt", "type": "file"}
    ]
    assert sandbox.read("a/b.txt").content == b"hello"
    assert sandbox.run("cat a/b.txt")[0] == "hello"
    assert sandbox.read("none").status_code == 404
    listed = sandbox.call("/filesystem.Filesystem/ListDir", {"path": ".", "depth": 2}).json()["entries"]
    assert {"/home/user/a", "/home/user/a/b.txt"} <= {entry["path"] for entry in listed}
    spec = json.dumps(daemon.get(sandbox.id))
    assert "bar" not in spec  # variables are neither in the store nor in the container
    assert "FOO" not in daemon.paddock("inspect", sandbox.id).stdout
    assert daemon.get(sandbox.id)["metadata"]["annotations"]["paddock.e2b/metadata"] == '{"k":"a b"}'
    assert daemon.condition(sandbox.id, "Secured")["status"] == "True"


def test_a_commands_time_ends_it(sandbox: E2bSandbox) -> None:
    *_, last = sandbox.start("sleep 31415", seconds=0.5)
    assert last["error"]["code"] == "deadline_exceeded"
    wait_for(
        "it is gone", lambda: "31415" not in sandbox.run("cat /proc/*/cmdline | tr '\\0' ' '")[0].replace("cat", "", 1)
    )


def test_leaving_does_not_end_a_command(sandbox: E2bSandbox) -> None:
    body = frame({"process": {"cmd": "/bin/bash", "args": ["-c", "sleep 1; echo late"]}, "stdin": False})
    headers = {**sandbox.headers, "content-type": STREAM}
    with sandbox.http.stream("POST", "/process.Process/Start", content=body, headers=headers) as answer:
        first = next(answer.iter_raw())
    pid = frames_in(first[:5] + first[5:] + frame({}, END))[0]["event"]["start"]["pid"]
    assert pid in [process["pid"] for process in sandbox.call("/process.Process/List", {}).json()["processes"]]
    joined = sandbox.http.post(
        "/process.Process/Connect", content=frame({"process": {"pid": pid}}), headers=headers, timeout=30
    )
    assert base64.b64decode(frames_in(joined.content)[1]["event"]["data"]["stdout"]) == b"late\n"
    response = sandbox.call("/process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_signed_urls_need_no_header_and_no_other(client: Client, sandbox: E2bSandbox) -> None:
    sandbox.write("signed", b"x")

    def url(operation: Operation, token: str, expires: str = "") -> dict[str, str]:
        signed = SignedUrl("signed", operation, "", "", expires)
        document = {"signature_expiration": expires} if expires else {}
        return {"path": "signed", "signature": signature(signed, token), **document}

    token = sandbox.shown["envdAccessToken"]
    soon = str(int(time.time()) + 60)
    assert client.http.get("/files", params=url("read", token, soon)).content == b"x"
    assert client.http.post("/files", params=url("write", token), files={"file": b"y"}).status_code == 200
    assert sandbox.read("signed").content == b"y"
    for params in (url("write", token), url("read", token, "1"), url("read", "f" * 108), {"path": "signed"}):
        assert client.http.get("/files", params=params).status_code == 401
    signed = url("read", token, soon)
    assert client.http.get("/files", params={**signed, "signature_expiration": "9999999999"}).status_code == 401
    foreign = {"Host": "evil.example"}
    assert client.http.get("/files", params={"path": "signed"}, headers=foreign).status_code == 421


def test_access_ends_at_the_namespace_and_with_the_key(
    daemon: RunningDaemon, client: Client, sandbox: E2bSandbox
) -> None:
    stranger = Client(client.http, key_of(daemon, "team-b"))
    assert stranger.control("GET", f"/sandboxes/{sandbox.id}").status_code == 404
    assert stranger.control("DELETE", f"/sandboxes/{sandbox.id}").status_code == 404
    created = stranger.create()
    crossed = E2bSandbox(client.http, {**sandbox.shown, "envdAccessToken": created.shown["envdAccessToken"]})
    assert crossed.read("a").status_code == 401
    body = frame({"process": {"cmd": "/bin/bash", "args": ["-c", "sleep 60"]}, "stdin": False})
    headers = {**created.headers, "content-type": STREAM}
    with client.http.stream("POST", "/process.Process/Start", content=body, headers=headers, timeout=30) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        token = next(
            line.split()[0] for line in daemon.paddock("token", "list").stdout.splitlines() if "e2b-team-b" in line
        )
        daemon.paddock("token", "revoke", token)
        start = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
        assert time.monotonic() - start < 20
    assert created.read("a").status_code == 401
    assert stranger.control("GET", "/v2/sandboxes").status_code == 401


def test_sandboxes_are_listed_paused_and_killed(daemon: RunningDaemon, client: Client, sandbox: E2bSandbox) -> None:
    created = client.create(metadata={"k": "other"}, timeout=60)
    filtered = client.control("GET", "/v2/sandboxes?metadata=k%3Da%252520b")
    assert [entry["sandboxID"] for entry in filtered.json()] == [sandbox.id]
    first = client.control("GET", "/v2/sandboxes?limit=1")
    second = client.control("GET", f"/v2/sandboxes?limit=1&nextToken={first.headers['x-next-token']}")
    assert {entry["sandboxID"] for page in (first, second) for entry in page.json()} == {sandbox.id, created.id}
    created.write("kept", b"1")
    assert client.control("POST", f"/sandboxes/{created.id}/pause", {}).status_code == 204
    assert client.control("POST", f"/sandboxes/{created.id}/pause", {}).status_code == 409
    paused = created.read("kept")
    assert (paused.status_code, "was not found" in paused.json()["message"]) == (502, True)
    assert client.control("GET", f"/sandboxes/{created.id}").json()["state"] == "paused"
    connected = client.control("POST", f"/v2/sandboxes/{created.id}/connect", {"timeout": 90})
    assert connected.status_code == 201
    assert created.read("kept").content == b"1"
    assert client.control("DELETE", f"/sandboxes/{created.id}").status_code == 204
    assert client.control("DELETE", f"/sandboxes/{created.id}").status_code == 404
    assert created.read("kept").status_code == 502


def test_a_time_out_deletes_the_sandbox(daemon: RunningDaemon, client: Client) -> None:
    created = client.create(timeout=600)
    assert client.control("POST", f"/sandboxes/{created.id}/timeout", {"timeout": 1}).status_code == 204
    wait_for("it is gone", lambda: client.control("GET", f"/sandboxes/{created.id}").status_code == 404)


def test_a_time_out_may_pause(client: Client) -> None:
    created = client.create(timeout=600, autoPause=True, autoResume={"enabled": True})

    def time_out() -> None:
        assert client.control("POST", f"/sandboxes/{created.id}/timeout", {"timeout": 1}).status_code == 204
        wait_for("it is paused", lambda: client.control("GET", f"/sandboxes/{created.id}").json()["state"] == "paused")

    time_out()
    assert created.http.get("/health", headers=created.headers).status_code == 502
    before = time.time()
    assert created.run("echo resumed")[0] == "resumed\n"
    after, shown = time.time(), client.control("GET", f"/sandboxes/{created.id}").json()
    assert before + 599 < datetime.fromisoformat(shown["endAt"]).timestamp() < after + 601
    time_out()
    connected = client.control("POST", f"/sandboxes/{created.id}/resume", {"timeout": 60})
    assert (connected.status_code, created.run("echo back")[0]) == (201, "back\n")
    assert client.control("POST", f"/sandboxes/{created.id}/pause", {"memory": False}).status_code == 204
    assert client.control("POST", f"/sandboxes/{created.id}/connect", {}).status_code == 201
    client.control("DELETE", f"/sandboxes/{created.id}")


def test_forks_and_snapshots_begin_with_the_files(client: Client, sandbox: E2bSandbox) -> None:
    sandbox.write("forked", b"1")
    [fork] = client.control("POST", f"/sandboxes/{sandbox.id}/fork", {"count": 1}).json()
    copy = E2bSandbox(client.http, fork["sandbox"])
    sandbox.write("forked", b"2")
    assert (copy.read("forked").content, copy.run("echo $FOO")[0]) == (b"1", "bar\n")
    snapshot = client.control("POST", f"/sandboxes/{sandbox.id}/snapshots", {}).json()["snapshotID"]
    assert snapshot in [item["snapshotID"] for item in client.control("GET", "/snapshots").json()]
    again = client.create(templateID=snapshot)
    assert again.read("forked").content == b"2"
    assert client.control("DELETE", f"/templates/{snapshot}").status_code == 409
    for copied in (copy, again):
        assert client.control("DELETE", f"/sandboxes/{copied.id}").status_code == 204
    wait_for("it is deleted", lambda: client.control("DELETE", f"/templates/{snapshot}").status_code == 204)


def test_code_keeps_its_state(client: Client, sandbox: E2bSandbox) -> None:
    def execute(code: str) -> list[dict[str, Any]]:
        headers = {"E2b-Sandbox-Id": sandbox.id, "E2b-Traffic-Access-Token": sandbox.shown["trafficAccessToken"]}
        answer = client.http.post("/execute", json={"code": code}, headers=headers, timeout=60)
        return [json.loads(line) for line in answer.text.splitlines()]

    execute("import os; x = 41")
    result, count, end = execute("x + 1")
    assert (result["text"], result["is_main_result"], count["execution_count"]) == ("42", True, 2)
    assert end == {"type": "end_of_execution"}
    assert execute("os.environ['FOO']")[0]["text"] == "bar"
    assert execute("1/0")[0]["name"] == "ZeroDivisionError"


def test_a_watched_folder_tells_each_change(sandbox: E2bSandbox) -> None:
    sandbox.run("mkdir -p watched/deep")
    request = {"path": "watched", "recursive": True}
    id_ = sandbox.call("/filesystem.Filesystem/CreateWatcher", request).json()["watcherId"]
    headers = {**sandbox.headers, "content-type": STREAM, "connect-timeout-ms": "1500"}
    with sandbox.http.stream(
        "POST", "/filesystem.Filesystem/WatchDir", content=frame(request), headers=headers
    ) as answer:
        pieces = answer.iter_raw()
        first = next(pieces)
        sandbox.run("cd watched; echo > deep/a; mv deep/a b; rm b")
        streamed = frames_in(first + b"".join(pieces))
    events: list[dict[str, str]] = []

    def is_complete() -> bool:
        events.extend(sandbox.call("/filesystem.Filesystem/GetWatcherEvents", {"watcherId": id_}).json()["events"])
        return {"name": "b", "type": "EVENT_TYPE_REMOVE"} in events

    wait_for("the events", is_complete)
    expected = [("deep/a", "CREATE"), ("deep/a", "WRITE"), ("deep/a", "RENAME"), ("b", "CREATE"), ("b", "REMOVE")]
    assert [(event["name"], event["type"].removeprefix("EVENT_TYPE_")) for event in events] == expected
    assert [message["filesystem"] for message in streamed if "filesystem" in message] == events
    assert streamed[-1]["error"]["code"] == "deadline_exceeded"
    assert sandbox.call("/filesystem.Filesystem/RemoveWatcher", {"watcherId": id_}).json() == {}


def test_a_programs_port_needs_the_access_token(client: Client, sandbox: E2bSandbox) -> None:
    serve = "python3 -m http.server 8123 --bind 127.0.0.1 --directory a >/dev/null 2>&1 & sleep 0.1"
    sandbox.run(f"setsid sh -c '{serve}'")
    host = f"8123-{sandbox.id}.{sandbox.shown['domain']}"
    document = {"Host": host, "X-Access-Token": sandbox.shown["envdAccessToken"]}

    def page() -> httpx.Response:
        return client.http.get("/b.txt", headers=document)

    wait_for("the program answers", lambda: page().status_code == 200)
    assert page().text == "hello"
    assert client.http.get("/b.txt", headers={"Host": host}).status_code == 401
    agent = {**document, "Host": f"8500-{sandbox.id}.{sandbox.shown['domain']}"}
    assert client.http.get("/", headers=agent).status_code == 403


def test_refusals_are_sentences(client: Client, sandbox: E2bSandbox) -> None:
    def refusal(**body: Any) -> tuple[int, str]:
        answer = client.control("POST", "/v2/sandboxes", {"templateID": "base", **body})
        return answer.status_code, answer.json()["message"]

    assert "not found; there are base, code-interpreter-v1" in refusal(templateID="none")[1]
    for name in ("mcp", "iam", "volumeMounts"):
        status, message = refusal(**{name: {"a": {}} if name != "volumeMounts" else [{}]})
        assert (status, name in message) == (400, True)
    assert "development" in refusal(network={"allowOut": ["pypi.org"]})[1]
    assert client.control("POST", "/v3/templates", {}).json()["code"] == 400
    user = sandbox.call(
        "/filesystem.Filesystem/Stat", {"path": "."}, Authorization="Basic " + base64.b64encode(b"root:").decode()
    )
    assert (user.status_code, user.json()["code"]) == (400, "invalid_argument")
    large = sandbox.http.post(
        "/process.Process/Start",
        content=struct.pack(">BI", 0, 1 << 30),
        headers={**sandbox.headers, "content-type": STREAM},
    )
    assert b"in parts" in large.content
    assert client.http.get("/sandboxes").status_code == 401


def test_use_is_in_the_audit_log(daemon: RunningDaemon, client: Client, sandbox: E2bSandbox) -> None:
    sandbox.run("true")
    entries = json.loads(daemon.paddock("audit", "-o", "json").stdout)["items"]
    run = next(entry for entry in reversed(entries) if (entry["verb"], entry["object"]["name"]) == ("exec", sandbox.id))
    assert run["actor"].startswith("token e2b-default-")
    assert run["detail"]["program"] == "/bin/bash"


def test_a_command_is_joined_after_a_killed_daemon(daemon: RunningDaemon, client: Client, sandbox: E2bSandbox) -> None:
    line = "echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 7"
    body = frame({"process": {"cmd": "/bin/bash", "args": ["-c", line]}, "stdin": False, "tag": "lasting"})
    headers = {**sandbox.headers, "content-type": STREAM}
    with sandbox.http.stream("POST", "/process.Process/Start", content=body, headers=headers) as answer:
        first = next(answer.iter_raw())
    pid = frames_in(first[: 5 + struct.unpack_from(">BI", first)[1]] + frame({}, END))[0]["event"]["start"]["pid"]
    daemon.kill()
    daemon.start_again()
    with httpx.Client(base_url=daemon.served()["e2b"], timeout=60) as http:
        again = E2bSandbox(http, sandbox.shown)
        # Until its agent is reached, the list is unavailable: never empty.
        (listed,) = wait_for("it is listed", lambda: again.call("/process.Process/List", {}).json().get("processes"))
        assert (listed["pid"], listed["tag"], listed["config"]["args"]) == (pid, "lasting", ["-c", line])
        again.run("touch go")
        joined = http.post("/process.Process/Connect", content=frame({"process": {"pid": pid}}), headers=headers)
        started, *events, end, last = frames_in(joined.content)
        assert (started["event"]["start"]["pid"], last) == (pid, {})
        texts = [base64.b64decode(event["event"]["data"]["stdout"]) for event in events]
        assert (b"".join(texts)[-6:], end["event"]["end"]["exitCode"]) == (b"after\n", 7)
        again.start("sleep 1000 & echo", seconds=0.1)
        assert again.call("/process.Process/List", {}).json()["processes"] == []
