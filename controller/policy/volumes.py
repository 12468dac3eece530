"""Users of volumes, from stored specs as they are: also those that this version can't read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.volume import HostVolume
from controller.policy.mounts import claimed_name


@dataclass(frozen=True, slots=True)
class User:
    """An object that names a volume; `passing`: the volume is to be deleted with it."""

    kind: str
    name: str
    passing: bool = False
    leaving: bool = False

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.name}" + (" (being deleted)" if self.leaving else "")


class Users:
    """Users of the volumes of one namespace: its sandboxes, its templates, and the pools of those."""

    def __init__(
        self, sandboxes: Sequence[StoredObject], templates: Sequence[StoredObject], pools: Sequence[StoredObject]
    ) -> None:
        self._users: dict[str, list[User]] = {}
        specs = {each.name: each.spec for each in templates}
        self._unknown = {each.name: each for each in sandboxes if _template(each, specs) is None}
        for each in sandboxes:
            for volume, passing in _of_sandbox(each, specs):
                self._add(volume, each, passing=passing)
        for each in templates:
            for volume, _ in _named(each.spec.get("volumes")):
                self._add(volume, each)
        for each in pools:
            for volume, _ in _named(specs.get(_template_name(each.spec), {}).get("volumes")):
                self._add(volume, each)

    def of(self, volume: HostVolume) -> tuple[User, ...]:
        """Return the users of a volume. A sandbox uses its own volume even if its template is missing."""
        found = self._users.get(volume.name, [])
        owner = self._unknown.get(volume.claimed_by)
        if owner is not None:
            found = [User(owner.kind, owner.name, leaving=owner.deleted_at is not None), *found]
        return tuple(found)

    def _add(self, volume: str, by: StoredObject, *, passing: bool = False) -> None:
        user = User(by.kind, by.name, passing, by.deleted_at is not None)
        users = self._users.setdefault(volume, [])
        if all((each.kind, each.name) != (user.kind, user.name) for each in users):
            users.append(user)


def deleted_with_last_user(users: Sequence[User]) -> bool:
    """Return True if a volume is deleted with the last sandbox that names it: all of them say so."""
    sandboxes = [each for each in users if each.kind == "Sandbox"]
    return bool(sandboxes) and all(each.passing for each in sandboxes)


def _of_sandbox(obj: StoredObject, templates: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Yield the volumes that a sandbox names, and True for each to be deleted with it."""
    template = _template(obj, templates) or {}
    yield from _named(template.get("volumes"))
    for claim, passing in _named(template.get("volumeClaimTemplates")):
        yield claimed_name(claim, obj.name), passing
    workspace = obj.spec.get("workspace")
    yield from _named([workspace.get("volume")] if isinstance(workspace, Mapping) else None)


def _template(obj: StoredObject, templates: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the template that a sandbox holds or names; None if it is missing."""
    inline = obj.spec.get("template")
    return inline if isinstance(inline, Mapping) else templates.get(_template_name(obj.spec))


def _named(listed: object) -> Iterator[tuple[str, bool]]:
    for each in listed if isinstance(listed, Sequence) else ():
        if isinstance(each, Mapping):
            yield str(each.get("name", "")), each.get("reclaimPolicy") == "Delete"


def _template_name(spec: Mapping[str, Any]) -> str:
    ref = spec.get("templateRef")
    return str(ref.get("name", "")) if isinstance(ref, Mapping) else ""
