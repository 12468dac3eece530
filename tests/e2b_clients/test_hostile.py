"""Hostile clients of E2B's protocol: guesses, foreign tokens, malformed frames, endless streams."""

import json
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from controller.e2b.frames import frame
from tests.daemon import RunningDaemon, running, wait_for
from tests.e2b_clients.conftest import printed
from tests.e2e.test_e2b import STREAM, Client, E2bSandbox, frames_in

pytestmark = [pytest.mark.e2b, pytest.mark.docker, pytest.mark.timeout(600)]
GUESSES, AT_ONCE, AGENTS = 100_000, 500, 10
_LIST = "/process.Process/List"
LARGE = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: large}
spec:
  image: paddock/python:1
  agent: {}
  resources: {limits: {cpu: "1", memory: 1600Mi, pids: 1024}}
  workspace: {mountPath: /workspace, size: 1200Mi}
"""


@pytest.fixture(scope="module")
def client(daemon: RunningDaemon, variables: dict[str, str]) -> Iterator[Client]:
    daemon.apply(LARGE)
    with httpx.Client(base_url=variables["E2B_API_URL"]) as http:
        yield Client(http, variables["E2B_API_KEY"])


@pytest.fixture(scope="module")
def sandbox(client: Client) -> E2bSandbox:
    return client.create()


@contextmanager
def connected(sandbox: E2bSandbox, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    where = urlsplit(str(sandbox.http.base_url))
    assert where.hostname is not None
    with socket.create_connection((where.hostname, where.port), 30, (source, 0)) as opened:
        yield opened


def memory(daemon: RunningDaemon) -> int:
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def head(sandbox: E2bSandbox, path: str, **headers: str) -> bytes:
    lines = {"Host": "localhost", "Content-Type": STREAM, **sandbox.headers, **headers}
    content = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{content}\r\n".encode()


def answer(opened: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and (piece := opened.recv(65536)):
        data += piece
    return data


def test_guesses_open_nothing_beside_a_neighbour(sandbox: E2bSandbox, daemon: RunningDaemon) -> None:
    sandbox.write("secret", b"x")
    before, statuses = memory(daemon), {b"401": 0, b"429": 0}

    def guess(count: int) -> None:
        with connected(sandbox, "127.0.0.2") as opened:
            reader = opened.makefile("rb")
            for first in range(0, count, AT_ONCE):
                batch = (
                    f"GET /files?path=secret&signature=v1_{number:043d} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    for number in range(first, first + AT_ONCE)
                )
                threading.Thread(target=opened.sendall, args=("".join(batch).encode(),), daemon=True).start()
                for _ in range(AT_ONCE):
                    statuses[reader.readline().split()[1]] += 1
                    length = 0
                    while (line := reader.readline()) != b"\r\n":
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    reader.read(length)

    guessers = [threading.Thread(target=guess, args=(GUESSES // 2,)) for _ in range(2)]
    for guesser in guessers:
        guesser.start()
    seconds = []
    while any(thread.is_alive() for thread in guessers):
        start = time.monotonic()
        assert sandbox.read("secret").content == b"x"
        seconds.append(time.monotonic() - start)
        time.sleep(0.05)
    assert sum(statuses.values()) == GUESSES
    assert statuses[b"401"] <= 60 * 20  # sixty a minute from one address
    assert statistics.median(seconds) < 1
    assert memory(daemon) - before < 64 << 20


def test_one_name_in_two_namespaces(client: Client, daemon: RunningDaemon) -> None:
    spec = 'spec: {template: {image: "paddock/python:1", agent: {}}}'
    sandboxes = {}
    for namespace in ("team-a", "team-b"):
        daemon.apply(
            f"apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {{name: same, namespace: {namespace}}}\n{spec}\n"
        )
        daemon.paddock("wait", "-n", namespace, "--for=condition=Ready", "--timeout=60s", "sandbox/same")
        key = printed(daemon, namespace)["E2B_API_KEY"]
        sandboxes[namespace] = E2bSandbox(
            client.http, Client(client.http, key).control("POST", "/v2/sandboxes/same/connect", {}).json()
        )
        assert sandboxes[namespace].write("whose", namespace.encode()).status_code == 200
    assert {namespace: sandbox.read("whose").text for namespace, sandbox in sandboxes.items()} == {
        "team-a": "team-a",
        "team-b": "team-b",
    }
    assert client.control("POST", "/v2/sandboxes/same/connect", {}).status_code == 404
    assert client.http.get("/files?path=whose", headers={"E2b-Sandbox-Id": "same"}).status_code == 401
    for namespace in sandboxes:
        daemon.paddock("delete", "-n", namespace, "sandbox", "same")


def test_frames_may_come_byte_by_byte(sandbox: E2bSandbox) -> None:
    body = frame({"process": {"cmd": "/bin/echo", "args": ["hello"]}, "stdin": False})
    with connected(sandbox) as opened:
        opened.sendall(
            head(sandbox, "/process.Process/Start", **{"Content-Length": str(len(body)), "Connection": "close"})
        )
        for at in range(len(body)):
            opened.sendall(body[at : at + 1])
        received = b""
        while piece := opened.recv(65536):
            received += piece
    assert b"aGVsbG8K" in received


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">BI", 0, 0xFFFFFFFF) + b"x" * 100_000,
        struct.pack(">BI", 0, 5 << 20) + b"x" * (5 << 20),
        struct.pack(">BI", 2, 2) + b"{}",
        struct.pack(">BI", 128, 2) + b"{}",
        frame({"process": {"cmd": 1}}),
        frame({"process": {"cmd": "/bin/true", "envs": {"a": ["b"]}}}),
        frame({"process": {"cmd": "/bin/true"}, "pty": {"size": {"rows": 0, "cols": -1}}}),
        b"{" * 100_000,
    ],
)
def test_malformed_messages_are_refused(sandbox: E2bSandbox, daemon: RunningDaemon, body: bytes) -> None:
    before = memory(daemon)
    headers = {**sandbox.headers, "content-type": STREAM}
    for path in ("/process.Process/Start", "/process.Process/StreamInput", "/filesystem.Filesystem/WatchDir"):
        answered = sandbox.http.post(path, content=body, headers=headers)
        last = answered.json() if answered.status_code >= 400 else frames_in(answered.content)[-1]["error"]
        assert last["code"] in ("invalid_argument", "resource_exhausted"), (path, answered.status_code, last)
    assert memory(daemon) - before < 64 << 20


def test_trailers_and_broken_chunks_end_the_request(sandbox: E2bSandbox) -> None:
    chunked = {"Transfer-Encoding": "chunked"}
    body = frame({"process": {"pid": 1}})
    trailers = b"%x\r\n%b\r\n0\r\nGrpc-Status: 0\r\nX-Access-Token: other\r\n\r\n" % (len(body), body)
    with connected(sandbox) as opened:
        opened.sendall(head(sandbox, "/process.Process/Connect", **chunked) + trailers)
        assert b"not_found" in answer(opened) + opened.recv(65536)
    for broken in (b"zz\r\n", b"5\r\nabc", b"ffffffffffffffffff\r\n"):
        with connected(sandbox) as opened:
            opened.sendall(head(sandbox, "/process.Process/StreamInput", **chunked) + broken)
            opened.shutdown(socket.SHUT_WR)
            assert b" 200 " not in answer(opened).split(b"\r\n")[0] or b"error" in answer(opened)


def test_endless_streams_cost_no_memory(sandbox: E2bSandbox, daemon: RunningDaemon) -> None:
    before = memory(daemon)
    process = {"process": {"cmd": "/bin/sh", "args": ["-c", "yes; true"]}, "stdin": False}
    body = frame(process)
    with connected(sandbox) as silent:  # a client that reads nothing
        silent.sendall(head(sandbox, "/process.Process/Start", **{"Content-Length": str(len(body))}) + body)
        sleeper = {"process": {"cmd": "/bin/sleep", "args": ["600"]}, "stdin": True, "tag": "sleeper"}
        headers = {**sandbox.headers, "content-type": STREAM}
        with sandbox.http.stream("POST", "/process.Process/Start", content=frame(sleeper), headers=headers) as started:
            next(started.iter_raw())
            piece = frame({"data": {"process": {}, "input": {"stdin": "eHh4" * 8192}}})
            sent = 0
            with connected(sandbox) as endless:  # a client that never ends
                endless.settimeout(2)
                endless.sendall(head(sandbox, "/process.Process/StreamInput", **{"Transfer-Encoding": "chunked"}))
                first = frame({"start": {"process": {"tag": "sleeper"}}})
                endless.sendall(b"%x\r\n%b\r\n" % (len(first), first))
                try:
                    while sent < 256 << 20:
                        endless.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
                        sent += len(piece)
                except TimeoutError:
                    pass
            assert sent < 64 << 20
            assert memory(daemon) - before < 96 << 20
    for entry in sandbox.call("/process.Process/List", {}).json()["processes"]:
        sandbox.call("/process.Process/SendSignal", {"process": {"pid": entry["pid"]}, "signal": "SIGNAL_SIGKILL"})


def test_a_gibibyte_both_ways_in_flat_memory(client: Client, daemon: RunningDaemon) -> None:
    large, size = client.create(templateID="large"), 1 << 30
    large.write("warm", b"x" * (32 << 20))
    before, peak = memory(daemon), 0

    def pieces() -> Iterator[bytes]:
        nonlocal peak
        for _ in range(size >> 20):
            yield bytes(1 << 20)
            peak = max(peak, memory(daemon))

    headers = {**large.headers, "content-type": "application/octet-stream"}
    sent = large.http.post("/files", params={"path": "big"}, content=pieces(), headers=headers, timeout=300)
    assert sent.status_code == 200, sent.text
    assert large.run("stat -c %s big")[0] == f"{size}\n"
    count = 0
    with large.http.stream("GET", "/files", params={"path": "big"}, headers=large.headers, timeout=300) as received:
        for piece in received.iter_raw():
            count += len(piece)
            peak = max(peak, memory(daemon)) if count % (64 << 20) < len(piece) else peak
    assert count == size
    assert peak - before < 64 << 20
    client.control("DELETE", f"/sandboxes/{large.id}")


def test_a_hundred_commands_outlive_the_daemon(tmp_path: Path) -> None:
    settings = {
        "PADDOCK_E2B_ADDRESS": "127.0.0.1:0",
        "PADDOCK_EXEC_PER_SANDBOX": "128",
        "PADDOCK_REQUESTS_PER_SECOND": "0",
    }
    with running(tmp_path / "state", **settings) as daemon:
        daemon.apply(LARGE)
        variables = printed(daemon)
        with httpx.Client(base_url=variables["E2B_API_URL"], timeout=60) as http:
            sandbox = Client(http, variables["E2B_API_KEY"]).create(templateID="large")
            headers, pids = {**sandbox.headers, "content-type": STREAM}, []
            # Until its agent listens, commands go by the engine, and those can't be joined by the next daemon.
            wait_for("its agent answers", lambda: ", answers" in daemon.paddock("why", sandbox.id, "-o", "json").stdout)
            for number in range(100):  # the first by the agent, and those with stdin by the engine
                body = frame({"process": {"cmd": "/bin/sleep", "args": ["31415"]}, "stdin": number >= AGENTS})
                with http.stream("POST", "/process.Process/Start", content=body, headers=headers) as started:
                    first = b"".join([next(started.iter_raw())])
                    pids.append(json.loads(first[5 : 5 + struct.unpack_from(">BI", first)[1]])["event"]["start"]["pid"])
            assert len(sandbox.call(_LIST, {}).json()["processes"]) == 100
        daemon.kill()
        daemon.start_again()
        with httpx.Client(base_url=printed(daemon)["E2B_API_URL"], timeout=60) as http:
            again = E2bSandbox(http, sandbox.shown)
            listed = [process["pid"] for process in again.call(_LIST, {}).json()["processes"]]
            # A busy agent leaves a command to the engine, and those the next daemon adopts, and does not join.
            assert listed == [pid for pid in pids[:AGENTS] if pid in listed] != []
            for pid in listed:
                signal = {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"}
                assert again.call("/process.Process/SendSignal", signal).status_code == 200
            wait_for("they end", lambda: again.call(_LIST, {}).json()["processes"] == [])
            for pid in [pid for pid in pids if pid not in listed]:
                body = frame({"process": {"pid": pid}})
                joined = http.post("/process.Process/Connect", content=body, headers=headers)
                message = frames_in(joined.content)[-1]["error"]
                assert (message["code"], "paddock execs" in message["message"]) == ("not_found", True)
        adopted = 100 - len(listed)
        wait_for("they are adopted", lambda: daemon.paddock("execs", sandbox.id).stdout.count("Running") == adopted)
