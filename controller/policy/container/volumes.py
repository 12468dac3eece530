"""Users of volumes, from stored specs as they are: also those that this version can't read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.volume import HostVolume
from controller.policy.container.mounts import claimed_name


@dataclass(frozen=True, slots=True)
class User:
    """An object that names a volume; `is_reclaimed`: the volume is to be deleted with it."""

    kind: str
    name: str
    is_reclaimed: bool = False
    is_being_deleted: bool = False

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.name}" + (" (being deleted)" if self.is_being_deleted else "")


class Users:
    """Users of the volumes of one namespace: its sandboxes, its templates, and the pools of those."""

    def __init__(
        self, sandboxes: Sequence[StoredObject], templates: Sequence[StoredObject], pools: Sequence[StoredObject]
    ) -> None:
        self._users: dict[str, list[User]] = {}
        specs = {template.name: template.spec for template in templates}
        self._unknown = {sandbox.name: sandbox for sandbox in sandboxes if _template(sandbox, specs) is None}
        for sandbox in sandboxes:
            for volume, is_reclaimed in _of_sandbox(sandbox, specs):
                self._add(volume, sandbox, is_reclaimed=is_reclaimed)
        for template in templates:
            for volume, _ in _volumes_of(template.spec.get("volumes")):
                self._add(volume, template)
        for pool in pools:
            for volume, _ in _volumes_of(specs.get(_template_name(pool.spec), {}).get("volumes")):
                self._add(volume, pool)

    def of(self, volume: HostVolume) -> tuple[User, ...]:
        """Return the users of a volume. A sandbox uses its own volume even if its template is missing."""
        users = self._users.get(volume.name, [])
        owner = self._unknown.get(volume.claimed_by)
        if owner is not None:
            users = [User(owner.kind, owner.name, is_being_deleted=owner.deleted_at is not None), *users]
        return tuple(users)

    def _add(self, volume: str, by: StoredObject, *, is_reclaimed: bool = False) -> None:
        user = User(by.kind, by.name, is_reclaimed, by.deleted_at is not None)
        users = self._users.setdefault(volume, [])
        if all((known_user.kind, known_user.name) != (user.kind, user.name) for known_user in users):
            users.append(user)


def deleted_with_last_user(users: Sequence[User]) -> bool:
    """Return True if a volume is deleted with the last sandbox that names it: all of them say so."""
    sandboxes = [user for user in users if user.kind == "Sandbox"]
    return bool(sandboxes) and all(sandbox.is_reclaimed for sandbox in sandboxes)


def _of_sandbox(obj: StoredObject, templates: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Yield the volumes that a sandbox names, and True for each to be deleted with it."""
    template = _template(obj, templates) or {}
    yield from _volumes_of(template.get("volumes"))
    for claim, is_reclaimed in _volumes_of(template.get("volumeClaimTemplates")):
        yield claimed_name(claim, obj.name), is_reclaimed
    workspace = obj.spec.get("workspace")
    yield from _volumes_of([workspace.get("volume")] if isinstance(workspace, Mapping) else None)


def _template(obj: StoredObject, templates: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the template that a sandbox holds or names; None if it is missing."""
    inline = obj.spec.get("template")
    return inline if isinstance(inline, Mapping) else templates.get(_template_name(obj.spec))


def _volumes_of(listed: object) -> Iterator[tuple[str, bool]]:
    for entry in listed if isinstance(listed, Sequence) else ():
        if isinstance(entry, Mapping):
            yield str(entry.get("name", "")), entry.get("reclaimPolicy") == "Delete"


def _template_name(spec: Mapping[str, Any]) -> str:
    ref = spec.get("templateRef")
    return str(ref.get("name", "")) if isinstance(ref, Mapping) else ""
