"""The start of a WorkflowRun: what is fixed for it when it is created, judged by the rights of whoever creates it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from pydantic import ValidationError

from controller.kinds.access.access import AccessRequest
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.workflow import KIND as WORKFLOW
from controller.kinds.workflow import WorkflowSpec
from controller.kinds.workflowrun import KIND, WorkflowRunSpec, frozen_status
from controller.policy.workflowrun import change_refusals, refusals, values
from controller.ports import Transaction
from controller.service.access.access import decision

Found = tuple[str, str]
_REF = "spec.workflowRef.name"


class RunStart:
    """The check for one transaction: `pending_objects` are all that it is about to write; `admit` judges a sandbox."""

    def __init__(
        self,
        transaction: Transaction,
        pending_objects: Sequence[StoredObject],
        admit: Callable[[SandboxSpec, str, str], Iterable[Found]],
    ) -> None:
        self._transaction, self._admit = transaction, admit
        self._written = {(obj.kind, obj.namespace, obj.name): obj for obj in pending_objects}

    def refusals(self, obj: StoredObject, current: StoredObject | None) -> Iterator[Found]:
        """Yield (field, reason) for everything that forbids this run, or this change of one."""
        if obj.kind != KIND.name:
            return
        spec = WorkflowRunSpec.model_validate(obj.spec)
        if current is not None:
            yield from self._change_refusals(spec, current)
            return
        source, workflow = self._workflow(obj, spec)
        if workflow is None:
            yield _REF, source if isinstance(source, str) else "this version can't read it; apply the workflow again"
            return
        for refusal in refusals(spec, workflow):
            yield refusal.field, refusal.message
        yield from self._sandbox(obj, spec, workflow)

    def with_fixed_workflow(self, obj: StoredObject) -> StoredObject:
        """Return a new run with its workflow and parameters fixed in its status."""
        spec = WorkflowRunSpec.model_validate(obj.spec)
        source, workflow = self._workflow(obj, spec)
        if workflow is None:
            return obj
        stored_workflow = source if isinstance(source, StoredObject) else None
        return replace(obj, status=frozen_status(workflow, values(spec, workflow), stored_workflow))

    def _change_refusals(self, spec: WorkflowRunSpec, current: StoredObject) -> Iterator[Found]:
        try:
            before = WorkflowRunSpec.model_validate(current.spec)
        except ValidationError:
            return
        yield from (
            (refusal.field, refusal.message)
            for refusal in change_refusals(before, spec, current.status.get("phase", ""))
        )

    def _workflow(
        self, obj: StoredObject, spec: WorkflowRunSpec
    ) -> tuple[StoredObject | str | None, WorkflowSpec | None]:
        """Return the stored workflow, or why there is none, and its spec."""
        if spec.workflow is not None:
            return None, spec.workflow
        name = spec.workflow_ref.name if spec.workflow_ref else ""
        key = (WORKFLOW.name, obj.namespace, name)
        stored_workflow = self._written.get(key) or self._transaction.get(*key)
        if stored_workflow is None or stored_workflow.deleted_at is not None:
            where = f"does not exist in namespace `{obj.namespace}`; apply it first"
            problem = where if stored_workflow is None else "is being deleted; wait, and apply it again"
            return f"workflow `{name}` {problem}", None
        try:
            return stored_workflow, WorkflowSpec.model_validate(stored_workflow.spec)
        except ValidationError:
            return stored_workflow, None

    def _sandbox(self, obj: StoredObject, spec: WorkflowRunSpec, workflow: WorkflowSpec) -> Iterator[Found]:
        if spec.sandbox_ref is not None:
            name = spec.sandbox_ref.name
            verdict = decision(AccessRequest("use", SANDBOX.name, obj.namespace, name, "exec"))
            sandbox = self._written.get((SANDBOX.name, obj.namespace, name))
            if not verdict.allowed:
                yield "spec.sandboxRef.name", verdict.reason
            elif sandbox is None and self._transaction.get(SANDBOX.name, obj.namespace, name) is None:
                yield "spec.sandboxRef.name", f"sandbox `{name}` does not exist in namespace `{obj.namespace}`"
        elif workflow.sandbox is not None:
            verdict = decision(AccessRequest("create", SANDBOX.name, obj.namespace))
            if not verdict.allowed:
                yield _REF, f"its sandbox: {verdict.reason}"
            inline = spec.workflow is not None
            for field, message in self._admit(workflow.sandbox, obj.namespace, obj.name):
                below = field.removeprefix("spec")
                yield (f"spec.workflow.sandbox{below}", message) if inline else (_REF, f"sandbox{below}: {message}")
