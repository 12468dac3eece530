"""Inspections that events ask for."""

from typing import Any, cast

import pytest

from controller.engine.observe.events import Inspector
from tests.daemon import wait_for
from tests.threads import no_thread_starts


class GoneContainers:
    """View of containers that are all gone; `asked` are those it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def is_gone(self, container_id: str) -> bool:
        self.asked.append(container_id)
        return True


def test_without_a_thread_events_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    view, unused = GoneContainers(), cast("Any", None)
    inspector = Inspector(unused, cast("Any", view), unused, same_clock=True)
    for container_id in ("a", "b"):
        inspector.mark(container_id, container_id, 1)
    with monkeypatch.context() as patch:
        no_thread_starts(patch)
        with pytest.raises(RuntimeError):
            inspector.step()
    inspector.step()
    wait_for("both are inspected", lambda: {"a", "b"} <= set(view.asked))
    inspector.stop()
