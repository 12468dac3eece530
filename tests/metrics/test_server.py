"""The metrics door: what it answers, how many at once, and that it leaves nothing behind."""

import gzip
import http.client
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_plain_text

from controller.metrics.containers import ContainerCollector
from controller.metrics.host import HostCollector
from controller.metrics.objects import ObjectCollector
from controller.metrics.pages import MAX_IN_FLIGHT, Pages
from controller.metrics.registry import Registry
from controller.metrics.server import MOST_ANSWERED, MOST_WAITING, CannotListen, MetricsServer
from tests.metrics.made_up import MadeUpUsage, many

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@contextmanager
def running(registry: CollectorRegistry, token: str | None = None) -> Iterator[MetricsServer]:
    server = MetricsServer(registry, port=0, token=token)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def get(
    server: MetricsServer, path: str = "/metrics", headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def filled_registry(count: int = 3) -> Registry:
    registry, snapshot = Registry(), many(count)
    registry.register(ContainerCollector(lambda: snapshot, MadeUpUsage()))
    registry.register(ObjectCollector(lambda: snapshot))
    registry.register(HostCollector(lambda: snapshot))
    return registry


@pytest.mark.parametrize("host", ["127.0.0.1:9464", "localhost:9464", "LOCALHOST", "[::1]:9464", "192.0.2.7", ""])
def test_whoever_calls_this_machine_by_its_address_may_scrape(host: str) -> None:
    with running(filled_registry(1)) as server:
        assert get(server, headers={"Host": host})[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example.org:9464", "127.0.0.1.example.org", "[evil.example.org]", "localhost.a"]
)
def test_the_page_of_a_web_site_cannot_have_its_name_lead_here(host: str) -> None:
    with running(filled_registry(1)) as server:
        status, _, body = get(server, headers={"Host": host})
        assert (status, body.startswith(b"forbidden: scrape by address")) == (403, True)
    with running(filled_registry(1), token="word") as server:
        assert get(server, headers={"Host": host, "Authorization": "Bearer word"})[0] == 200


class Slow:
    """A collector that tells when it is asked, and answers when it may."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.may = threading.Event()

    def collect(self) -> list[Metric]:
        self.asked.release()
        assert self.may.wait(30)
        return [Metric("slow", "Slow.", "gauge")]


@pytest.fixture
def slow() -> tuple[Slow, Registry]:
    collector, registry = Slow(), Registry()
    registry.register(collector)
    return collector, registry


def test_metrics_are_served_as_plain_text() -> None:
    with running(filled_registry()) as server:
        status, headers, body = get(server)
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert (
        len({metric.name: metric for metric in read_plain_text(body.decode())}["paddock_container_pids"].samples) == 3
    )


def test_open_metrics_and_gzip_where_the_client_takes_them() -> None:
    with running(filled_registry()) as server:
        status, headers, body = get(server, headers={"Accept": OPEN_METRICS, "Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert "paddock_container_pids" in {metric.name for metric in read_open_metrics(gzip.decompress(body).decode())}


def test_only_some_names_when_asked() -> None:
    with running(filled_registry()) as server:
        _, _, body = get(server, "/metrics?name[]=paddock_docker_up&name[]=no_such_thing")
    assert body.decode().splitlines()[-1] == "paddock_docker_up 1.0"
    assert len(body.decode().splitlines()) == 3


def test_the_index_leads_to_the_metrics() -> None:
    with running(Registry()) as server:
        status, headers, body = get(server, "/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b'href="/metrics"' in body
        head = get(server, "/", method="HEAD")
    assert (head[0], head[1]["Content-Length"], head[2]) == (200, str(len(body)), b"")


@pytest.mark.parametrize("path", ["/metrics/", "/metric", "/../metrics", "/favicon.ico", "/%2e", "*", "/["])
def test_anything_else_is_not_found(path: str) -> None:
    with running(Registry()) as server:
        status, _, body = get(server, path)
    assert (status, body) == (404, b"not found: the metrics are at /metrics\n")


def test_only_reading_is_offered() -> None:
    with running(Registry()) as server:
        assert get(server, method="POST")[0] == 501


@pytest.mark.parametrize(
    "sent", [None, "Bearer wrong", "Bearer", "Basic c2VzYW1l", "sesame", "Bearer sesame2", "Bearer \xe9"]
)
def test_without_the_token_there_are_no_metrics(sent: str | None) -> None:
    with running(filled_registry(), token="sesame\n") as server:
        status, headers, body = get(server, headers={} if sent is None else {"Authorization": sent})
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert b"paddock_" not in body


def test_with_the_token_there_are() -> None:
    with running(filled_registry(), token="sesame\n") as server:
        assert get(server, headers={"Authorization": "Bearer sesame"})[0] == 200
        assert get(server, "/")[0] == 200, "the index is open"


@pytest.mark.parametrize("token", ["", " \n"])
def test_an_empty_token_is_a_mistake(token: str) -> None:
    with pytest.raises(ValueError, match="token: is empty"):
        MetricsServer(Registry(), token=token)


def test_a_third_scrape_at_once_is_told_to_wait(slow: tuple[Slow, Registry]) -> None:
    collector, registry = slow
    with running(registry) as server, ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
        first = [pool.submit(get, server) for _ in range(MAX_IN_FLIGHT)]
        try:
            for _ in first:
                assert collector.asked.acquire(timeout=30)
            status, headers, body = get(server)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert body == b"busy: 2 scrapes are in flight already; scrape less often\n"
            assert get(server, "/")[0] == 200, "the index is not a scrape"
        finally:
            collector.may.set()
        assert [future.result()[0] for future in first] == [200, 200]
        assert get(server)[0] == 200, "the places are free again"


def test_scrapes_at_once_see_the_same_figures() -> None:
    pages = Pages(filled_registry(20))

    def scrape(_: int) -> tuple[int, set[str]]:
        answer = pages.answer("/metrics", {})
        return answer.status, {line for line in answer.body.decode().splitlines() if line[:18] == "paddock_container_"}

    with ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
        answers = list(pool.map(scrape, range(10)))
    assert {status for status, _ in answers} == {200}
    assert all(lines == answers[0][1] for _, lines in answers)


def test_a_broken_collector_is_counted_and_the_rest_served() -> None:
    class Broken:
        def collect(self) -> list[Metric]:
            raise RuntimeError("no such luck")

    registry = filled_registry()
    registry.register(Broken())
    with running(registry) as server:
        get(server)
        status, _, body = get(server)
    assert status == 200
    assert b'paddock_metrics_errors_total{reason="collector"} 1.0' in body
    assert b"paddock_container_pids{" in body


def test_what_cannot_be_rendered_is_said_in_words(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        def collect(self) -> list[Metric]:
            metric = Metric("odd", "Odd.", "gauge")
            metric.add_sample("odd", {}, "not a number")
            return [metric]

    registry = Registry()
    registry.register(Odd())
    with running(registry) as server, caplog.at_level(logging.ERROR, "paddock.metrics"):
        status, _, body = get(server)
        assert get(server, "/")[0] == 200
    assert (status, body) == (500, b"the metrics could not be rendered; the daemon's log says why\n")
    assert "not a number" in caplog.text


def test_a_taken_port_says_by_whom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as second:
        port = second.getsockname()[1]
        server = MetricsServer(Registry(), port=port)
        with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{port}: taken by pid {os.getpid()} \("):
            server.start()
        server.stop()
    server.start()
    assert server.port == port
    server.stop()


def test_an_address_of_another_host_is_said_in_words() -> None:
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:0: can't be used: Cannot assign"):
        MetricsServer(Registry(), host="192.0.2.1", port=0).start()


def test_stop_frees_the_port_and_start_takes_it_again() -> None:
    server = MetricsServer(Registry(), port=0)
    server.stop()
    server.start()
    with pytest.raises(RuntimeError, match="already running"):
        server.start()
    port = server.port
    assert get(server)[0] == 200
    server.stop()
    server.stop()
    with socket.create_server(("127.0.0.1", port), reuse_port=False):
        pass
    server.start()
    assert server.port == port
    server.stop()


def test_stop_does_not_wait_for_a_client_that_never_speaks() -> None:
    server = MetricsServer(Registry(), port=0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
        _until(lambda: get(server, "/")[0] == 200)  # connections are taken in order: the silent one is in
        server.stop()
        assert silent.recv(1) == b""


def test_stop_lets_a_scrape_in_flight_end(slow: tuple[Slow, Registry]) -> None:
    collector, registry = slow
    server = MetricsServer(registry, port=0)
    server.start()
    with ThreadPoolExecutor(2) as pool:
        scrape = pool.submit(get, server)
        assert collector.asked.acquire(timeout=30)
        stopping = pool.submit(server.stop)
        _until(lambda: not _accepts(server))
        assert not stopping.done()
        collector.may.set()
        assert scrape.result()[0] == 200
        stopping.result()


HALF = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@contextmanager
def half_heads(server: MetricsServer, count: int) -> Iterator[deque[socket.socket]]:
    """So many clients, one after the other, that never end their requests; gives the last ones."""
    connections: deque[socket.socket] = deque()
    try:
        for _ in range(count):
            connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            connections[-1].sendall(HALF)
            if len(connections) > MOST_WAITING:  # the listener has ended it
                assert was_ended(connections[0])
                connections.popleft().close()
        yield connections
    finally:
        for connection in connections:
            connection.close()


def was_ended(connection: socket.socket) -> bool:
    """Return True if the other side ends it; wait for that, or for an answer, unless the socket does not block."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_three_thousand_half_heads_leave_places_for_scrapers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.metrics.server.HEAD_SECONDS", 600)  # the places must do it
    with running(filled_registry(1)) as server, half_heads(server, 3000) as reserved:
        for _ in range(3):
            assert get(server)[0] == 200
        for connection in reserved:
            connection.setblocking(False)
        assert sum(map(was_ended, reserved)) <= 3, "each scrape ended at most the oldest"


def test_a_half_head_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.metrics.server.HEAD_SECONDS", 0.1)
    with running(Registry()) as server, half_heads(server, 3) as reserved:
        assert all(map(was_ended, reserved))


def test_answers_nobody_takes_leave_places_for_scrapers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.metrics.server.ANSWER_SECONDS", 600)
    registry = Registry()

    class Large:
        def collect(self) -> list[Metric]:
            metric = Metric("large", "x" * (16 << 20), "gauge")  # more than the kernel holds for a client
            metric.add_sample("large", {}, 1)
            return [metric]

    registry.register(Large())
    with running(registry) as server, ExitStack() as stack:
        for _ in range(2 * MOST_ANSWERED):
            enter_context = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            enter_context.sendall(HALF + b"\r\n\r\n")
            assert enter_context.recv(12) == b"HTTP/1.0 200"
        assert get(server, "/")[0] == 200
        status, _, body = get(server)
        assert (status, len(body) > 16 << 20) == (200, True)


def test_one_address_takes_no_place_of_another() -> None:
    with (
        running(filled_registry(1)) as server,
        half_heads(server, MOST_WAITING - 1) as reserved,
        socket.socket() as second,
    ):
        second.bind(("127.0.0.2", 0))
        second.connect(("127.0.0.1", server.port))
        second.settimeout(30)
        second.sendall(HALF)
        for _ in range(MOST_WAITING):
            reserved.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            reserved[-1].sendall(HALF)
        assert was_ended(reserved[MOST_WAITING - 1]), "the flood ends its own"
        second.sendall(b"\r\n\r\n")
        assert second.recv(12) == b"HTTP/1.0 200"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"GET / HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", b"has both Content-Length"),
        (b"GET / HTTP/1.1\nHost: a\n\n", b"bare LF"),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n", b"bare LF"),
        (b"GET / HTTP/1.1\r\nX: a\rHost: b\r\n\r\n", b"bare LF or CR"),
        (b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", b"continues on the next line"),
        (b"GET / HTTP/1.1\r\n\tX: a\r\n\r\n", b"continues on the next line"),
        (b"GET /\r\n\r\n", b"send `GET /metrics HTTP/1.1`"),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 200 + b"\r\n", b"at most 100 headers"),
    ],
)
def test_heads_that_parsers_read_differently_are_refused(head: bytes, why: bytes) -> None:
    with running(Registry()) as server, socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert why in answer


def test_a_head_without_an_end_is_bounded() -> None:
    with running(Registry()) as server, socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(HALF + b"a" * (17 << 10))
        assert connection.recv(12) == b"HTTP/1.0 431"


def test_a_client_may_end_its_side_once_it_has_asked() -> None:
    with (
        running(filled_registry(1)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection,
    ):
        connection.sendall(HALF + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(12) == b"HTTP/1.0 200"


def _accepts(server: MetricsServer) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=30).close()
    except OSError:
        return False
    return True


def _until(true: Callable[[], bool]) -> None:
    """Ask until it is so; the test's own time limit ends a wait that is in vain."""
    while not true():
        pass
