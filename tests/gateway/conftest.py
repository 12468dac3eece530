"""A gateway's process as the daemon starts it, with a scripted provider behind it and listeners of the test's own."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from controller.gateway.config import HOST, Access, Config, Target, User, to_json
from controller.processes.channel import Message
from controller.processes.child import Child
from tests.daemon import wait_for
from tests.gateway import scripted_model

KEY = "sk-canary-5d1c9e"


@dataclass
class Answered:
    """An answer: its status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"]["message"])


@dataclass
class GatewayProcess:
    """One process. `targets` and `users` are what `configure` sends; `messages` what came from it."""

    provider: int
    targets: dict[str, Target] = field(default_factory=dict)
    users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    answer: Callable[[Message], Message] = lambda _: {}
    sockets: dict[str, socket.socket] = field(default_factory=dict)
    child: Child | None = None

    def start(self, used: dict[str, Any] | None = None) -> None:
        event = threading.Event()
        self.messages.clear()
        self.child = Child("controller.gateway.process", "model gateway", self._take, lambda _: event.set())
        wait_for("the process", lambda: any(message["type"] == "ready" for message in self.messages), 60)
        self.configure(used)
        for name in self.sockets:
            self._hand_over(name)

    def _take(self, child: Child, message: Message) -> None:
        self.messages.append(message)
        if message["type"] in ("open", "authorize"):
            answer = self.answer(message)
            connected = answer.pop("socket", None)
            child.send({"type": "answer", "number": message["number"], **answer}, [connected] if connected else [])

    def target(self, name: str, **given: Any) -> Target:
        base = f"http://127.0.0.1:{self.provider}/v1"
        target = Target(id=name, namespace="default", name=name, form="OpenAI", models=("*",), base=base, key=KEY)
        created = replace(target, **{"private": True, **given})
        self.targets[name] = created
        return created

    def configure(self, used: dict[str, Any] | None = None) -> None:
        access = {name: Access(User("default", name), user) for name, user in self.users.items()}
        config = Config(self.targets, {**access, HOST: Access(User("", "", "Token"), ())})
        message = {"type": "config", "config": to_json(config), "listening": sorted(self.sockets)}
        assert self.child is not None
        self.child.send({**message, **({"used": used} if used is not None else {})})
        self._wait_for_configuration()

    def _wait_for_configuration(self) -> None:
        """Wait until the process has taken what it was sent: it answers a connection that was sent after it."""
        assert self.child is not None
        own_connection, connection = socket.socketpair()
        with own_connection:
            with connection:
                message = {"type": "connect", "user": asdict(User("default", "configured")), "target": ""}
                self.child.send(message, [connection.fileno()])
            own_connection.settimeout(60)
            own_connection.sendall(b"GET /configured HTTP/1.1\r\nHost: gateway\r\n\r\n")
            assert own_connection.recv(1)

    def listen(self, name: str, *targets: str) -> None:
        """Give a sandbox a listener, and let it use these sources."""
        if name != HOST:
            self.users[name] = targets
        server = socket.create_server(("127.0.0.1", 0))
        self.sockets[name] = server
        if self.child is not None:
            self.configure()
            self._hand_over(name)

    def _hand_over(self, name: str) -> None:
        assert self.child is not None
        message = {"type": "listen", "listener": name, "host": name == HOST}
        self.child.send(message, [self.sockets[name].fileno()])

    def connect(self, _namespace: str, source: str, user: User, _seconds: float) -> tuple[socket.socket, Target]:
        """Open a connection for an agent stage, as the supervisor does."""
        own_connection, connection = socket.socketpair()
        assert self.child is not None
        with connection:
            self.child.send({"type": "connect", "user": asdict(user), "target": source}, [connection.fileno()])
        return own_connection, self.targets[source]

    def connection(self, name: str) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.sockets[name].getsockname()[1], timeout=60)

    def post(self, name: str, route: str, body: Any, **headers: str) -> Answered:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask(name, "POST", route, data, **headers)

    def ask(self, name: str, method: str, path: str, body: bytes | None = None, **headers: str) -> Answered:
        connection = self.connection(name)
        try:
            connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
            answer = connection.getresponse()
            return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def chat(self, name: str, model: str = "tiny", **more: Any) -> Answered:
        return self.post(name, "/v1/chat/completions", {"model": model, **more})

    def stream(self, name: str, model: str) -> "Stream":
        return Stream(self.connection(name), {"model": model})

    def state(self, target: str) -> str:
        observed = [message for message in self.messages if message["type"] == "state" and message["target"] == target]
        return str(observed[-1]["reason"]) if observed else ""

    def uses(self, user: str) -> dict[str, int]:
        document: dict[str, int] = {}
        for message in list(self.messages):
            for use in message.get("uses", ()):
                if use["user"]["name"] == user:
                    for name, count in (
                        *use["outcomes"].items(),
                        ("in", use["tokensIn"]),
                        ("out", use["tokensOut"]),
                    ):
                        document[name] = document.get(name, 0) + count
        return document


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, connection: http.client.HTTPConnection, body: Any) -> None:
        self._connection = connection
        connection.request("POST", "/v1/chat/completions", json.dumps({"stream": True, **body}))
        self.answer = connection.getresponse()

    def part(self) -> bytes:
        return self.answer.read1()

    def rest(self) -> tuple[bytes, bool]:
        """Return the rest, and whether it came to its end."""
        observed = b""
        try:
            while read1 := self.answer.read1():
                observed += read1
        except (http.client.IncompleteRead, ConnectionError):
            return observed, False
        return observed, True

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@pytest.fixture(scope="module")
def provider() -> Iterator[int]:
    scripted_model.KEY = KEY
    server = scripted_model.Server(("127.0.0.1", 0), scripted_model.Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def gateway(provider: int) -> Iterator[GatewayProcess]:
    """One process for a module; each test names its own sandboxes and sources."""
    created = GatewayProcess(provider)
    created.start()
    yield created
    assert created.child is not None
    created.child.stop()
    for connection in created.sockets.values():
        connection.close()
