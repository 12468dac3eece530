"""The health of a container, as its probes tell it."""

from typing import Any

import pytest

from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.probe import (
    OneSuccessProbe,
    Probe,
    ProbeProgress,
    ProbeResult,
    ProbeState,
    Tally,
    TcpSocketAction,
    Watch,
)
from controller.metrics.containers import ContainerCollector
from tests.instance_states import instance_state
from tests.metrics.made_up import SPEC, MadeUpUsage, container, instance, sandbox, scrape, snapshot
from tests.snapshots import changed_snapshot

TCP = {"tcpSocket": {"port": 80}}
PLAIN, WATCHED = sandbox("plain"), sandbox("box", {**SPEC, "template": {**SPEC["template"], "liveness": TCP}})
BOX = container(WATCHED.obj)
RUN = (BOX.id, BOX.started_at)
PROBE: Probe = OneSuccessProbe(tcp_socket=TcpSocketAction(port=80), failure_threshold=3)


def health(checked: ProbeProgress | None, failures: int = 0, **changes: Any) -> dict[str, float]:
    """By status, what is told of the sandbox whose probes have come to that."""
    observed = snapshot(WATCHED)
    memory = instance_state(checked=checked)
    tally = Tally(ProbeResult("failure"), failures=failures)
    probed = ProbeState(RUN, (Watch("liveness", PROBE, RUN, 1, 0.0),), {"liveness": tally})
    instances, probes = {WATCHED.obj.uid: instance(WATCHED.obj, memory)}, {WATCHED.obj.uid: probed}
    return told(changed_snapshot(observed, instances=instances, probes=probes, **changes))


def told(seen: Snapshot) -> dict[str, float]:
    samples = scrape(ContainerCollector(lambda: seen, MadeUpUsage(), detail=True).collect).samples
    return {
        sample.labels["status"]: sample.value for sample in samples if sample.name == "paddock_container_health_status"
    }


def only(status: str) -> dict[str, float]:
    return {entry: float(entry == status) for entry in ("starting", "healthy", "unhealthy", "none")}


def test_a_sandbox_without_probes_has_none() -> None:
    assert told(snapshot(PLAIN)) == only("none")


@pytest.mark.parametrize(
    ("checked", "failures", "expected"),
    [
        (None, 0, "starting"),
        (ProbeProgress(("another run", 1.0), started=True, ready=True), 0, "starting"),
        (ProbeProgress(RUN, started=True), 0, "starting"),
        (ProbeProgress(RUN, started=True, ready=True), 0, "healthy"),
        (ProbeProgress(RUN, started=True, ready=True), 2, "healthy"),
        (ProbeProgress(RUN, started=True, ready=True), 3, "unhealthy"),
        (ProbeProgress(RUN, started=True, ready=True, ended="LivenessProbeFailed"), 0, "unhealthy"),
    ],
)
def test_what_probes_came_to(checked: ProbeProgress | None, failures: int, expected: str) -> None:
    assert health(checked, failures) == only(expected)
