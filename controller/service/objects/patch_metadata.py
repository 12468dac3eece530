"""Patches of an object's metadata: labels, annotations, foreign finalizers and owner references."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from controller.documents.document import without_nulls
from controller.documents.error_messages import faults
from controller.kinds.common.owner_reference import FOREGROUND_FINALIZER
from controller.kinds.common.problem import Path, Problem, field_text
from controller.kinds.envelope import Metadata
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind

PATCHABLE = ("labels", "annotations", "finalizers", "ownerReferences")
MOST_FINALIZERS = 16
_FINALIZER = re.compile(
    r"(?!paddock/)[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)


@dataclass(frozen=True, slots=True)
class Referrer:
    """A patched object as a WriteTarget: a document without a file."""

    kind: Kind
    namespace: str
    name: str
    owner_references: tuple[Mapping[str, Any], ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind.name, self.namespace, self.name

    def problem(self, path: Path, message: str) -> Problem:
        """Return a problem at that path, without a position in a file."""
        return Problem.of_request(field_text(path), message)


def problems_of(current: StoredObject, metadata: Mapping[str, Any]) -> list[Problem]:
    """Return every problem with the labels, annotations and owner references.

    Unchanged annotations are not checked: they may be older than a limit.
    """
    checked = {name: metadata.get(name) or {} for name in ("labels", "annotations")}
    if checked["annotations"] == current.annotations:
        del checked["annotations"]
    read = {"name": metadata["name"], **without_nulls(checked)}
    if metadata.get("ownerReferences") is not None:
        read["ownerReferences"] = metadata["ownerReferences"]
    try:
        Metadata.model_validate(read, by_alias=True, by_name=False)
    except ValidationError as error:
        return model_problems(Metadata, error, "metadata", read)
    return []


def finalizers(current: StoredObject, desired: Any) -> tuple[tuple[str, ...], list[Problem]]:
    """Return the finalizers after the patch, and the problems with them.

    Paddock's own can't be removed: that would leave a container without an object.
    """
    new_finalizers = list(desired or ()) if isinstance(desired, list | tuple | None) else None
    if new_finalizers is None or not all(isinstance(finalizer, str) for finalizer in new_finalizers):
        return current.finalizers, [_problem("must be a list of names such as `example.org/cleanup`")]
    own_finalizers = [finalizer for finalizer in current.finalizers if _is_own(finalizer)]
    problems = [
        _problem(
            f"`{finalizer}` is Paddock's own finalizer; leave it in the list, Paddock removes it when its work is done"
        )
        for finalizer in own_finalizers
        if finalizer not in new_finalizers
    ]
    added_finalizers = [finalizer for finalizer in dict.fromkeys(new_finalizers) if finalizer not in current.finalizers]
    problems += [
        _problem(f"`{finalizer[:80]}` is not a valid finalizer; use your own domain, such as `example.org/cleanup`")
        for finalizer in added_finalizers
        if not _FINALIZER.fullmatch(finalizer)
    ]
    if added_finalizers and current.deleted_at is not None:
        problems.append(_problem("the object is being deleted; finalizers can only be removed"))
    if len(new_finalizers) > MOST_FINALIZERS:
        problems.append(_problem(f"at most {MOST_FINALIZERS} finalizers"))
    return tuple(dict.fromkeys(new_finalizers)), problems


def with_metadata(current: StoredObject, metadata: Mapping[str, Any]) -> StoredObject:
    """Return the object with the patched labels and annotations."""
    return replace(
        current,
        labels=without_nulls(metadata.get("labels") or {}),
        annotations=without_nulls(metadata.get("annotations") or {}),
    )


def model_problems(model: type[BaseModel], error: ValidationError, section: str, value: Any) -> list[Problem]:
    """Return a model's errors as problems with field paths. `value` is the validated data, quoted in messages."""

    def text_at(path: tuple[str | int, ...]) -> str:
        node = value
        for step in path[1:]:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return ""
        return node if isinstance(node, str) else ""

    fault_list = faults(model, error, (section,), text_at)
    return [
        Problem("", 0, column=0, field=field_text(fault.path), message=fault.message, reason=fault.reason)
        for fault in fault_list
    ]


def _is_own(finalizer: str) -> bool:
    return finalizer == FOREGROUND_FINALIZER or finalizer.startswith("paddock/")


def _problem(message: str) -> Problem:
    return Problem.of_request("metadata.finalizers", message)
