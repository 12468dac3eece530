"""Load and bad clients: rate limits, deadlines, and no leaks."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from websockets.exceptions import InvalidStatus
from websockets.sync.client import unix_connect

from controller.api import listeners as api_doors
from controller.api.app import create_app
from controller.api.common.byte_budget import ByteBudget
from controller.api.listeners import ListenerRules, Listeners
from controller.api.middleware import authenticate
from controller.api.middleware.limits import BodyLimit
from controller.api.middleware.load import LoadLimits
from controller.api.server import request_deadline
from controller.api.server.peer_credentials import HOST_NAMES
from controller.kinds.access.access import Caller, Grant
from controller.service.access.access import acting
from tests.api.listeners import API, asked_as, client, token
from tests.api.listeners import opened as opened_as_the_daemon_does
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack

SANDBOX = f"{API}/namespaces/default/sandboxes/quickstart"
ALL = f"{API}/namespaces/default/sandboxes"


@contextmanager
def opened(api: ApiStack, load: LoadLimits, ready: Callable[[], Any] = lambda: ()) -> Iterator[None]:
    def make(who: Any) -> Any:
        return create_app(api.services, ready=ready, meter=api.meter, who=who, load=load)

    listeners = Listeners(ListenerRules(api.socket), api.store.tokens, api.clock, make)
    listeners.start()
    try:
        yield
    finally:
        listeners.stop()


def raw(api: ApiStack) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(60)
    connection.connect(str(api.socket))
    return connection


def to_the_end(link: socket.socket) -> bytes:
    return b"".join(iter(lambda: link.recv(1 << 16), b""))


def test_request_rate_is_limited_with_retry_after(api: ApiStack) -> None:
    api.apply()
    with opened(api, LoadLimits(per_second=0.01)), client(api, token(api, "viewer", name="ci")) as ci:
        assert ci.get(SANDBOX).status_code == 200
        response = ci.get(SANDBOX)
        assert (response.status_code, response.json()["reason"]) == (429, "TooManyRequests")
        assert "token ci sends over 0.01 requests a second (requests_per_second)" in response.json()["message"]
        assert 95 < int(response.headers["Retry-After"]) == response.json()["details"]["retryAfterSeconds"] <= 100
        headers = {"Authorization": ci.headers["Authorization"]}
        with pytest.raises(InvalidStatus, match="429"):
            unix_connect(str(api.socket), uri=f"ws://paddock{SANDBOX}/exec?command=a", additional_headers=headers)
        assert ci.get("/healthz").status_code == 200
        with client(api) as root:
            assert root.get(SANDBOX).status_code == 200


def test_requests_in_flight_are_limited(api: ApiStack) -> None:
    semaphore, go_on = threading.Semaphore(0), threading.Event()

    def ready() -> Any:
        semaphore.release()
        assert go_on.wait(60)
        return ()

    def ask() -> int:
        with client(api) as created:
            return created.get("/readyz", timeout=60).status_code

    api.apply()
    with opened(api, LoadLimits(in_flight=2), ready), ThreadPoolExecutor(2) as pool, client(api) as created_client:
        submits = [pool.submit(ask) for _ in range(2)]
        for _ in submits:
            assert semaphore.acquire(timeout=60)
        response = created_client.get(SANDBOX)
        assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
        with created_client.stream("GET", ALL, params={"watch": "1"}) as watch:
            assert watch.status_code == 200, "what lasts has bounds of its own"
        go_on.set()
        assert [submit.result() for submit in submits] == [200, 200]
        wait_for("there is room again", lambda: created_client.get(SANDBOX).status_code == 200)


def test_one_caller_has_a_share_of_what_may_last(api: ApiStack) -> None:
    load = LoadLimits(share=0.5, lasting={"watches": 6, "file operations": 2})
    api.apply()
    with opened(api, load), client(api, token(api, "user", name="ci")) as ci, ExitStack() as stack:
        monitor = stack.enter_context(client(api))
        for _ in range(3):
            assert stack.enter_context(ci.stream("GET", ALL, params={"watch": "1"})).status_code == 200
        response = ci.get(ALL, params={"watch": "true"})
        assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
        assert "token ci has 3 watches in flight" in response.json()["message"]
        assert "caller_share is 0.5" in response.json()["message"]
        assert ci.get(SANDBOX).status_code == 200, "what does not last has a share of its own"
        with monitor.stream("GET", ALL, params={"watch": "1"}) as watch:
            assert watch.status_code == 200, "there is room for others"
    with opened(api, load), client(api, token(api, "user", name="ci-2")) as ci:
        for _ in range(5):  # what has ended is not counted
            assert ci.get(f"{SANDBOX}/files", params={"path": "/tmp/x"}).status_code != 429


def test_one_caller_has_a_share_of_requests(api: ApiStack) -> None:
    semaphore, go_on = threading.Semaphore(0), threading.Event()

    def ready() -> Any:
        semaphore.release()
        assert go_on.wait(60)
        return ()

    api.apply()
    with opened(api, LoadLimits(in_flight=8, share=0.25), ready), ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        ci, root = (stack.enter_context(client(api, text)) for text in (token(api, "viewer", name="ci"), ""))
        submits = [pool.submit(ci.get, "/readyz", timeout=60) for _ in range(2)]
        for _ in submits:
            assert semaphore.acquire(timeout=60)
        response = ci.get(SANDBOX)
        assert (response.status_code, response.json()["reason"]) == (429, "TooManyRequests")
        assert "token ci has 2 requests in flight" in response.json()["message"]
        assert root.get(SANDBOX).status_code == 200
        go_on.set()
        assert [submit.result().status_code for submit in submits] == [200, 200]


def test_slow_user_lookup_delays_only_that_user(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hanging user directory delays only the users it has to name."""
    hangs, semaphore, go_on = threading.Event(), threading.Semaphore(0), threading.Event()

    def user(_uid: int) -> str:
        semaphore.release()
        assert not hangs.is_set() or go_on.wait(60)
        return "root"

    monkeypatch.setattr(api_doors, "HOST_NAMES", replace(HOST_NAMES, user=user))
    api.apply()
    with opened(api, LoadLimits()), client(api) as created:
        assert [created.get(SANDBOX).status_code for _ in range(3)] == [200] * 3
    assert semaphore.acquire(blocking=False)
    assert not semaphore.acquire(blocking=False), "it is asked once in some seconds"
    monkeypatch.setattr(authenticate, "_KNOWN_SECONDS", 0.0)
    hangs.set()
    with opened(api, LoadLimits()), ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        enter_context, ci, second = (stack.enter_context(client(api, text)) for text in ("", token(api, "viewer"), ""))
        waits = pool.submit(enter_context.get, SANDBOX, timeout=60)
        assert semaphore.acquire(timeout=60)
        assert [ci.get(SANDBOX).status_code, second.get("/healthz").status_code] == [200, 200]
        assert not waits.done()
        go_on.set()
        assert waits.result().status_code == 200


async def _reads_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass


def test_large_bodies_over_budget_get_429() -> None:
    async def ask(limit: BodyLimit, size: int) -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"x" * size}

        await limit({"type": "http", "path": "/", "headers": []}, receive, receive)

    limit = BodyLimit(_reads_all, budget=ByteBudget(100))
    for _ in range(3):
        asyncio.run(ask(limit, 60))  # each gives back what it took
    with pytest.raises(HTTPException) as refusal:
        asyncio.run(ask(limit, 101))
    assert (refusal.value.status_code, refusal.value.headers) == (429, {"Retry-After": "1"})


def test_bodies_of_one_caller_fill_only_its_share() -> None:
    async def ask(name: str, limit: BodyLimit, wait: asyncio.Event) -> None:
        async def receive() -> Any:
            await wait.wait()
            return {"type": "http.request", "body": b"x" * 40}

        with acting(Caller(name, "", (Grant.model_validate({"role": "user", "namespaces": ["*"]}),))):
            await limit({"type": "http", "path": "/", "headers": []}, receive, receive)

    async def hold(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await over.wait()

    async def run() -> None:
        limit, now = BodyLimit(hold, budget=ByteBudget(100, share=0.5)), asyncio.Event()
        now.set()
        first = asyncio.create_task(ask("attacker", limit, now))
        await asyncio.sleep(0)
        with pytest.raises(HTTPException):
            await ask("attacker", limit, now)
        neighbour = asyncio.create_task(ask("neighbour", limit, now))
        await asyncio.sleep(0)
        over.set()
        await asyncio.gather(first, neighbour)

    over = asyncio.Event()
    asyncio.run(run())


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HT",
        b"POST /x HTTP/1.1\r\nHost: paddock\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\nab",
    ],
)
def test_incomplete_request_gets_408(served: ApiStack, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 1.5)  # in which a loaded machine has sent that much
    monkeypatch.setattr(request_deadline, "STALL_SECONDS", 1.5)
    with raw(served) as link:
        link.sendall(sent.replace(b"/x", f"{API}/apply".encode()))
        end = to_the_end(link)
    assert b" 408 " in end
    assert b"was not complete in time" in end


def test_second_request_has_the_same_deadline(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with raw(served) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: paddock\r\n\r\n")
        assert b" 200 " in link.recv(1 << 16)
        monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 1.5)
        link.sendall(b"GET /healthz HT")
        assert b" 408 " in to_the_end(link)


def test_what_is_slow_but_comes_is_served(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 60.0)
    with raw(served) as link:
        for entry in (b"GET /hea", b"lthz HT", b"TP/1.1\r\nHost: paddock\r\n", b"Connection: close\r\n\r\n"):
            link.sendall(entry)
        assert b" 200 " in to_the_end(link)


def test_connections_over_limit_get_429(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_deadline, "MOST_CONNECTIONS", 3)
    with ExitStack() as stack:
        for _ in range(3):
            link = stack.enter_context(raw(served))
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: paddock\r\n\r\n")
            assert b" 200 " in link.recv(1 << 16)
        with client(served) as created:
            healthz = created.get("/healthz")
            assert (healthz.status_code, healthz.headers["Retry-After"]) == (429, "1")
            assert "connections are open on this listener" in healthz.json()["message"]
        with pytest.raises(InvalidStatus, match="429"):
            unix_connect(str(served.socket), uri=f"ws://paddock{SANDBOX}/exec?command=a")
    with client(served) as created:
        wait_for("there is room again", lambda: created.get("/healthz").status_code == 200)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_one_user_has_a_share_of_connections(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_deadline, "MOST_CONNECTIONS", 4)
    with opened_as_the_daemon_does(api, share=0.5), ExitStack() as stack:
        for _ in range(2):
            link = stack.enter_context(raw(api))
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: paddock\r\n\r\n")
            assert b" 200 " in link.recv(1 << 16)
        with client(api) as created:
            healthz = created.get("/healthz")
        assert (healthz.status_code, healthz.headers["Retry-After"]) == (429, "1")
        assert "caller_share" in healthz.json()["message"]
        api.socket.chmod(0o666)
        assert asked_as(api, 4243, 4243, f"{API}/auth/whoami")[0] == 403, "there is room for others"


GARBAGE = (
    b"",
    b"\x00\xff" * 500,
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: paddock\r\n\r\n",
    b"POST /apis/paddock/v1alpha1/apply HTTP/1.1\r\nHost: paddock\r\nContent-Length: -1\r\n\r\n",
    b"POST /apis/paddock/v1alpha1/apply HTTP/1.1\r\nHost: paddock\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /apis/paddock/v1alpha1/apply HTTP/1.1\r\nHost: paddock\r\nContent-Length: 5000\r\n\r\n{",
    b"GET /apis/paddock/v1alpha1/namespaces/default/sandboxes?watch=1 HTTP/1.1\r\nHost: paddock\r\n\r\n",
)


def test_fifty_clients_make_two_hundred_objects_among_broken_ones(served: ApiStack) -> None:
    """No answered write is lost, and nothing is held after all clients disconnected."""
    threads = threading.active_count()

    def break_off(number: int) -> None:
        for count in range(4):
            with raw(served) as link:
                link.sendall(GARBAGE[(number + count) % len(GARBAGE)])

    def work(number: int) -> list[int]:
        with client(served) as created:
            observed = []
            for count in range(4):
                text = QUICKSTART.replace("name: quickstart", f"name: box-{number}-{count}")
                sent = {"documents": [{"file": "a.yaml", "text": text}]}
                while (code := created.post(f"{API}/apply", json=sent, timeout=120).status_code) == 503:
                    pass  # the store has been busy for 5 s: it says so, and that nothing was written
                observed.append(code)
                assert created.get(f"{ALL}/box-{number}-{count}", timeout=120).status_code == 200
            return observed

    with ThreadPoolExecutor(60) as pool:
        bad = [pool.submit(break_off, number) for number in range(10)]
        codes = [number for observed in pool.map(work, range(50)) for number in observed]
        for future in bad:
            future.result()
    assert codes == [200] * 200
    assert len(served.store.list("Sandbox")[0]) == 200
    wait_for("no watch is left", lambda: served.services.watches.count == 0)
    stored = 40 + 8 + 4 + 1  # of requests that block, who asked them, watches that open, and their hub
    wait_for("threads have ended", lambda: threading.active_count() <= threads + stored)
    with client(served) as created_client:
        assert created_client.get(ALL).status_code == 200


def test_two_hundred_objects_at_once_are_one_commit(served: ApiStack) -> None:
    text = "---\n".join(QUICKSTART.replace("name: quickstart", f"name: box-{number}") for number in range(200))
    with client(served) as created:
        answer = created.post(f"{API}/apply", json={"documents": [{"file": "a.yaml", "text": text}]}, timeout=120)
        assert [entry["result"] for entry in answer.json()["items"]] == ["created"] * 200
        assert len(created.get(ALL).json()["items"]) == 200
