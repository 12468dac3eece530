"""Models of a sandbox, in its status and in explanations. The gateway serves them; nothing is decided here."""

from collections.abc import Iterator

from controller.kinds.meta import Condition
from controller.kinds.observed.models import LISTENING
from controller.kinds.observed.observed import State
from controller.kinds.runtime.models import PORT
from controller.kinds.sandbox import ModelSource
from controller.plan.base.reconcile_context import ReconcileContext

TYPE = "ModelsReachable"


def condition(context: ReconcileContext) -> Iterator[Condition]:
    """Yield the ModelsReachable condition of a sandbox that names models."""
    if context.spec is None or not context.spec.models:
        return
    container, models = context.container, context.models
    if container is None or container.state not in (State.RUNNING, State.PAUSED):
        yield Condition(TYPE, "Unknown", "NotRunning", "the gateway listens in it while it runs")
    elif models is None:
        yield Condition(TYPE, "Unknown", "Pending", "the gateway does not listen in it yet")
    elif models.reason == LISTENING:
        yield Condition(TYPE, "True", LISTENING, f"at http://127.0.0.1:{PORT}")
    else:
        yield Condition(TYPE, "False", models.reason, models.message)


def desired_models(context: ReconcileContext) -> Iterator[tuple[str, str]]:
    """Yield the models that it may use as text, if it names any."""
    if context.spec is not None and context.spec.models:
        yield "models", ", ".join(_text(model) for model in context.spec.models)


def observed_models(context: ReconcileContext) -> Iterator[tuple[str, str]]:
    """Yield the state of its listener as text, if it names models."""
    for reachable in condition(context):
        yield "models", f"{reachable.reason}: {reachable.message}" if reachable.message else reachable.reason


def _text(source: ModelSource) -> str:
    if source.provider_ref is not None:
        return f"provider {source.provider_ref.name}"
    return f"modelserver {source.model_server_ref.name}" if source.model_server_ref else ""
