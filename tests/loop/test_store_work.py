"""Work that one sandbox makes: statements, and calls among many others. They are counted, not timed."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from controller.kinds.runtime.user_ids import IdRange
from controller.kinds.sandbox import FINALIZER
from controller.policy.levels.levels import Policy
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import insert, new_sandbox
from tests.loop.harness import TINY, LoopHarness
from tests.migrated import open_store
from tests.statements import traced

ALLOWED_STATEMENTS = 50
ALLOWED_OF_A_CLAIM = 29  # statements, from its request to Ready
ALLOWED_MORE_CALLS = 200  # with 400 more stored


@pytest.fixture
def statements() -> Iterator[list[str]]:
    with traced() as ran:
        yield ran


def test_a_cold_life_writes_in_few_transactions(tmp_path: Path, statements: list[str]) -> None:
    """A sandbox is created, deleted and gone. Its transactions, and what keeps each from joining the one before it:

    1. Created.
    2. Recorded, with its reservation and ids, before its container exists. They are the planner's, of one pass for all
       that was created meanwhile; the one before is the caller's, who is answered without a pass.
    3. Created and started: the evidence, which only exists after the engine's calls.
    4. Deletion requested.
    5. TERM recorded before it is sent: a crash between them would send it twice, or not at all. Only a pass knows if
       its container runs; until the engine can be seen, nothing is sent.
    6. Its end, read from the container before that goes: after a crash between them, no one could tell the exit code.
    7. Gone, which is only true once the engine has removed the container.

    BEGIN and COMMIT are not among the statements.
    """
    with open_store(tmp_path) as store:
        harness = LoopHarness(store)
        for name in ("first", "second"):
            statements.clear()
            harness.apply(name)
            harness.settle(seconds=0)
            harness.delete(name)
            harness.settle(seconds=0)
        own_texts = list(statements)
        assert harness.names() == []
        harness.close()
    assert own_texts.count("BEGIN IMMEDIATE") == 7
    # A batch is traced row by row.
    verbs = [
        " ".join(own_text.split()[:3]) for own_text in own_texts if re.match("SELECT|INSERT|UPDATE|DELETE", own_text)
    ]
    sent = [verb for verb, before in zip(verbs, ["", *verbs], strict=False) if verb != before or verb[0] == "S"]
    assert len(sent) <= ALLOWED_STATEMENTS, sent


def test_a_claim_is_ready_in_two_transactions(tmp_path: Path, statements: list[str]) -> None:
    """The claim itself, and the pass that finds it Ready."""
    by_sqlalchemy: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        by_sqlalchemy.append(statement)

    pool = {"templateRef": {"name": "t"}, "warmReplicas": 2}
    with open_store(tmp_path) as store:
        insert(store, replace(new_sandbox("p", spec=pool, finalizers=(FINALIZER,)), kind="SandboxPool"))
        harness = LoopHarness(store)
        harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
        harness.settle(seconds=0)
        event.listen(Engine, "before_cursor_execute", note)
        try:
            for name in ("first", "second"):
                harness.settle(seconds=0)
                statements.clear()
                by_sqlalchemy.clear()
                harness.refer(name, "t")
                harness.reconcile_pass.run()
                own_texts = list(statements)
                assert harness.condition(name, "Ready").startswith("True")
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        harness.close()
    assert own_texts.count("BEGIN IMMEDIATE") == 2
    assert len(own_texts) <= ALLOWED_OF_A_CLAIM, own_texts
    assert by_sqlalchemy == ["BEGIN IMMEDIATE"] * 2  # the driver alone runs the others


def calls_of(action: Callable[[], object]) -> int:
    """Count the functions that an action calls in this thread, those of C too."""
    count = 0

    def note(_frame: object, what: str, _argument: object) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def calls_among(stored: int, path: Path) -> dict[str, int]:
    """Count the calls of a claim and of the passes after an event and a creation, with so many stored sandboxes."""
    with open_store(path, f"{stored}.db") as store:
        return _calls_in(store, stored)


def _calls_in(store: SqlStore, stored: int) -> dict[str, int]:
    suspended = {"template": {"image": TINY}, "runState": "Suspended"}
    insert(store, *(new_sandbox(f"box-{number:04}", spec=suspended) for number in range(stored)))
    pool = {"templateRef": {"name": "t"}, "warmReplicas": 1}
    insert(store, replace(new_sandbox("p", spec=pool, finalizers=(FINALIZER,)), kind="SandboxPool"))
    insert(store, replace(new_sandbox("q", spec={"hard": {"sandboxes": 20_000}}), kind="Quota"))
    harness = LoopHarness(store, policy=Policy(user_ids=IdRange(20_000, 29_999)))
    harness.apply("a")
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
    document: dict[str, list[int]] = {"claim": [], "event": [], "creation": []}
    for number in range(3):  # the first time much is made once
        harness.clock.advance(1.0)
        harness.settle(seconds=0)
        document["claim"].append(calls_of(lambda number=number: harness.refer(f"warm-{number}", "t")))  # type: ignore[misc]
        harness.clock.advance(1.0)
        harness.settle(seconds=0)
        harness.engine.pause(harness.container_name("a"))
        document["event"].append(calls_of(harness.run_pass))
        harness.settle(seconds=0)
        harness.apply(f"new-{number}")
        document["creation"].append(calls_of(harness.run_pass))
    harness.close()
    return {name: min(counts) for name, counts in document.items()}


def test_one_change_costs_the_same_among_many(tmp_path: Path) -> None:
    few, many = calls_among(20, tmp_path), calls_among(420, tmp_path)
    assert {name: many[name] - few[name] for name in few if many[name] - few[name] > ALLOWED_MORE_CALLS} == {}


def test_sandboxes_in_one_state_share_its_conditions(tmp_path: Path) -> None:
    """Thousands are held in memory: what is equal is held once. The store and the answers have each whole."""
    suspended = {"template": {"image": TINY}, "runState": "Suspended"}
    with open_store(tmp_path) as store:
        insert(store, *(new_sandbox(f"web-{number}", spec=suspended) for number in range(3)))
        harness = LoopHarness(store)
        harness.settle(seconds=0)
        assert harness.reconcile_pass.last is not None
        objects = [sandbox.obj for sandbox in harness.reconcile_pass.last.desired.sandboxes.values()]
        assert len(objects) == 3
        for stored in objects:
            assert stored.status == store_status(store, stored.name) != {}
        ready = [
            next(condition for condition in stored.status["conditions"] if condition["type"] == "Ready")
            for stored in objects
        ]
        assert len({id(condition) for condition in ready}) == 1
        harness.close()


def store_status(store: SqlStore, name: str) -> Mapping[str, Any]:
    sandbox = store.get("Sandbox", "default", name)
    assert sandbox is not None
    return sandbox.status
