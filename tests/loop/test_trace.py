"""Work of the loop for a request bears the request's trace id in the log."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from controller.service.objects.apply import Source
from controller.service.trace import tracing
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness
from tests.plain_logs import configure_plain_logs


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    capture = structlog.testing.LogCapture()
    configure_plain_logs(structlog.contextvars.merge_contextvars, capture)
    yield capture.entries
    configure_plain_logs()


def done(lines: list[Any]) -> list[tuple[str, str]]:
    """(verb, trace id) of each action that was carried out since this was asked last."""
    observed = [
        (line["action"].split()[0], line.get("trace_id", "")) for line in lines if line["event"] == "action done"
    ]
    lines.clear()
    return observed


def test_actions_bear_the_id_of_the_request_that_wanted_them(harness: LoopHarness, lines: list[Any]) -> None:
    with tracing("first"):
        harness.apply("a")
    with tracing("second"):
        harness.apply("b")
    harness.settle()
    created = done(lines)
    assert {trace for _, trace in created} == {"first", "second"}
    assert {verb for verb, trace in created if trace == "first"} == {
        verb for verb, trace in created if trace == "second"
    }
    with tracing("third"):
        harness.apply("a", template={"image": "other:1"})
        harness.apply("b")  # as it is: this changes nothing
    harness.settle()
    assert {trace for _, trace in done(lines)} == {"third"}
    with tracing("fourth"):
        harness.delete("b")
    harness.settle()
    assert {trace for _, trace in done(lines)} == {"fourth"}


def test_a_dry_run_leaves_no_id(harness: LoopHarness, lines: list[Any]) -> None:
    with tracing("first"):
        harness.apply("a")
    with tracing("second"):
        labelled = {
            "apiVersion": "paddock/v1alpha1",
            "kind": "Sandbox",
            "metadata": {"name": "a", "labels": {"x": "y"}},
        }
        labelled["spec"] = {"template": {"image": TINY, "command": ["sleep", "1000000"]}}
        harness.services.apply.apply([Source("test", json.dumps(labelled))], dry_run=True)
    harness.settle()
    assert {trace for _, trace in done(lines)} == {"first"}


def test_what_goes_back_to_no_request_has_none(harness: LoopHarness, lines: list[Any]) -> None:
    harness.apply("a")
    harness.settle()
    assert {trace for _, trace in done(lines)} == {""}
