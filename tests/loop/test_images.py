"""Unused images of ours are removed late, and never one that something speaks of."""

from collections.abc import Iterator

import pytest

from controller.kinds.meta import ObjectRef
from controller.kinds.registry import discover
from controller.kinds.runtime.agent import IMAGE, volume_name
from controller.loop.tasks.images import ImageKeeper
from controller.plan.capacity.images import PruneRules
from controller.ports import NullMeter
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness

GRACE = 3600.0
HOST = ObjectRef("Host", "", "host", "the-host")


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def keeper(harness: LoopHarness, what: str = "superseded") -> ImageKeeper:
    return ImageKeeper(
        harness.engine.image_store,
        snapshot=lambda: harness.reconcile_pass.last,
        store=harness.store,
        registry=discover(),
        clock=harness.clock,
        meter=NullMeter(),
        host=HOST,
        rules=PruneRules(what, GRACE),  # type: ignore[arg-type]  # a word of the setting
    )


def later(harness: LoopHarness, keeper: ImageKeeper, seconds: float = GRACE) -> set[str]:
    """The ids of images of ours after a look now and one so much later."""
    for wait in (0.0, seconds):
        harness.clock.advance(wait)
        harness.run_pass()
        keeper.observe_now()
    return {our.id for our in harness.engine.image_store.ours() or ()}


def built(harness: LoopHarness, name: str = "paddock/node:1") -> str:
    return harness.engine.build_image(name, ours=True)


def test_a_superseded_image_goes_after_its_delay_and_is_told_of(harness: LoopHarness) -> None:
    old, new = built(harness), built(harness)
    foreign = harness.engine.build_image("somebody/else:1", ours=False)
    harness.engine.add_image("somebody/else:1")
    keeping = keeper(harness)
    assert later(harness, keeping, GRACE - 1) == {old, new}
    assert later(harness, keeping) == {new}
    assert foreign in harness.engine.image_store.built
    (event,) = harness.store.events(kind="Host")
    assert (event.reason, "superseded" in event.message) == ("ImagePruned", True)


def test_one_that_is_pinned_for_a_sandbox_stays_though_its_container_is_gone(harness: LoopHarness) -> None:
    old = built(harness)
    harness.apply("web", template={"image": "paddock/node:1"})
    harness.settle()
    built(harness)
    harness.engine.remove(harness.container_name("web"))
    assert old in later(harness, keeper(harness))
    harness.settle()
    assert harness.engine.container(harness.container_name("web")).image_id == old
    harness.delete("web")
    harness.settle()
    assert old not in later(harness, keeper(harness))


@pytest.mark.parametrize("named", ["paddock/node:1", "docker.io/paddock/node:1", "id", "short id"])
def test_an_unused_one_with_a_name_goes_only_where_the_operator_says_so(harness: LoopHarness, named: str) -> None:
    image, egress = built(harness), built(harness, "paddock/egress:1")
    assert later(harness, keeper(harness)) == {image, egress}
    spelled = {"id": image, "short id": image.removeprefix("sha256:")[:12]}.get(named, named)
    harness.apply_template("nodes", image=spelled)
    assert later(harness, keeper(harness, "unused")) == {image, egress}
    harness.delete("nodes", kind="sandboxtemplate")
    assert later(harness, keeper(harness, "unused")) == {egress}


def test_nothing_goes_by_a_look_that_failed_and_its_delay_begins_anew(harness: LoopHarness) -> None:
    old = built(harness)
    built(harness)
    keeping = keeper(harness)
    later(harness, keeping, GRACE - 1)
    harness.engine.go_down()
    assert old in later(harness, keeping)
    harness.engine.come_up()
    harness.engine.image_store.away = True
    harness.run_pass()
    keeping.observe_now()
    harness.engine.image_store.away = False
    assert old in later(harness, keeping, GRACE - 1)
    assert old not in later(harness, keeping, 1)


def test_none_goes_where_the_operator_wants_none(harness: LoopHarness) -> None:
    old, new = built(harness), built(harness)
    assert later(harness, keeper(harness, "none"), 10 * GRACE) == {old, new}


def test_a_superseded_agent_runtime_goes_once_nothing_mounts_it(harness: LoopHarness) -> None:
    old = built(harness, IMAGE)
    harness.apply("a", template={"agent": {}})
    harness.settle()
    new = built(harness, IMAGE)
    harness.apply("b", template={"agent": {}})
    harness.settle()
    runtimes, keeping = harness.engine.image_store.runtimes, keeper(harness)
    assert later(harness, keeping) == {old, new}
    assert set(runtimes) == {old, new}
    for entry in ("a", "b"):
        harness.delete(entry)
    harness.settle()
    later(harness, keeping, GRACE - 1)
    assert set(runtimes) == {old, new}
    later(harness, keeping, 1)
    assert set(runtimes) == {new}
    assert later(harness, keeping) == {new}
    assert any(volume_name(old) in event.message for event in harness.store.events(kind="Host"))
