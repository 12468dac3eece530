"""A scrape that hangs holds up nothing else: the metrics have threads of their own."""

from concurrent.futures import ThreadPoolExecutor

from controller.metrics.pages import MAX_IN_FLIGHT
from controller.metrics.registry import Registry
from tests.api.listeners import API, client, opened
from tests.helpers_api import ApiStack
from tests.helpers_fixtures import api, quiet
from tests.metrics.test_server import Slow, get, running, slow

__all__ = ["api", "quiet", "slow"]


def test_the_api_answers_while_every_place_for_scrapes_is_taken(api: ApiStack, slow: tuple[Slow, Registry]) -> None:
    collector, registry = slow
    api.apply()
    door, places = running(registry), ThreadPoolExecutor(MAX_IN_FLIGHT)
    with opened(api), client(api) as requested, door as server, places as pool:
        hanging = [pool.submit(get, server) for _ in range(MAX_IN_FLIGHT)]
        try:
            for _ in hanging:
                assert collector.asked.acquire(timeout=30)
            response = requested.get(f"{API}/namespaces/default/sandboxes/quickstart", timeout=20)
        finally:
            collector.may.set()
        assert [future.result()[0] for future in hanging] == [200, 200]
    assert (response.status_code, response.json()["metadata"]["name"]) == (200, "quickstart")
