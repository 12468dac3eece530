"""The metrics door: what it answers, how many at once, and that it leaves nothing behind."""

import gzip
import http.client
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_plain_text

from controller.metrics.containers import ContainerCollector
from controller.metrics.host import HostCollector
from controller.metrics.objects import ObjectCollector
from controller.metrics.pages import MAX_IN_FLIGHT, Pages
from controller.metrics.registry import Registry
from controller.metrics.server import CannotListen, MetricsServer
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
    registry, seen = Registry(), many(count)
    registry.register(ContainerCollector(lambda: seen, MadeUpUsage()))
    registry.register(ObjectCollector(lambda: seen))
    registry.register(HostCollector(lambda: seen))
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
    assert len({each.name: each for each in read_plain_text(body.decode())}["paddock_container_pids"].samples) == 3


def test_open_metrics_and_gzip_where_the_client_takes_them() -> None:
    with running(filled_registry()) as server:
        status, headers, body = get(server, headers={"Accept": OPEN_METRICS, "Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert "paddock_container_pids" in {each.name for each in read_open_metrics(gzip.decompress(body).decode())}


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
    with pytest.raises(ValueError, match="token is empty"):
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
        assert [each.result()[0] for each in first] == [200, 200]
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
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = MetricsServer(Registry(), port=port)
        with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{port} is taken by pid {os.getpid()} \("):
            server.start()
        server.stop()
    server.start()
    assert server.port == port
    server.stop()


def test_an_address_of_another_host_is_said_in_words() -> None:
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:0 can't be used: Cannot assign"):
        MetricsServer(Registry(), host="192.0.2.1", port=0).start()


def test_stop_frees_the_port_and_start_takes_it_again() -> None:
    server = MetricsServer(Registry(), port=0)
    server.stop()
    server.start()
    with pytest.raises(RuntimeError, match="runs already"):
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


def test_a_client_beyond_the_last_place_is_turned_away(slow: tuple[Slow, Registry]) -> None:
    _, registry = slow
    with running(registry) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(16)]
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as late:
                assert late.recv(1) == b""
        finally:
            for each in silent:
                each.close()


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
