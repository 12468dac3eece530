"""Patching one object: its spec, labels and annotations, checked and admitted as apply does it.

What a file applied stays remembered as it was: the next apply of that file keeps what a patch set beside it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import structlog
from pydantic import BaseModel, ValidationError

from controller.kinds.document import without_nulls
from controller.kinds.envelope import Metadata
from controller.kinds.meta import StoredObject
from controller.kinds.observed import HostFacts
from controller.kinds.problem import Problem, field_text
from controller.kinds.registry import Kind
from controller.kinds.wording import faults
from controller.ports import Clock, Store, Wake
from controller.service import errors, wire
from controller.service.apply import Admit
from controller.service.json_patch import BadPatch, Mismatch, json_patch, merge_patch
from controller.service.normal import Normal, normalise, same
from controller.service.objects import not_found
from controller.service.quota import Facts, Fitting

PatchType = Literal["merge", "json"]
_log = structlog.get_logger("paddock.patch")


class Patch:
    """The use-case; `wake` is called after each commit that changed something."""

    def __init__(self, *, store: Store, admit: Admit, wake: Wake, clock: Clock, facts: Facts = HostFacts) -> None:
        self._facts = facts
        self._store, self._admit, self._wake, self._clock = store, admit, wake, clock

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
        """The object as it is then. One that says the same afterwards is not written.

        Raises NotFound, Conflict (a `test`, a resourceVersion or a uid that does not hold; an object that is being
        deleted), BadRequest for a patch that can't be read, Invalid with every reason, or ServiceUnavailable.
        """
        with errors.store_in_words(), self._store.transaction() as transaction:
            current = transaction.get(kind.name, namespace, name)
            if current is None:
                raise not_found(kind, namespace, name)
            wanted = self._patched(kind, current, body, type_)
            unfitting = list(Fitting(transaction, [wanted], self._facts()).refusals(wanted))
            if unfitting:
                raise errors.invalid([Problem("", 0, 0, field, message) for field, message in unfitting])
            if dry_run or wanted == current:
                return wanted
            wanted = transaction.put(wanted)
        self._wake()
        _log.info("patched", object=str(wanted.ref), generation=wanted.generation, by=patched_by)
        return wanted

    def _patched(self, kind: Kind, current: StoredObject, body: Any, type_: PatchType) -> StoredObject:
        before = wire.obj(current)
        after = _carried_out(before, body, type_)
        _check(current, before, after)
        metadata, spec = after["metadata"], without_nulls(_plain(after["spec"]))
        problems = _metadata_problems(metadata)
        normal, wrong = _read(kind, current, spec)
        problems += wrong
        if normal is not None:
            refusals = self._admit(kind, normal.model, current.namespace, current.name)
            problems += [Problem("", 0, 0, field, message) for field, message in refusals]
        if problems or normal is None:
            raise errors.invalid(problems)
        unmoved = same(kind, current.spec, normal)
        return replace(
            current,
            spec=current.spec if unmoved else normal.stored,
            generation=current.generation + (not unmoved),
            labels=without_nulls(metadata.get("labels") or {}),
            annotations=without_nulls(metadata.get("annotations") or {}),
        )


def _plain(value: Any) -> Any:
    """Mappings and lists that may be changed."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _carried_out(before: wire.Json, body: Any, type_: PatchType) -> Any:
    """The patched document; labels and annotations are there to be added to, also where they are empty."""
    target = _plain(before)
    if type_ == "merge":
        if not isinstance(body, Mapping):
            raise errors.BadRequest('a merge patch is a mapping, such as {"spec": {"runState": "Suspended"}}')
        return merge_patch(target, body)
    for name in ("labels", "annotations"):
        target["metadata"].setdefault(name, {})
    try:
        return json_patch(target, body)
    except Mismatch as error:
        raise errors.Conflict(f"nothing was changed: {error}; read the object again") from error
    except BadPatch as error:
        raise errors.BadRequest(f"the patch can't be carried out: {error}") from error


def _check(current: StoredObject, before: wire.Json, after: Any) -> None:
    """Refuse what a patch may not touch, and preconditions that do not hold."""
    word = f"{current.kind.lower()}/{current.name}"
    parts = {"metadata": Mapping, "spec": Mapping}
    if not isinstance(after, Mapping) or any(not isinstance(after.get(name), each) for name, each in parts.items()):
        raise errors.invalid([Problem("", 0, 0, "", "an object must keep its metadata and its spec, both mappings")])
    metadata = after["metadata"]
    if metadata.get("uid", current.uid) != current.uid:
        raise errors.Conflict(f"{word} was deleted and created anew since; read it again")
    if metadata.get("resourceVersion", str(current.resource_version)) != str(current.resource_version):
        raise errors.Conflict(f"{word} was changed since (it is at {current.resource_version}); read it again")
    if current.deleted_at is not None:
        raise errors.Conflict(f"{word} is being deleted; wait until it is gone, then create it anew")
    free = ("labels", "annotations", "resourceVersion", "uid")
    fixed = _differing("metadata", before["metadata"], metadata, free)
    fixed += _differing("", before, after, ("metadata", "spec"))
    if fixed:
        words = "can't be patched: only spec, metadata.labels and metadata.annotations can"
        raise errors.invalid([Problem("", 0, 0, field, words, "FieldValueForbidden") for field in fixed])


def _differing(around: str, before: Mapping[str, Any], after: Mapping[str, Any], free: tuple[str, ...]) -> list[str]:
    names = [name for name in {**before, **after} if name not in free and before.get(name) != after.get(name)]
    return [f"{around}.{name}" if around else str(name) for name in names]


def _metadata_problems(metadata: Mapping[str, Any]) -> list[Problem]:
    kept = {name: metadata.get(name) or {} for name in ("labels", "annotations")}
    read = {"name": metadata["name"], **without_nulls(kept)}
    try:
        Metadata.model_validate(read, by_alias=True, by_name=False)
    except ValidationError as error:
        return _problems(Metadata, error, "metadata", read)
    return []


def _read(kind: Kind, current: StoredObject, spec: Mapping[str, Any]) -> tuple[Normal | None, list[Problem]]:
    """The spec as it would be stored. Fields that are not known are let through only where they are stored already."""
    known = _unknown(kind, current.spec)
    try:
        kind.spec.model_validate(spec, by_alias=True, by_name=False)
    except ValidationError as error:
        found = _problems(kind.spec, error, "spec", spec)
        stored = {field_text(("spec", *path)) for path in known}
        wrong = [each for each in found if each.field not in stored]
        if wrong:
            return None, wrong
    return normalise(kind, spec), []


def _unknown(kind: Kind, spec: Mapping[str, Any]) -> set[tuple[str | int, ...]]:
    try:
        kind.spec.model_validate(spec, by_alias=True, by_name=False)
    except ValidationError as error:
        return {tuple(each["loc"]) for each in error.errors() if each["type"] == "extra_forbidden"}
    return set()


def _problems(model: type[BaseModel], error: ValidationError, part: str, value: Any) -> list[Problem]:
    def written(path: tuple[str | int, ...]) -> str:
        found = value
        for step in path[1:]:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return ""
        return found if isinstance(found, str) else ""

    found = faults(model, error, (part,), written)
    return [Problem("", 0, 0, field_text(each.path), each.message, each.reason) for each in found]
