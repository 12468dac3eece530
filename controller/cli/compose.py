"""Compose files given with --compose: read and checked here, so that every problem and note has its position."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from controller.cli import files
from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, located
from controller.cli.output import note

if TYPE_CHECKING:
    from controller.documents.compose.compose import Project
    from controller.documents.document import Document

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--compose", "compose_file", metavar="FILE", help="A Compose file instead of spec files."),
    click.option(
        "--project", metavar="NAME", help="Name of the Compose project. [default: the file's `name:`, or its folder]"
    ),
    click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the Compose file."),
)


def compose_options(command: F) -> F:
    """Add --compose, --project and --var."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ComposeFile:
    """A Compose file, and the options that it is read with."""

    file: str
    text: str
    project: "Project"

    @classmethod
    def of(cls, name: str | None, project: str | None, variables: Sequence[str]) -> "ComposeFile | None":
        """Read the file; None if none is given. Raises UsageError, CliError, ClientError."""
        if name is None:
            if project or variables:
                raise click.UsageError("--project and --var are options of a Compose file; add --compose FILE")
            return None
        from controller.documents.compose.compose import Project, is_named
        from controller.documents.compose.mounts import like_name

        values = dict(_pair(variable) for variable in variables)
        (source,) = files.read([name])
        folder = "" if name == "-" else str(Path(name).resolve().parent)
        if not project and folder and not is_named(name, source["text"]):
            project = like_name(Path(folder).name)
        if not located(click.get_current_context()).socket:
            folder = ""  # the daemon may run on another host, where this path is another folder
        return cls(source["file"], source["text"], Project(project or "", values, folder))

    def add_set(self, options: dict[str, Any], namespace: str | None) -> "list[Document]":
        """Set --applyset to the project's own set, and print the notes; return the documents.

        Raises CliError with all problems; UsageError if a set is given.
        """
        from controller.documents.compose.compose import apply_set_name, read_compose
        from controller.kinds.registry import discover

        if options["applyset"]:
            raise click.UsageError("a Compose project is an apply set of its own; leave --applyset out")
        composed = read_compose(self.file, self.text, discover(), self.project, namespace=namespace)
        if composed.problems:
            count = f"{len(composed.problems)} problems" if len(composed.problems) > 1 else "1 problem"
            raise CliError("\n".join((f"{count}; nothing was changed", *map(str, composed.problems))))
        for remark in composed.notes:
            note(f"note: {remark}")
        options["applyset"] = apply_set_name(namespace or DEFAULT_NAMESPACE, composed.project)
        return composed.documents

    def apply_set(self, namespace: str | None) -> str:
        """Return the apply set of its project, whatever else the file says. Raises CliError."""
        from controller.documents.compose.compose import apply_set_name, project_name

        name = project_name(self.file, self.text, self.project)
        if not isinstance(name, str):
            raise CliError(f"nothing was deleted\n{name}")
        return apply_set_name(namespace or DEFAULT_NAMESPACE, name)

    def body(self) -> dict[str, Any]:
        """Return the file as the API takes it."""
        compose_fields = {
            "project": self.project.name,
            "variables": self.project.variables,
            "folder": self.project.folder,
        }
        return {"file": self.file, "text": self.text, "compose": compose_fields}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--var {text}: write NAME=VALUE")
    return name, value
