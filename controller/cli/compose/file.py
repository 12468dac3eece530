"""Compose files given with --compose: read and checked here, so that every problem and note has its position."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from controller.cli import files
from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, located
from controller.cli.output import note

if TYPE_CHECKING:
    from controller.documents.compose.compose import Composed, Project
    from controller.documents.document import Document

_MOST_TEXT = 256 << 10
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
    """A Compose file, and the options that it is read with. `folder` is where it lies on this machine ("": nowhere)."""

    file: str
    text: str
    project: "Project"
    folder: str = ""

    @classmethod
    def of(cls, name: str | None, project: str | None, variables: Sequence[str]) -> "ComposeFile | None":
        """Read the file; None if none is given. Raises UsageError, CliError, ClientError."""
        if name is None:
            if project or variables:
                raise click.UsageError("--project and --var are options of a Compose file; add --compose FILE")
            return None
        return cls.read([name], project, variables)

    @classmethod
    def read(
        cls,
        names: Sequence[str],
        project: str | None,
        variables: Sequence[str] = (),
        *,
        env_files: Sequence[str] = (),
        profiles: Sequence[str] = (),
        services: Sequence[str] = (),
    ) -> "ComposeFile":
        """Read a file and those that are merged into it, and what they name. Raises UsageError, CliError, ClientError.

        Variables are, first to last: --var, the environment, the `env_files` or `.env` beside the file.
        """
        from controller.documents.compose.compose import Project, is_named
        from controller.documents.compose.mounts import like_name

        chosen = dict(_pair(variable) for variable in variables)
        sources = [source for name in names for source in files.read([name])]
        folder = "" if names[0] == "-" else str(Path(names[0]).resolve().parent)
        if not project and folder and not any(is_named(source["file"], source["text"]) for source in sources):
            project = chosen.get("COMPOSE_PROJECT_NAME") or os.environ.get("COMPOSE_PROJECT_NAME")
            project = project or like_name(Path(folder).name)
        texts = [source["text"] for source in sources]
        all_variables = {**_dotenv(folder, env_files), **os.environ, **chosen}
        active_profiles = frozenset((*profiles, *filter(None, all_variables.get("COMPOSE_PROFILES", "").split(","))))
        options = Project(
            project or "",
            _variables_for(all_variables, chosen, texts),
            folder,
            overrides=tuple((source["file"], source["text"]) for source in sources[1:]),
            profiles=active_profiles,
            services=frozenset(services),
        )
        options = _with_files(sources[0], options, all_variables, chosen, texts)
        if not located(click.get_current_context()).socket:
            options = replace(options, folder="")  # the daemon may run on another host, where this is another folder
        return cls(sources[0]["file"], sources[0]["text"], options, folder)

    def composed(self, namespace: str | None) -> "Composed":
        """Return the documents. Raises CliError with all problems."""
        from controller.documents.compose.compose import read_compose
        from controller.kinds.registry import discover

        composed = read_compose(self.file, self.text, discover(), self.project, namespace=namespace)
        if composed.problems:
            count = f"{len(composed.problems)} problems" if len(composed.problems) > 1 else "1 problem"
            raise CliError("\n".join((f"{count}; nothing was changed", *map(str, composed.problems))))
        return composed

    def add_set(self, options: dict[str, Any], namespace: str | None) -> "list[Document]":
        """Set --applyset to the project's own set, and print the notes; return the documents.

        Raises CliError with all problems; UsageError if a set is given.
        """
        from controller.documents.compose.compose import apply_set_name

        if options["applyset"]:
            raise click.UsageError("a Compose project is an apply set of its own; leave --applyset out")
        composed = self.composed(namespace)
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
            "files": self.project.files,
            "overrides": self.project.overrides,
            "profiles": sorted(self.project.profiles),
            "services": sorted(self.project.services),
        }
        return {"file": self.file, "text": self.text, "compose": compose_fields}


def _dotenv(folder: str, env_files: Sequence[str]) -> dict[str, str]:
    """Return the variables of these files, or of `.env` beside the Compose file if there is one."""
    from controller.documents.compose.env_file import read_variables

    paths = [Path(path) for path in env_files] or [Path(folder) / ".env"] if folder or env_files else []
    variables: dict[str, str] = {}
    for path in paths:
        if not env_files and not path.is_file():
            continue
        (source,) = files.read([str(path)])
        values, wrong = read_variables(source["text"], {**variables, **os.environ})
        if wrong:
            raise CliError(f"{path}:{wrong[0]}: must be NAME=VALUE")
        variables |= values
    return variables


def _variables_for(all_variables: Mapping[str, str], chosen: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """Return the variables that are named in the texts, and those of --var: no others leave this machine."""
    from controller.documents.compose.compose import variable_names

    return {name: all_variables[name] for name in sorted(variable_names(texts)) if name in all_variables} | dict(chosen)


def _with_files(
    source: Mapping[str, str],
    options: "Project",
    all_variables: Mapping[str, str],
    chosen: Mapping[str, str],
    texts: Sequence[str],
) -> "Project":
    """Return the options with the texts of all files that the Compose file names, and their variables."""
    from controller.documents.compose.compose import references

    while options.folder:
        paths = set(references(source["file"], source["text"], options)) - options.files.keys()
        new_texts = {path: text for path in paths if (text := _text_of(options.folder, path)) is not None}
        if not new_texts:
            break
        read_files = {**options.files, **new_texts}
        options = replace(
            options, files=read_files, variables=_variables_for(all_variables, chosen, [*texts, *read_files.values()])
        )
    return options


def _text_of(folder: str, path: str) -> str | None:
    """Return the text of a file beside the Compose file; None for a folder, and for what is no text or not there.

    Neither absolute paths nor folders of keys are read: a file that somebody else wrote may name them.
    """
    from controller.policy.container.mounts import CREDENTIAL_FOLDERS

    try:
        place = Path(folder, path).resolve()
        if Path(path).is_absolute() or not set(place.parts).isdisjoint(CREDENTIAL_FOLDERS):
            return None
        if not place.is_file() or place.stat().st_size > _MOST_TEXT:
            return None
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--var {text}: write NAME=VALUE")
    return name, value
