"""The agent as a process on a free port, and clients that speak raw HTTP with it."""

import http.client
import json
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "images" / "agent" / "agent.py"
MODERN = "2026-07-28"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Running:
    """One agent and a kept connection to it."""

    def __init__(self, process: subprocess.Popen[str], root: Path, port: int) -> None:
        self.process = process
        self.root = root
        self.port = port
        self.connection = self.connect()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send one request over the kept connection; return its status and its JSON."""
        document = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        self.connection.request(method, path, data, document)
        answer = self.connection.getresponse()
        text = answer.read()
        self.headers = answer.headers
        return answer.status, json.loads(text) if text else None

    def tool(self, name: str, **parameters: Any) -> dict[str, Any]:
        status, answer = self.request("POST", "/mcp/execute", {"tool": name, "parameters": parameters})
        assert status == 200
        return answer

    def modern(self, method: str, params: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request of the stateless era; headers given replace those that fit the body."""
        meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
        params = {"_meta": meta, **(params or {})}
        fitting = {"mcp_protocol_version": MODERN, "mcp_method": method}
        name = params.get("name", params.get("uri"))
        if name:
            fitting["mcp_name"] = name
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return self.request("POST", "/mcp", body, **(fitting | headers))

    def legacy(self, method: str, params: Any = None, **headers: str) -> tuple[int, Any]:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
        return self.request("POST", "/mcp", body, **headers)

    def stop(self) -> int:
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


class HandLoop:
    """A loop whose timers run when told to."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.watched: dict[int, Callable[[], None]] = {}

    def after(self, seconds: float, callback: Callable[[], None]) -> tuple[float, Callable[[], None]]:
        self.timers.append((seconds, callback))
        return self.timers[-1]

    def cancel(self, timer: Any) -> None:
        self.timers = [entry for entry in self.timers if entry is not timer]

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        self.watched[fd] = callback

    def forget(self, fd: int) -> None:
        del self.watched[fd]

    def turn(self) -> None:
        """Run what the kernel reports and the timers of less than two seconds, until nothing is left."""
        while True:
            ready = select.select(list(self.watched), [], [], 0)[0]
            due = [timer for timer in self.timers if timer[0] < 2]
            if not ready and not due:
                return
            self.timers = [timer for timer in self.timers if timer[0] >= 2]
            for callback in [*(self.watched[fd] for fd in ready), *(callback for _, callback in due)]:
                callback()


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start agents; a port of 0 lets the kernel choose, and the agent says which."""
    started: list[Running] = []

    def make(*command: str, environment: dict[str, str] | None = None, **settings: Any) -> Running:
        root = tmp_path / "workspace"
        root.mkdir(exist_ok=True)
        settings = {"root": str(root), "callers": "Anyone", "port": 0, **settings}
        line = [sys.executable, "-I", "-S", str(PROGRAM), "--settings", json.dumps(settings)]
        process = subprocess.Popen(
            [*line, *(["--", *command] if command else [])],
            env=ENVIRONMENT | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        output = process.stderr.readline()
        assert "listening on" in output, output
        agent = Running(process, root, int(output.rpartition(":")[2]))
        started.append(agent)
        return agent

    yield make
    for agent in started:
        agent.connection.close()
        agent.process.kill()
        agent.process.communicate()


@pytest.fixture
def agent(start: Start) -> Running:
    return start()


def finished(condition: Callable[[], Any], times: int = 3000) -> Any:
    """Wait for a condition; each try asks the agent or the kernel again."""
    for _ in range(times):
        if observed := condition():
            return observed
        time.sleep(0.01)
    raise AssertionError("the condition never held")
