"""Rows that a newer daemon wrote, worked on by this one: what it does not know is still there afterwards."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from controller.store.schema import instances
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness

LATER = {"type": "OfALaterVersion", "status": "True", "reason": "New", "observedGeneration": 1}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def remembered(backend: Backend) -> dict[str, Any]:
    with backend.database() as database, database.reading() as connection:
        [text] = connection.execute(select(instances.c.memory)).scalars()
    document: dict[str, Any] = json.loads(text)
    return document


def remember(backend: Backend, memory: Mapping[str, Any]) -> None:
    with backend.database() as database, database.writing() as connection:
        connection.execute(update(instances).values(memory=json.dumps(memory), version=instances.c.version + 1))


def test_the_loop_keeps_what_it_does_not_remember_itself(backend: Backend, harness: LoopHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.engine.kill(harness.container_name("a"))
    harness.run_pass()
    before = remembered(backend)
    later = {**before, "later": {"deep": [1]}, "last_end": {**before["last_end"], "laterToo": "x"}}
    remember(backend, later)
    harness.daemon()  # the newer one is gone, an older one comes
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    after = remembered(backend)
    assert (after["restarts"], after["later"], after["last_end"]["laterToo"]) == (1, {"deep": [1]}, "x")
    assert "extra" not in str(after)
    harness.engine.kill(harness.container_name("a"))
    harness.settle()
    after = remembered(backend)
    assert (after["restarts"], after["later"]) == (2, {"deep": [1]})
    assert "laterToo" not in after["last_end"], "another end is not the one that it was said of"


def test_loop_and_apply_keep_the_unknown_parts_of_an_object(harness: LoopHarness) -> None:
    harness.apply("a")
    harness.settle()
    with harness.store.transaction() as transaction:
        sandbox = transaction.get("Sandbox", "default", "a")
        assert sandbox is not None
        status = {**sandbox.status, "later": {"x": 1}, "conditions": [*sandbox.status["conditions"], LATER]}
        owner = {"kind": "Later", "name": "z", "uid": "u", "later": True}
        changed = replace(
            sandbox, status=status, annotations={"later": "yes"}, finalizers=(*sandbox.finalizers, "later/x")
        )
        transaction.put(replace(changed, owner_references=(owner,)))
    harness.engine.kill(harness.container_name("a"))
    harness.settle()
    harness.apply("a", lifecycle={"shutdownGracePeriodSeconds": 3})
    harness.settle()
    answer = harness.get("a")
    assert answer is not None
    assert (answer.generation, answer.status["restartCount"], answer.status["observedGeneration"]) == (2, 1, 2)
    assert (answer.status["later"], answer.status["conditions"][-1]) == ({"x": 1}, LATER)
    assert (answer.annotations, answer.finalizers[-1], answer.owner_references) == (
        {"later": "yes"},
        "later/x",
        (owner,),
    )


def test_apply_keeps_the_unknown_parts_of_a_spec_and_the_loop_refuses_to_run_without_them(harness: LoopHarness) -> None:
    harness.apply("a")
    with harness.store.transaction() as transaction:
        sandbox = transaction.get("Sandbox", "default", "a")
        assert sandbox is not None
        transaction.put(replace(sandbox, spec={**sandbox.spec, "later": [1]}, generation=2))
    harness.settle()
    harness.apply("a", restartPolicy="Never")
    harness.settle()
    answer = harness.get("a")
    assert answer is not None
    assert (answer.spec["later"], answer.spec["restartPolicy"], answer.generation) == ([1], "Never", 3)
    assert harness.condition("a", "Accepted") == "False Refused"
    assert harness.ours() == {}
