"""Stdio servers as programs of a test, in the place of processes in sandboxes."""

import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from controller.kinds.common.chunk import Chunk
from controller.service.exec.activity import TrackedStream
from tests.helpers_api import ApiStack


class Program:
    """A server's process: `answer` returns the chunks that a message to it causes. It ends at an `exit` chunk."""

    def __init__(self, answer: Callable[[dict[str, Any]], Iterable[Chunk]]) -> None:
        self.read: list[dict[str, Any]] = []
        self.done = threading.Event()
        self._answer = answer
        self._chunks: queue.Queue[Chunk | None] = queue.Queue()

    def start(self, stdin: Iterator[bytes]) -> TrackedStream:
        threading.Thread(target=self._run, args=(stdin,), daemon=True).start()
        return TrackedStream(iter(self._chunks.get, None), lambda: self._chunks.put(None))

    def end(self) -> None:
        self._put(Chunk("exit", b"0"))

    def _put(self, chunk: Chunk) -> None:
        self._chunks.put(chunk)
        if chunk.stream == "exit":
            self._chunks.put(None)

    def _run(self, stdin: Iterator[bytes]) -> None:
        for line in stdin:
            self.read.append(json.loads(line))
            for chunk in self._answer(self.read[-1]):
                self._put(chunk)
        self.done.set()


def out(*messages: dict[str, Any]) -> Chunk:
    return Chunk("stdout", b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages))


class Servers:
    """The use-cases of an API stack, where each start runs a program of the test."""

    def __init__(self, api: ApiStack, make: Callable[[], Program], *secrets: str) -> None:
        self._real, self._make, self._secrets = api.services.mcp_servers, make, secrets
        self.starts = 0

    def secret_values(self, _server: Any) -> tuple[str, ...]:
        return self._secrets

    def start(self, _server: Any, _sandbox: Any, stdin: Iterator[bytes]) -> TrackedStream:
        self.starts += 1
        return self._make().start(stdin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def server(api: ApiStack, **spec: Any) -> Any:
    body = {"command": "python3", **spec}
    meta = {"apiVersion": "paddock/v1alpha1", "kind": "MCPServer", "metadata": {"name": "one"}, "spec": body}
    api.apply(json.dumps(meta))
    return api.services.mcp_servers.get("default", "one")
