"""Patch one object: its spec and the users' metadata, checked and admitted as apply does it.

The last applied configuration stays: the next apply of that file keeps the fields that only a patch set.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

import structlog
from pydantic import ValidationError

from controller.documents import aliases
from controller.documents.document import without_nulls
from controller.kinds.common.problem import Problem, field_text
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.listing import serialize
from controller.service.objects import patch_metadata
from controller.service.objects.json_patch import BadPatch, Mismatch, json_patch, merge_patch
from controller.service.objects.objects import not_found
from controller.service.objects.patch_metadata import Referrer, model_problems
from controller.service.objects.pipeline import PendingWrite, Pipeline, WriteTransaction, with_spec
from controller.service.sources import PatchableSource, Source

PatchType = Literal["merge", "json"]
_log = structlog.get_logger("paddock.patch")


class Patch:
    """The use-case."""

    def __init__(self, pipeline: Pipeline, sources: Mapping[str, Source] = MappingProxyType({})) -> None:
        """`sources` are those of the computed kinds, of which some are patchable."""
        self._pipeline, self._sources = pipeline, sources

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Any,
        *,
        type_: PatchType = "merge",
        dry_run: bool = False,
        patched_by: str = "",
    ) -> StoredObject:
        """Return the patched object. One that does not change is not written.

        Raises NotFound, Conflict (a failed `test`, another resourceVersion or uid, or an object that is
        being deleted), BadRequest for a patch that can't be read, Invalid with every reason, or ServiceUnavailable.
        """
        errors.check_built_in(kind, name)
        with self._pipeline.transaction() as writing:
            transaction = writing.transaction
            current = transaction.get(kind.name, namespace, name) or self._unpatched(kind, name)
            if current is None:
                raise not_found(kind, namespace, name)
            try:
                pending = _patch(writing, kind, current, body, type_)
            except RecursionError as error:
                raise errors.BadRequest("the patch is nested too deeply; send fewer levels") from error
            patched = pending.obj
            if dry_run or patched == current:
                return patched
            if patched.deleted_at is not None and not patched.finalizers:
                transaction.remove(current)
            else:
                [patched] = writing.put([pending])
        self._pipeline.wake()
        _log.info("patched", object=str(patched.ref), generation=patched.generation, by=patched_by)
        return patched

    def _unpatched(self, kind: Kind, name: str) -> StoredObject | None:
        """Return an object of a computed kind that nobody has patched yet."""
        return cast("PatchableSource", self._sources[kind.name]).unpatched(name) if kind.patchable else None


def _patch(writing: WriteTransaction, kind: Kind, current: StoredObject, body: Any, type_: PatchType) -> PendingWrite:
    """Return the patched object, checked and admitted. Raises Invalid with every problem."""
    before = serialize.obj(current)
    if type_ == "merge" and isinstance(body, Mapping) and "spec" in body:
        body = {**body, "spec": aliases.resolve_spec(body["spec"], kind.name)}
    after = _carried_out(before, body, type_)
    _check(current, before, after)
    metadata, spec = after["metadata"], without_nulls(aliases.resolve_spec(_mutable(after["spec"]), kind.name))
    finalizers, problems = patch_metadata.finalizers(current, metadata.get("finalizers"))
    problems += patch_metadata.problems_of(current, metadata)
    references = _mutable(metadata.get("ownerReferences") or ())
    target = Referrer(kind, current.namespace, current.name, tuple(references))
    wrong = _schema_problems(kind, current, spec)
    normal, refusals = (None, wrong) if wrong else writing.admit(target, spec)
    problems += refusals
    if problems or normal is None:
        raise errors.invalid(problems)
    obj = with_spec(kind, patch_metadata.with_metadata(current, metadata), normal, finalizers=finalizers)
    changes_owners = references != _mutable(current.owner_references)
    return writing.check(PendingWrite(target, current, obj), resolve_owners=changes_owners)


def _mutable(value: Any) -> Any:
    """Return a mutable copy of nested mappings and lists."""
    if isinstance(value, Mapping):
        return {key: _mutable(element) for key, element in value.items()}
    return [_mutable(element) for element in value] if isinstance(value, list | tuple) else value


def _carried_out(before: serialize.Json, body: Any, type_: PatchType) -> Any:
    """Return the patched document. Empty labels and annotations exist in it, so that a JSON patch can add to them."""
    target = _mutable(before)
    if type_ == "merge":
        if not isinstance(body, Mapping):
            raise errors.BadRequest('a merge patch is a mapping, such as {"spec": {"runState": "Suspended"}}')
        return merge_patch(target, body)
    for name, empty in (("labels", {}), ("annotations", {}), ("finalizers", []), ("ownerReferences", [])):
        target["metadata"].setdefault(name, empty)
    try:
        return json_patch(target, body)
    except Mismatch as error:
        raise errors.Conflict(f"nothing was changed: {error}; read the object again") from error
    except BadPatch as error:
        raise errors.BadRequest(f"the patch can't be carried out: {error}") from error


def _check(current: StoredObject, before: serialize.Json, after: Any) -> None:
    """Refuse changes to fields that are not patchable, and failed preconditions."""
    subject = f"{current.kind.lower()}/{current.name}"
    parts = {"metadata": Mapping, "spec": Mapping}
    if not isinstance(after, Mapping) or any(
        not isinstance(after.get(name), type_of_part) for name, type_of_part in parts.items()
    ):
        raise errors.invalid([Problem.of_request("", "an object must keep its metadata and its spec, both mappings")])
    metadata = after["metadata"]
    if metadata.get("uid", current.uid) != current.uid:
        raise errors.Conflict(f"{subject} was deleted and recreated since; read it again")
    if metadata.get("resourceVersion", str(current.resource_version)) != str(current.resource_version):
        raise errors.Conflict(f"{subject} was changed since (it is at {current.resource_version}); read it again")
    is_deleting = current.deleted_at is not None
    free = ("finalizers",) if is_deleting else patch_metadata.PATCHABLE
    fixed = _differing("metadata", before["metadata"], metadata, (*free, "resourceVersion", "uid"))
    fixed += _differing("", before, after, ("metadata",) if is_deleting else ("metadata", "spec"))
    if is_deleting and (fixed or before["metadata"].get("finalizers") == metadata.get("finalizers")):
        text = f"{subject} is being deleted; wait until it is gone, then create it again"
        raise errors.Conflict(f"{text} (of one that is being deleted only metadata.finalizers can be patched)")
    if fixed:
        message = "can't be patched: only spec and metadata's labels, annotations, finalizers and ownerReferences can"
        raise errors.invalid(
            [Problem("", 0, column=0, field=field, message=message, reason="FieldValueForbidden") for field in fixed]
        )


def _differing(parent: str, before: Mapping[str, Any], after: Mapping[str, Any], free: tuple[str, ...]) -> list[str]:
    names = [name for name in {**before, **after} if name not in free and before.get(name) != after.get(name)]
    return [f"{parent}.{name}" if parent else str(name) for name in names]


def _schema_problems(kind: Kind, current: StoredObject, spec: Mapping[str, Any]) -> list[Problem]:
    """Return the schema's problems with a spec. Unknown fields are let through where they are stored already."""
    try:
        kind.spec.model_validate(spec, by_alias=True, by_name=False)
    except ValidationError as error:
        stored = {field_text(("spec", *path)) for path in _unknown_fields(kind, current.spec)}
        return [problem for problem in model_problems(kind.spec, error, "spec", spec) if problem.field not in stored]
    return []


def _unknown_fields(kind: Kind, spec: Mapping[str, Any]) -> set[tuple[str | int, ...]]:
    try:
        kind.spec.model_validate(spec, by_alias=True, by_name=False)
    except ValidationError as error:
        return {tuple(fault["loc"]) for fault in error.errors() if fault["type"] == "extra_forbidden"}
    return set()
