"""Each stop with a grace period begins with the signal that the container's image names."""

from dataclasses import replace
from pathlib import Path

import pytest

from controller.kinds.planning.snapshot import Snapshot
from tests.plan.case_file import decide, read

CASES = [path for path in sorted(Path(__file__).parent.glob("cases/*.yaml")) if "signal TERM" in path.read_text()]


def with_stop_signal(snapshot: Snapshot, signal: str) -> Snapshot:
    containers = {
        uid: tuple(replace(container, stop_signal=signal) for container in group)
        for uid, group in snapshot.observed.containers.items()
    }
    return replace(snapshot, observed=replace(snapshot.observed, containers=containers))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_stop_sends_the_images_signal(path: Path) -> None:
    snapshot, data = read(path)
    planned = str(decide(with_stop_signal(snapshot, "INT")))
    assert planned == data["plan"].strip().replace("signal TERM", "signal INT")
