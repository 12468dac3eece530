"""Sandboxes with networks through crashes of the daemon."""

from collections.abc import Callable, Collection

from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness, killed_at_each_step


def repair_each_crash(
    backend: Backend,
    harness: LoopHarness,
    deeds: tuple[Callable[[], object], ...],
    network_condition: Callable[[int], str],
    shared_networks: Collection[str] = (),
) -> int:
    """Kill the daemon at each step of the deeds, and have the next one repair sandbox `web`, then remove all of it.

    `network_condition` is that of its network by the number of the deed. Return the number of crashes.
    """
    moments = 0
    for number in killed_at_each_step(harness, backend.path(), *deeds):
        moments += 1
        sandbox = harness.get("web")
        if sandbox is not None and sandbox.deleted_at is None:
            harness.settle()
            assert harness.condition("web", "NetworkReady") == network_condition(number), f"moment {moments}"
            harness.delete("web")
        harness.settle()
        assert harness.ours() == {}, f"moment {moments}"
        assert set(harness.engine.networks) <= set(shared_networks)
        assert harness.store.instances() == []
    return moments
