"""Resources that a sandbox used during one attempt of a stage."""

from dataclasses import dataclass

from controller.kinds.common.labels import container_name
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import Usage
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.workflowrun import Run
from controller.ports import Engine, UsageReader
from controller.service import errors
from controller.service.objects.objects import Objects


@dataclass(frozen=True, slots=True)
class Reading:
    """Usage of one run of a container."""

    container: Container
    usage: Usage


class SandboxMeter:
    """Reads the counters of a run's sandbox. Thread-safe. Without a `reader` nothing is known."""

    def __init__(self, objects: Objects, engine: Engine, reader: UsageReader | None) -> None:
        self._objects, self._engine, self._reader = objects, engine, reader

    def read(self, run: Run) -> Reading | None:
        """Return the counters now; None if the sandbox does not run, or they can't be read."""
        if self._reader is None:
            return None
        try:
            obj = self._objects.get(SANDBOX, run.obj.namespace, run.sandbox_name)
        except errors.ServiceError:
            return None
        candidates = self._engine.observe().containers.get(obj.uid, ())
        expected_name = container_name(obj.name, obj.uid)
        container = next(
            (
                candidate
                for candidate in candidates
                if candidate.name == expected_name and candidate.state is State.RUNNING
            ),
            None,
        )
        usage = self._reader.read([container]).get(container.id) if container is not None else None
        return Reading(container, usage) if container is not None and usage is not None else None

    def usage_since(self, run: Run, before: Reading | None) -> tuple[float | None, int | None]:
        """Return CPU seconds since that reading, and the sandbox's highest memory in bytes; None: not known."""
        after = self.read(run) if before is not None else None
        if before is None or after is None:
            return None, None
        is_same_start = before.container.run == after.container.run
        base = before.usage.cpu_usage_seconds if is_same_start else 0.0  # counters begin with the container's start
        return max(0.0, after.usage.cpu_usage_seconds - base), after.usage.memory_peak_bytes
