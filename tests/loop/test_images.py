"""Unused images of ours are removed late, and never one that something speaks of."""

from collections.abc import Iterator

import pytest

from controller.kinds.meta import ObjectRef
from controller.kinds.registry import discover
from controller.kinds.runtime.agent import IMAGE, volume_name
from controller.loop.tasks.images import ImageKeeper
from controller.plan.capacity.images import PruneRules
from controller.ports import NullMeter
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness

GRACE = 3600.0
HOST = ObjectRef("Host", "", "host", "the-host")


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def keeper(house: LoopHarness, what: str = "superseded") -> ImageKeeper:
    return ImageKeeper(
        house.engine.image_store,
        snapshot=lambda: house.reconcile_pass.last,
        store=house.store,
        registry=discover(),
        clock=house.clock,
        meter=NullMeter(),
        host=HOST,
        rules=PruneRules(what, GRACE),  # type: ignore[arg-type]  # a word of the setting
    )


def later(house: LoopHarness, keeper: ImageKeeper, seconds: float = GRACE) -> set[str]:
    """The ids of images of ours after a look now and one so much later."""
    for wait in (0.0, seconds):
        house.clock.advance(wait)
        house.run_pass()
        keeper.observe_now()
    return {our.id for our in house.engine.image_store.ours() or ()}


def built(house: LoopHarness, name: str = "paddock/node:1") -> str:
    return house.engine.build_image(name, ours=True)


def test_a_superseded_image_goes_after_its_delay_and_is_told_of(house: LoopHarness) -> None:
    old, new = built(house), built(house)
    foreign = house.engine.build_image("somebody/else:1", ours=False)
    house.engine.add_image("somebody/else:1")
    keeping = keeper(house)
    assert later(house, keeping, GRACE - 1) == {old, new}
    assert later(house, keeping) == {new}
    assert foreign in house.engine.image_store.built
    (event,) = house.store.events(kind="Host")
    assert (event.reason, "superseded" in event.message) == ("ImagePruned", True)


def test_one_that_is_pinned_for_a_sandbox_stays_though_its_container_is_gone(house: LoopHarness) -> None:
    old = built(house)
    house.apply("web", template={"image": "paddock/node:1"})
    house.settle()
    built(house)
    house.engine.remove(house.container_name("web"))
    assert old in later(house, keeper(house))
    house.settle()
    assert house.engine.box(house.container_name("web")).image_id == old
    house.delete("web")
    house.settle()
    assert old not in later(house, keeper(house))


@pytest.mark.parametrize("named", ["paddock/node:1", "docker.io/paddock/node:1", "id", "short id"])
def test_an_unused_one_with_a_name_goes_only_where_the_operator_says_so(house: LoopHarness, named: str) -> None:
    image, egress = built(house), built(house, "paddock/egress:1")
    assert later(house, keeper(house)) == {image, egress}
    spelled = {"id": image, "short id": image.removeprefix("sha256:")[:12]}.get(named, named)
    house.apply_template("nodes", image=spelled)
    assert later(house, keeper(house, "unused")) == {image, egress}
    house.delete("nodes", kind="sandboxtemplate")
    assert later(house, keeper(house, "unused")) == {egress}


def test_nothing_goes_by_a_look_that_failed_and_its_delay_begins_anew(house: LoopHarness) -> None:
    old = built(house)
    built(house)
    keeping = keeper(house)
    later(house, keeping, GRACE - 1)
    house.engine.go_down()
    assert old in later(house, keeping)
    house.engine.come_up()
    house.engine.image_store.away = True
    house.run_pass()
    keeping.observe_now()
    house.engine.image_store.away = False
    assert old in later(house, keeping, GRACE - 1)
    assert old not in later(house, keeping, 1)


def test_none_goes_where_the_operator_wants_none(house: LoopHarness) -> None:
    old, new = built(house), built(house)
    assert later(house, keeper(house, "none"), 10 * GRACE) == {old, new}


def test_a_superseded_agent_runtime_goes_once_nothing_mounts_it(house: LoopHarness) -> None:
    old = built(house, IMAGE)
    house.apply("a", template={"agent": {}})
    house.settle()
    new = built(house, IMAGE)
    house.apply("b", template={"agent": {}})
    house.settle()
    runtimes, keeping = house.engine.image_store.runtimes, keeper(house)
    assert later(house, keeping) == {old, new}
    assert set(runtimes) == {old, new}
    for entry in ("a", "b"):
        house.delete(entry)
    house.settle()
    later(house, keeping, GRACE - 1)
    assert set(runtimes) == {old, new}
    later(house, keeping, 1)
    assert set(runtimes) == {new}
    assert later(house, keeping) == {new}
    assert any(volume_name(old) in event.message for event in house.store.events(kind="Host"))
