"""Compose projects: a Compose file as an apply set of sandboxes, started and deleted together."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from controller.kinds.access.access import AccessRequest
from controller.kinds.common.apply_set import LABEL
from controller.kinds.common.problem import Problem
from controller.kinds.envelope import DEFAULT_NAMESPACE
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Registry
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service import errors
from controller.service.access.access import require
from controller.service.objects.apply import Applied, Apply, Source
from controller.service.objects.apply_set import ApplySet
from controller.service.objects.objects import Objects
from controller.service.parsing import check_turn

FILE = "compose.yaml"


@dataclass(frozen=True, slots=True)
class Upped:
    """Result of `up`. `notes` are differences from Compose, for people, with their positions in the file."""

    project: str
    applied: Sequence[Applied]
    notes: Sequence[Problem]


class Compose:
    """The use-cases, for the caller of the current request (service.access.access.acting)."""

    def __init__(self, apply: Apply, objects: Objects, registry: Registry) -> None:
        self._apply, self._objects, self._registry = apply, objects, registry

    def up(
        self,
        text: str,
        *,
        file: str = FILE,
        project: str = "",
        namespace: str | None = None,
        variables: Mapping[str, str] | None = None,
        folder: str = "",
        files: Mapping[str, str] | None = None,
        profiles: Collection[str] = (),
        dry_run: bool = False,
        remove_orphans: bool = False,
        applied_by: str = "",
    ) -> Upped:
        """Apply the services of a Compose file as the apply set of its project.

        `file` is for messages, `folder` where its relative binds begin on this host, `files` the texts of files beside
        it. `remove_orphans`: delete sandboxes of services that the file lacks. Raises Invalid with all problems.
        """
        from controller.documents.compose.compose import Project, apply_set_name

        check_turn(text)
        options = Project(project, variables or {}, folder, files or {}, profiles=frozenset(profiles))
        namespace = namespace or DEFAULT_NAMESPACE
        compose_file = self._apply.read_compose(file, text, options, namespace)
        if compose_file.problems:
            raise errors.invalid(compose_file.problems)
        applied = self._apply.apply(
            [Source(file, text, options)],
            namespace=namespace,
            dry_run=dry_run,
            as_set=ApplySet(apply_set_name(namespace, compose_file.project), prune=remove_orphans),
            applied_by=applied_by,
        )
        return Upped(compose_file.project, applied, compose_file.notes)

    def down(
        self,
        text: str = "",
        *,
        file: str = FILE,
        project: str = "",
        namespace: str | None = None,
        variables: Mapping[str, str] | None = None,
        deleted_by: str = "",
    ) -> Sequence[StoredObject]:
        """Request the deletion of a project's sandboxes, and of nothing else; its volumes stay.

        The project is given by its name, or by its file. None left is no error. Raises Invalid, Forbidden.
        """
        from controller.documents.compose.compose import Project, apply_set_name, project_name

        namespace = namespace or DEFAULT_NAMESPACE
        require(AccessRequest("delete", SANDBOX.name, namespace), self._registry)
        check_turn(text)
        name = project_name(file, text, Project(project, variables or {}))
        if isinstance(name, Problem):
            raise errors.invalid([name])
        labels = f"{LABEL}={apply_set_name(namespace, name)}"
        return self._objects.delete_all(SANDBOX, namespace, labels=labels, deleted_by=deleted_by)
