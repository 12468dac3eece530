"""Admission of a WorkflowRun, and what is fixed for it at its creation."""

from collections.abc import Iterator, Mapping

from controller.kinds.workflow import PARAMETER_BYTES, WorkflowSpec
from controller.kinds.workflowrun import RUN_ENDED, WorkflowRunSpec
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal
from controller.policy.workflow import admit_at

_CHANGEABLE = ("run_state", "active_deadline_seconds", "ttl_seconds_after_finished", "keep_sandbox")


def admit(spec: WorkflowRunSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a run by itself; `refusals` judges it with its workflow."""
    names = [parameter.name for parameter in spec.parameters]
    reasons = [
        Refusal(f"spec.parameters[{number}].name", f"parameter `{name}` is given twice; keep one")
        for number, name in enumerate(names)
        if name in names[:number]
    ]
    if spec.workflow is not None:
        reasons += admit_at(spec.workflow, policy, "spec.workflow")
    return tuple(reasons)


def values(spec: WorkflowRunSpec, workflow: WorkflowSpec) -> dict[str, str]:
    """Return the values of the workflow's parameters in this run; those without one are left out."""
    assigned = {parameter.name: parameter.value for parameter in spec.parameters}
    merged = {parameter.name: assigned.get(parameter.name, parameter.default) for parameter in workflow.parameters}
    return {name: value for name, value in merged.items() if value is not None}


def refusals(spec: WorkflowRunSpec, workflow: WorkflowSpec) -> Iterator[Refusal]:
    """Yield every reason why this run of the workflow can't begin."""
    names = {parameter.name for parameter in workflow.parameters}
    for number, parameter in enumerate(spec.parameters):
        if parameter.name not in names:
            listed = ", ".join(sorted(names)) or "none"
            message = f"`{parameter.name}` is not a parameter of the workflow; it has {listed}"
            yield Refusal(f"spec.parameters[{number}].name", message)
        if len(parameter.value.encode(errors="surrogatepass")) > PARAMETER_BYTES:
            message = f"is longer than {PARAMETER_BYTES} bytes; write it into a file of the sandbox"
            yield Refusal(f"spec.parameters[{number}].value", message)
    without = [parameter.name for parameter in workflow.parameters if parameter.name not in values(spec, workflow)]
    if without:
        message = f"{', '.join(f'`{name}`' for name in without)}: no value, and the workflow has no default; add it"
        yield Refusal("spec.parameters", message)
    if workflow.sandbox is None and spec.sandbox_ref is None:
        message = "the workflow describes no sandbox; add `sandboxRef: {name: ...}`, or `sandbox:` to the workflow"
        yield Refusal("spec.sandboxRef", message)


def change_refusals(before: WorkflowRunSpec, now: WorkflowRunSpec, phase: str = "Running") -> Iterator[Refusal]:
    """Yield a refusal for each field that can't be changed any more, in the run's phase."""
    for name, info in WorkflowRunSpec.model_fields.items():
        if name not in _CHANGEABLE and getattr(before, name) != getattr(now, name):
            yield Refusal(f"spec.{info.alias or name}", "is fixed when a run is created; create another run")
    if before.run_state == "Cancelled" and now.run_state == "Running":
        yield Refusal("spec.runState", "a cancelled run can't go on; create another run")
    if before.run_state == "Running" and now.run_state == "Cancelled" and phase in RUN_ENDED:
        yield Refusal("spec.runState", f"the run has already ended ({phase}), and there is nothing to cancel")


def sandbox_document(
    run: str, name: str, workflow: WorkflowSpec, labels: Mapping[str, str], api_version: str
) -> dict[str, object]:
    """Return the document of a run's own sandbox, owned by the run."""
    assert workflow.sandbox is not None
    spec = workflow.sandbox.model_dump(mode="json", by_alias=True, exclude_none=True)
    template = spec.get("template")
    if template is not None and template.get("command") is None and template.get("agent") is None:
        template["command"] = ["sleep", "infinity"]  # stages are commands beside it; it must not end by itself
        spec["lifecycle"]["shutdownGracePeriodSeconds"] = 0  # it would not heed SIGTERM
    return {
        "apiVersion": api_version,
        "kind": "Sandbox",
        "metadata": {
            "name": name,
            "labels": dict(labels),
            "ownerReferences": [{"kind": "WorkflowRun", "name": run}],
        },
        "spec": spec,
    }
