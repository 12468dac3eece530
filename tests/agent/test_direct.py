"""`POST /exec`: the daemon's own commands stream byte by byte, and end with their caller."""

import base64
import json
import os
import struct
from pathlib import Path
from typing import Any

from tests.agent.conftest import ENVIRONMENT, Running, Start, finished


def ran(agent: Running, command: list[str], **more: Any) -> tuple[int, dict[int, bytes]]:
    """Run a command; return the status, and the bytes of each stream of the answer."""
    body = json.dumps({"command": command, **more}).encode()
    agent.connection.request("POST", "/exec", body, {"content-type": "application/json"})
    answer = agent.connection.getresponse()
    remaining, streams = answer.read(), dict[int, bytes]()
    while answer.status == 200 and remaining:
        kind, length = struct.unpack(">BxxxL", remaining[:8])
        streams[kind] = streams.get(kind, b"") + remaining[8 : 8 + length]
        remaining = remaining[8 + length :]
    return answer.status, streams if answer.status == 200 else json.loads(remaining)


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_bytes_code_and_input_pass_unchanged(agent: Running) -> None:
    data = bytes(range(256)) * 2000
    script = "cat; printf '\\377' >&2; exit 3"
    status, streams = ran(agent, ["sh", "-c", script], stdin=base64.b64encode(data).decode())
    assert (status, streams) == (200, {1: data, 2: b"\xff", 3: b"3"})
    assert ran(agent, ["sh", "-c", "kill -9 $$"])[1] == {3: b"137"}
    # More than any buffer between: the command waits for its reader.
    _, streams = ran(agent, ["head", "-c", "8000000", "/dev/zero"])
    assert len(streams[1]) == 8000000


def test_environment_is_the_sandboxes_own(agent: Running) -> None:
    _, streams = ran(agent, ["env"], env={"A": "b"})
    assert dict(line.split("=", 1) for line in streams[1].decode().splitlines()) == {**ENVIRONMENT, "A": "b"}
    assert ran(agent, ["pwd"], cwd="/usr")[1][1] == b"/usr\n"


def test_what_can_not_start_is_refused_with_errno(agent: Running) -> None:
    assert ran(agent, ["no-such-program"])[0] == 422
    assert ran(agent, ["no-such-program"])[1]["errno"] == 2
    assert ran(agent, ["true"], cwd="/no/such")[0] == 422
    for body in (b"[]", b"{", b'{"command": []}', b'{"command": ["true"], "env": 1}', b"[" * 10000):
        assert agent.request("POST", "/exec", body)[0] == 400
    assert ran(agent, ["true"])[0] == 200


def test_answer_ends_with_the_last_holder_of_output(agent: Running) -> None:
    _, streams = ran(agent, ["sh", "-c", "(sleep 0.2; echo late) & echo early"])
    assert streams == {1: b"early\nlate\n", 3: b"0"}
    # What does not hold the output lives on, as after the engine's exec.
    _, streams = ran(agent, ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"])
    remaining = int(streams[1])
    os.kill(remaining, 0)
    os.kill(remaining, 9)


def test_disconnecting_kills_every_descendant(start: Start) -> None:
    agent = start(max_execs=1)
    script = "setsid env -i sleep 12345 & echo $!; exec sleep 12345"
    sock = agent.socket()
    body = json.dumps({"command": ["sh", "-c", script]}).encode()
    sock.sendall(b"POST /exec HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n")
    sock.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
    answer = b""
    while b"\n" not in answer.partition(b"\r\n\r\n")[2].partition(b"\r\n")[2][8:]:
        answer += sock.recv(4096)
    child = int(answer.partition(b"\r\n\r\n")[2].partition(b"\r\n")[2][8:].split()[0])
    assert ran(agent, ["true"])[0] == 503  # the one place is taken
    sock.close()
    finished(lambda: not alive(child))
    finished(lambda: ran(agent, ["true"])[0] == 200)


def test_kill_leaves_nobody_and_keeps_the_output(agent: Running) -> None:
    script = "setsid env -i sleep 12346 >/dev/null 2>&1 & echo $!; exec sleep 12346"
    body = json.dumps({"command": ["sh", "-c", script], "id": "one"}).encode()
    agent.connection.request("POST", "/exec", body, {"content-type": "application/json"})
    answer = agent.connection.getresponse()
    child = int(answer.read1(100)[8:])
    connection, end = agent.connect(), b""
    for name, status in (("one", 200), ("one", 404), ("", 404)):
        connection.request("POST", "/exec/kill", json.dumps({"id": name}), {"content-type": "application/json"})
        got = connection.getresponse()
        got.read()
        assert got.status == status
        assert not alive(child)
        end = answer.read() or end
    assert end[8:] == b"137"
    connection.close()


def frames(data: bytes) -> dict[int, bytes]:
    """Return the bytes of each stream in the frames of an answer."""
    streams: dict[int, bytes] = {}
    while data:
        kind, length = struct.unpack(">BxxxL", data[:8])
        streams[kind] = streams.get(kind, b"") + data[8 : 8 + length]
        data = data[8 + length :]
    return streams


def begun(agent: Running, script: str, name: str, keep: Any) -> None:
    """Start a command, read the first of its output, and leave it."""
    connection = agent.connect()
    body = json.dumps({"command": ["sh", "-c", f"echo begun; {script}"], "id": name, "keep": keep})
    connection.request("POST", "/exec", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.read1(100)[8:].startswith(b"begun\n")
    connection.sock.shutdown(2)
    connection.close()


def orphans(agent: Running) -> dict[str, Any]:
    return {entry["id"]: (entry["label"], entry["running"]) for entry in agent.request("GET", "/exec")[1]["commands"]}


def joined(agent: Running, name: str) -> tuple[int, dict[int, bytes]]:
    connection = agent.connect()
    connection.request("POST", "/exec/join", json.dumps({"id": name}), {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, frames(data) if answer.status == 200 else {}


def test_a_kept_command_outlives_its_caller(agent: Running) -> None:
    go = agent.root / "go"
    begun(agent, f"until [ -e {go} ]; do sleep 0.01; done; echo more; exit 3", "one", {"label": "first", "seconds": 0})
    finished(lambda: orphans(agent) == {"one": ("first", True)})
    go.touch()
    finished(lambda: orphans(agent) == {"one": ("first", False)})
    assert joined(agent, "one") == (200, {1: b"more\n", 3: b"3"})
    assert joined(agent, "one")[0] == 404
    assert orphans(agent) == {}


def test_a_kept_command_has_its_end_and_bounds(agent: Running) -> None:
    begun(agent, "yes", "endless", {"label": "", "seconds": 0.3})
    finished(lambda: orphans(agent) == {"endless": ("", False)})
    _, streams = joined(agent, "endless")
    assert streams[3] == b"137"
    assert 0 < len(streams[1]) <= 256 * 1024
    begun(agent, "sleep 1000", "killed", {"label": "", "seconds": 0})
    finished(lambda: orphans(agent) == {"killed": ("", True)})
    assert agent.request("POST", "/exec/kill", {"id": "killed"})[0] == 200
    assert agent.request("POST", "/exec/kill", {"id": "killed"})[0] == 200
    assert orphans(agent) == {}
    for keep in (1, {"label": 1, "seconds": 0}, {"label": "", "seconds": -1}):
        assert ran(agent, ["true"], keep=keep)[0] == 400
