"""The SDK's surface: names, readiness after a change, waits in vain, and what opens in an `async with`."""

import asyncio
from typing import Any

import pytest

import paddock
from paddock import AsyncPaddock, Paddock
from paddock._models import HOPELESS, failure_of
from paddock._transport.aio import opening
from tests.helpers_api import ApiStack


def sandbox(status: str, reason: str, *, generation: int = 1) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "why", "observedGeneration": 1}
    return {"metadata": {"name": "a", "generation": generation}, "status": {"conditions": [ready]}}


def test_names_are_listed_and_a_version() -> None:
    assert {"Paddock", "AsyncPaddock", "Sandbox", "CommandResult", "__version__"} <= set(dir(paddock))
    assert paddock.__version__.count(".") == 2


@pytest.mark.parametrize("reason", sorted(HOPELESS))
def test_a_wait_in_vain_ends_with_its_reason(reason: str) -> None:
    assert failure_of(sandbox("False", reason)) == (reason, "why")
    assert failure_of(sandbox("False", reason, generation=2)) is None  # said of an older spec
    assert failure_of(sandbox("False", "Starting")) is None


def test_readiness_survives_a_change_not_yet_observed(served: ApiStack) -> None:
    served.apply()
    served.set_ready("True", "Running")
    with Paddock(f"unix://{served.socket}") as client:
        handle = client.sandboxes.get("quickstart")
        assert handle.ready
        assert handle.patch({"spec": {"priority": 5}}).ready  # the served API has no loop: nobody looks at it
        assert handle.refresh().ready
        served.set_ready("False", "Suspended")
        assert not handle.refresh().ready


class Opened:
    """A context manager that counts."""

    def __init__(self) -> None:
        self.entered = self.left = 0

    async def __aenter__(self) -> "Opened":
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left += 1


@opening
async def opened() -> Opened:
    await asyncio.sleep(0)
    return Opened()


def test_opening_calls_enter_with_and_without_await() -> None:
    async def all_ways() -> None:
        async with opened() as direct, await opened() as expected:
            task, (gathered,) = await asyncio.create_task(opened()), await asyncio.gather(opened())
            assert (direct.entered, expected.entered, task.entered, gathered.entered) == (1, 1, 0, 0)
        assert (direct.left, expected.left) == (1, 1)
        opened().close()

    asyncio.run(all_ways())


def test_mcp_servers_and_the_engine_are_known(served: ApiStack) -> None:
    with Paddock(f"unix://{served.socket}") as client:
        assert client.is_docker_available()
        assert client.mcp.servers.list() == []
        with pytest.raises(paddock.NotFound):
            client.mcp.is_sandboxed("none")
        served.checks = [("engine", "can't be reached")]
        assert not client.is_docker_available()
    with Paddock("unix:///nowhere/paddock.sock") as client:
        assert not client.is_docker_available()


def test_asyncio_has_the_same_names(served: ApiStack) -> None:
    async def ask() -> None:
        async with AsyncPaddock(f"unix://{served.socket}") as client:
            assert await client.is_docker_available()
            assert await client.mcp.servers.list() == []

    asyncio.run(ask())
