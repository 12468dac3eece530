"""Attestation on demand: read the sandbox from inside, and compare it with the rendered config."""

from dataclasses import dataclass, replace

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.plan.base.reconcile_context import ReconcileContext
from controller.plan.sandbox.attest import Verdict, verdict
from controller.plan.sandbox.object_context import context_of
from controller.policy.attest.report import Row, report
from controller.policy.levels.levels import Policy
from controller.policy.profiles import as_seen
from controller.ports import Clock, Engine
from controller.service import errors
from controller.service.explain.diff import LastSnapshot
from controller.service.objects.objects import Objects


@dataclass(frozen=True, slots=True)
class Attested:
    """The object, the verdict of `at` (Unix seconds), and its confinement row by row (empty if unreadable)."""

    obj: StoredObject
    at: float
    verdict: Verdict
    report: tuple[Row, ...] = ()


class Attest:
    """The use-case. It also updates the engine's observation, so that the loop acts on it."""

    def __init__(
        self,
        *,
        objects: Objects,
        engine: Engine,
        clock: Clock,
        snapshot: LastSnapshot,
        policy: Policy | None = None,
    ) -> None:
        self._objects, self._engine, self._clock, self._snapshot = objects, engine, clock, snapshot
        self._policy = policy or Policy()

    def attest(self, kind: Kind, namespace: str, name: str) -> Attested:
        """Attest one sandbox. Raises NotFound; ServiceUnavailable while the engine or the loop has no answer."""
        obj = self._objects.get(kind, namespace, name)
        last = self._snapshot()
        sandbox = last.desired.sandboxes.get(obj.uid) if last is not None else None
        if last is None or sandbox is None:
            raise errors.ServiceUnavailable("the daemon has not observed it yet; try again in a moment")
        for container in self._engine.observe().containers.get(obj.uid, ()):
            trouble = self._engine.observe_container(container.id)
            if trouble:
                raise errors.ServiceUnavailable(f"its container can't be observed: {trouble}; try again in a moment")
        now, observed = self._clock.now(), self._engine.observe()
        snapshot = replace(last, now=now, observed=observed)
        context = context_of(snapshot, sandbox, as_seen(self._policy, snapshot))
        return Attested(obj, now, verdict(context), _report(context))


def _report(context: ReconcileContext) -> tuple[Row, ...]:
    if context.rendered is None or context.container is None or context.container.inside is None:
        return ()
    return report(context.rendered.config, context.container.inside, context.container.runtime)
