"""A program that forks, as gunicorn, Celery and multiprocessing do: each process has connections of its own."""

import asyncio
import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from websockets.sync.server import ServerConnection, serve

from paddock import AsyncPaddock, Paddock
from paddock._client.channels import CLOSE_STDIN, PROTOCOL, STATUS
from tests.raw_client import Paddock as RawPaddock


class _Daemon(BaseHTTPRequestHandler):
    """Answers with the number of its connection, which it keeps open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        connection = str(self.client_address[1])
        body = json.dumps({"version": connection, "items": [{"connection": connection}], "metadata": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Daemon) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def in_child(work: Callable[[], object]) -> str:
    """Return the text of what `work` returns in a child of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, str(work()).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text_io_wrappers, _, _ = select.select([file], [], [], 20.0)
        answer = file.read() if text_io_wrappers else "it hangs"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return answer


def clients(address: str) -> dict[str, tuple[Callable[[], str], Callable[[], None]]]:
    """The connection that each client of the SDK uses for a request, and its end."""
    paddock, raw = Paddock(address), RawPaddock(address)
    proxy = paddock.sandbox("a").proxy(80)
    return {
        "Paddock": (paddock.version, paddock.close),
        "proxy": (lambda: str(proxy.get("/").json()["version"]), proxy.close),
        "connection": (lambda: str(raw.list("sandboxes")[0]["connection"]), raw.close),
    }


@pytest.mark.parametrize("name", ["Paddock", "proxy", "connection"])
def test_a_child_opens_connections_of_its_own(address: str, name: str) -> None:
    ask, close = clients(address)[name]
    before = ask()
    children = [in_child(lambda: f"{ask()} {ask()}").split() for _ in range(2)]
    assert [len(set(child)) for child in children] == [1, 1], "a child keeps its connection"
    assert len({before, children[0][0], children[1][0]}) == 3
    assert ask() == before, "the parent's goes on"
    close()


def test_a_child_of_a_child_has_its_own(address: str) -> None:
    with Paddock(address) as paddock:
        parts = in_child(lambda: f"{paddock.version()} {in_child(paddock.version)} {paddock.version()}").split()
        assert (parts[0], len({paddock.version(), *parts})) == (parts[2], 3)


def test_a_child_that_closes_its_client_leaves_its_parents(address: str) -> None:
    with Paddock(address) as paddock:
        before = paddock.version()
        in_child(paddock.close)
        assert paddock.version() == before


def test_threads_of_a_process_share_its_connections(address: str) -> None:
    with Paddock(address) as paddock, ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: paddock.version(), range(64)))) <= 8
        before = paddock.version()
        child = in_child(lambda: " ".join(ThreadPoolExecutor(4).map(lambda _: paddock.version(), range(16))))
        assert before not in child.split()
        assert len(child.split()) == 16


def test_an_asyncio_client_works_in_a_child(address: str) -> None:
    async def used(paddock: AsyncPaddock) -> str:
        return f"{await paddock.version()} {await paddock.version()}"

    async def parent() -> None:
        async with AsyncPaddock(address) as paddock:
            before = await used(paddock)
            child = in_child(lambda: asyncio.run(used(paddock)))
            assert [len(set(name.split())) for name in (before, child)] == [1, 1]
            assert child != before == await used(paddock)

    asyncio.run(parent())


def _echo(connection: ServerConnection) -> None:
    """Serve a command that answers each piece of its input, and ends with it."""
    for frame in connection:
        assert isinstance(frame, bytes)
        if frame == CLOSE_STDIN:
            connection.send(bytes((STATUS,)) + json.dumps({"status": "Success"}).encode())
            return
        connection.send(bytes((1,)) + frame[1:])


def test_a_childs_end_does_not_end_its_parents_command() -> None:
    with serve(_echo, "127.0.0.1", 0, subprotocols=[PROTOCOL], compression=None) as server:
        threading.Thread(target=server.serve_forever).start()
        with (
            Paddock(f"http://127.0.0.1:{server.socket.getsockname()[1]}") as paddock,
            paddock.sandbox("a").start(["cat"], stdin=True) as process,
        ):
            assert in_child(process.kill) == "None"
            assert "open another one after a fork" in in_child(lambda: process.write("from the child"))
            process.feed("from the parent")
            assert process.wait().stdout == "from the parent"
        server.shutdown()
