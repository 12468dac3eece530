"""The engine and its host, as a scrape shows them."""

from dataclasses import replace
from pathlib import Path

import pytest

from controller.kinds.observed.observed import HostFacts, State
from controller.kinds.observed.swap import HibernationAbility
from controller.kinds.planning.snapshot import Snapshot
from controller.metrics.catalogue.host import CONTAINER_STATES
from controller.metrics.host import HostCollector
from tests.metrics.made_up import Scraped, container, sandbox, scrape, snapshot
from tests.snapshots import changed_snapshot

SANDBOX = sandbox("box")


def scraped(seen: Snapshot | None) -> Scraped:
    return scrape(HostCollector(lambda: seen).collect)


def with_facts(seen: Snapshot, **changes: object) -> Snapshot:
    facts = replace(seen.observed.facts, **changes)
    return replace(seen, observed=replace(seen.observed, facts=facts))


def test_the_engine_and_its_host() -> None:
    printed = scraped(snapshot(SANDBOX))
    assert printed.value("paddock_docker_up") == 1
    info = {"server_version": "26.1.5", "api_version": "1.45", "storage_driver": "overlay2"}
    assert printed.value("paddock_docker_info", **info, cgroup_version="2", default_runtime="runc") == 1
    assert printed.value("paddock_host_cpu_cores") == 8
    assert printed.value("paddock_host_memory_bytes") == 16 << 30


def test_room_on_the_dockers_disk(tmp_path: Path) -> None:
    printed = scraped(with_facts(snapshot(SANDBOX), root_dir=str(tmp_path)))
    size, free = (printed.value(f"paddock_host_docker_root_{entry}_bytes") for entry in ("size", "avail"))
    assert size is not None
    assert free is not None
    assert 0 < free <= size
    removed = scraped(with_facts(snapshot(SANDBOX), root_dir=str(tmp_path / "gone")))
    assert removed.value("paddock_host_docker_root_size_bytes") is None


def test_containers_by_state_with_zeros() -> None:
    second = sandbox("other")
    observed = snapshot(SANDBOX, second, containers=[container(SANDBOX.obj), container(second.obj, state=State.EXITED)])
    printed = scraped(observed)
    answer = {
        container_state: printed.value("paddock_docker_containers", state=container_state, managed="true")
        for container_state in CONTAINER_STATES
    }
    assert answer == {
        container_state: float(container_state in ("running", "exited")) for container_state in CONTAINER_STATES
    }


def test_a_blind_look_counts_no_containers_but_keeps_the_facts() -> None:
    printed = scraped(snapshot(SANDBOX, blind="the engine does not answer"))
    assert printed.value("paddock_docker_up") == 0
    assert "paddock_docker_containers" not in printed.names()
    assert printed.value("paddock_host_cpu_cores") == 8


@pytest.mark.parametrize("started", [False, True])
def test_before_the_engine_has_answered_nothing_is_made_up(started: bool) -> None:
    observed = snapshot(blind="not looked yet") if started else None
    if observed is not None:
        observed = replace(observed, observed=replace(observed.observed, facts=HostFacts()))
    assert [(sample.name, sample.value) for sample in scraped(observed).samples] == [("paddock_docker_up", 0)]


def test_swap_of_the_host_where_it_has_any() -> None:
    observed = snapshot(SANDBOX)
    able = HibernationAbility(False, "SwapFull", swap_bytes=1 << 30, swap_free_bytes=1 << 20)
    printed = scraped(changed_snapshot(observed, hibernation=able))
    assert printed.value("paddock_host_swap_size_bytes") == 1 << 30
    assert printed.value("paddock_host_swap_free_bytes") == 1 << 20
    assert scraped(observed).value("paddock_host_swap_size_bytes") is None
