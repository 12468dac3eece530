"""The agent with its own runtime in a busybox image: volume at /.paddock read-only, no network, `minimal` seccomp."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import finished
from tests.agent.containers import START, container, docker, runtime

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def volume() -> Iterator[str]:
    with runtime() as name:
        yield name


@pytest.fixture
def sandbox(volume: str) -> Iterator[str]:
    main = ["sh", "-c", "trap 'exit 9' TERM; sleep 9999 & wait"]  # it forks no more: a fork bomb must not end it
    with container(volume, {"callers": "Paddock", "project": "shop"}, main) as name:
        yield name


CLIENT = """
import socket, sys
s = socket.socket()
s.connect(("127.0.0.1", 8500))
s.sendall(sys.stdin.buffer.read())
while data := s.recv(65536):
    sys.stdout.buffer.write(data)
"""


def call(sandbox: str, user: str, path: str, body: Any = None) -> str:
    """Speak HTTP from within the sandbox's network, with the agent's own Python."""
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{'POST' if data else 'GET'} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    python = ["docker", "exec", "--interactive", "--user", user, sandbox, *START[:-1], "-c", CLIENT]
    done = subprocess.run(python, input=head.encode() + data, capture_output=True, check=True)
    return done.stdout.decode()


def tool(sandbox: str, name: str, **parameters: Any) -> dict[str, Any]:
    answer = call(sandbox, "0", "/mcp/execute", {"tool": name, "parameters": parameters})
    assert answer.startswith("HTTP/1.1 200 "), answer
    return json.loads(answer.partition("\r\n\r\n")[2])


def test_it_works_without_libc_network_and_writable_root(sandbox: str) -> None:
    finished(lambda: "2134" in docker("exec", sandbox, "cat", "/proc/net/tcp"))
    health = call(sandbox, "0", "/healthz")
    assert '"callers":"Paddock"' in health
    done = tool(sandbox, "exec", command="id -u; echo $MCP_PROJECT_ID; touch /.paddock/x")
    assert done["result"]["stdout"] == "20000\nshop\n"
    assert "Read-only file system" in done["result"]["stderr"]
    assert tool(sandbox, "file.write", path="a/b", content="x")["success"]
    assert "outside the workspace" in tool(sandbox, "file.read", path="/proc/1/environ")["error"]
    assert tool(sandbox, "exec", command="setsid sleep 99 & sleep 99", timeout_s=0.2)["error"] == "timeout of 0.2 s"


def test_its_own_memory_stays_below_six_mebibytes(sandbox: str) -> None:
    finished(lambda: "2134" in docker("exec", sandbox, "cat", "/proc/net/tcp"))
    for _ in range(5):
        assert tool(sandbox, "exec", command="true")["success"]
        assert tool(sandbox, "file.write", path="a", content="x" * 10_000)["success"]
        assert tool(sandbox, "file.read", path="a")["success"]
    lines = (line.split() for line in docker("top", sandbox, "-eo", "pid,args").splitlines())
    agents = [line[0] for line in lines if line[1].startswith("/.paddock/")]
    assert len(agents) == 1, "at rest it is one process"
    status = Path(f"/proc/{agents[0]}/status").read_text()
    (kibibytes,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")]
    assert kibibytes <= 6 * 1024


def test_the_sandboxs_own_uid_is_refused(sandbox: str) -> None:
    finished(lambda: "2134" in docker("exec", sandbox, "cat", "/proc/net/tcp"))
    assert call(sandbox, "20000", "/healthz").startswith("HTTP/1.1 403 ")


def test_code_inside_can_not_open_the_agents_descriptors(sandbox: str) -> None:
    finished(lambda: "2134" in docker("exec", sandbox, "cat", "/proc/net/tcp"))
    agent = "$(grep -l ^/.paddock/lib/ld.so /proc/[0-9]*/cmdline | sort | head -n 1 | cut -d / -f 3)"
    command = f"readlink /proc/$$/fd/0 && ls /proc/{agent}/fd; cat /proc/{agent}/environ; readlink /proc/{agent}/exe"
    done = tool(sandbox, "exec", command=command)["result"]
    assert done["stdout"] == "/dev/null\n"
    assert done["stderr"].count("Permission denied") == 2, done["stderr"]
    assert done["exitCode"] == 1


def test_a_fork_bomb_ends_with_its_exec(sandbox: str) -> None:
    finished(lambda: "2134" in docker("exec", sandbox, "cat", "/proc/net/tcp"))
    done = tool(sandbox, "exec", command="(f() { f | f & }; f); exec sleep 99", timeout_s=0.5)
    assert done["error"] == "timeout of 0.5 s"
    assert tool(sandbox, "exec", command="echo alive")["output"] == "alive\n"


def test_stopping_passes_the_signal_and_the_exit_code(sandbox: str) -> None:
    finished(lambda: "2134" in docker("exec", sandbox, "cat", "/proc/net/tcp"))
    docker("stop", sandbox)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", sandbox) == "9\n"
