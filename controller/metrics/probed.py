"""Health of a container, from its sandbox's probes."""

from controller.kinds.observed.observed import Container
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.probe import ProbeState


def health_of(snapshot: Snapshot, container: Container) -> str:
    """Return the health: `none` without probes, `unhealthy` at the liveness probe's failure threshold."""
    instance, sandbox = snapshot.instances.get(container.uid), snapshot.desired.sandboxes.get(container.uid)
    template = sandbox.template if sandbox else None
    has_probes = template and (template.startup or template.readiness or template.liveness)
    if instance is None or not has_probes:
        return "none"
    return _of_run(instance.state, snapshot.measured.probes.get(container.uid), container.run)


def _of_run(state: InstanceState, probed: ProbeState | None, run: tuple[str, float]) -> str:
    checked = state.runs.probes
    if checked is None or checked.run != run:
        return "starting"
    if checked.ended or (probed is not None and probed.run == run and _dead(probed)):
        return "unhealthy"
    return "healthy" if checked.started and checked.ready else "starting"


def _dead(probed: ProbeState) -> bool:
    tally = probed.tallies.get("liveness")
    watch = next((watch for watch in probed.watches if watch.name == "liveness"), None)
    return tally is not None and watch is not None and tally.failures >= watch.probe.failure_threshold
