"""Compose files given with --compose: read and checked here, so that every problem and note has its position."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from controller.cli.errors import CliError
from controller.cli.objects import files
from controller.cli.options import DEFAULT_NAMESPACE, located
from controller.cli.text.output import note
from paddock._client.errors import Refused, Unavailable

if TYPE_CHECKING:
    from controller.cli.client import Client
    from controller.documents.compose.build import Build
    from controller.documents.compose.compose import Composed, Project
    from controller.documents.compose.element import Element
    from controller.documents.document import Document
    from controller.kinds.common.problem import Problem

_MOST_TEXT = 256 << 10
_REMEDY = "copy it into the folder, or allow it (--allow-outside)"
F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--compose", "compose_file", metavar="FILE", help="A Compose file instead of spec files."),
    click.option(
        "--project", metavar="NAME", help="Name of the Compose project. [default: the file's `name:`, or its folder]"
    ),
    click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the Compose file."),
)
allow_outside_option = click.option(
    "--allow-outside", is_flag=True, help="Send files and folders that lie outside of the Compose file's folder, too."
)


def compose_options(command: F) -> F:
    """Add --compose, --project and --var."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ComposeFile:
    """A Compose file, and the options that it is read with. `folder` is where it lies on this machine ("": nowhere).

    `from_environment` are the names of those variables that are this process's own. `outside` are problems: files that
    it names, and that were not read since they lie outside of its folder.
    """

    file: str
    text: str
    project: "Project"
    folder: str = ""
    from_environment: tuple[str, ...] = ()
    outside: tuple["Problem", ...] = ()
    allow_outside: bool = False

    @classmethod
    def of(
        cls, name: str | None, project: str | None, variables: Sequence[str], *, allow_outside: bool = False
    ) -> "ComposeFile | None":
        """Read the file; None if none is given. Raises UsageError, CliError, ClientError."""
        if name is None:
            if project or variables or allow_outside:
                raise click.UsageError(
                    "--project, --var and --allow-outside are options of a Compose file; add --compose FILE"
                )
            return None
        return cls.read([name], project, variables, allow_outside=allow_outside)

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
        allow_outside: bool = False,
    ) -> "ComposeFile":
        """Read a file and those that are merged into it, and what they name. Raises UsageError, CliError, ClientError.

        Variables are, first to last: --var, the environment, the `env_files` or `.env` beside the file.
        """
        from controller.documents.compose.compose import Project, is_named
        from controller.documents.compose.mounts import like_name

        chosen = dict(_pair(variable) for variable in variables)
        sources = [source for name in names for source in files.read([name])]
        folder = "" if names[0] == "-" else str(Path(names[0]).parent.resolve())
        if not project and folder and not any(is_named(source["file"], source["text"]) for source in sources):
            project = chosen.get("COMPOSE_PROJECT_NAME") or os.environ.get("COMPOSE_PROJECT_NAME")
            project = project or like_name(Path(folder).name)
        texts = [source["text"] for source in sources]
        reader = _Reader(folder, allow_outside)
        all_variables = {**reader.dotenv(env_files), **os.environ, **chosen}
        active_profiles = frozenset((*profiles, *filter(None, all_variables.get("COMPOSE_PROFILES", "").split(","))))
        options = Project(
            project or "",
            _variables_for(all_variables, chosen, texts),
            folder,
            overrides=tuple((source["file"], source["text"]) for source in sources[1:]),
            profiles=active_profiles,
            services=frozenset(services),
        )
        options = reader.with_files(sources[0], options, all_variables, chosen, texts)
        if not located(click.get_current_context()).socket:
            options = replace(options, folder="")  # the daemon may run on another host, where this is another folder
        environment_names = tuple(name for name in options.variables if name in os.environ and name not in chosen)
        outside = tuple(reader.problems.values())
        return cls(sources[0]["file"], sources[0]["text"], options, folder, environment_names, outside, allow_outside)

    def composed(self, namespace: str | None) -> "Composed":
        """Return the documents. Raises CliError with all problems."""
        from controller.documents.compose.compose import read_compose
        from controller.kinds.registry import discover

        composed = read_compose(self.file, self.text, discover(), self.project, namespace=namespace)
        places = {(problem.file, problem.line, problem.column) for problem in self.outside}
        problems = [*self.outside]  # what the reader says at the same places follows from them
        problems += [
            problem for problem in composed.problems if (problem.file, problem.line, problem.column) not in places
        ]
        if problems:
            count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
            raise CliError("\n".join((f"{count}; nothing was changed", *map(str, problems))))
        return composed

    def composed_to_delete(self, client: "Client", namespace: str | None) -> "Composed":
        """Return the documents, with volumes for those VOLUMEs of images that can be read, and get some.

        Nothing that is wrong with an image keeps a project from being deleted. Raises CliError for a wrong file.
        """
        composed = self.composed(namespace)
        try:
            return self._with_image_volumes(client, composed, pulls=False).composed(namespace)
        except CliError:
            return composed

    def _with_image_volumes(self, client: "Client", composed: "Composed", *, pulls: bool) -> "ComposeFile":
        """Return the file with the VOLUMEs of its images. Raises CliError with those that can't be pulled, or read.

        An image that is not here is left out: which VOLUMEs it has is not known, and the daemon keeps those it has.
        """
        from controller.cli.runs.image_volumes import image_volumes

        volumes: dict[str, Sequence[str]] = {}
        problems: list[Problem] = []
        services = {sandbox: service for service, sandbox in composed.sandboxes.items()}
        for document in composed.documents:
            image = str(document.spec["template"]["image"])
            if image in volumes:
                continue
            try:
                volumes[image] = image_volumes(client, image, pulls=pulls)
            except Unavailable as error:
                problem = document.problem(("spec", "template", "image"), error.message)
                problems.append(replace(problem, field=f"services.{services[document.name]}.image"))
            except Refused:  # it may not be pulled, or is not here: applying says so, or its host pulls it
                continue
        if problems:
            raise CliError("\n".join(("nothing was changed", *map(str, problems))))
        return replace(self, project=replace(self.project, image_volumes=volumes))

    def build_folder(self, build: "Build") -> Path:
        """Return the folder that a build gets. Raises CliError for one outside of the file's own."""
        if not self.folder:
            raise CliError(f"{build.image}: the file's folder is not known; name the file (-f), or build it yourself")
        folder = Path(self.folder, build.context).resolve()
        if not self.allow_outside and not folder.is_relative_to(self.folder):
            raise CliError(
                f"service {build.service}: `build:` would send {folder}, outside of the Compose file's folder"
                f" {self.folder}; {_REMEDY}"
            )
        if not (folder / build.dockerfile).is_file():
            raise CliError(f"{folder / build.dockerfile}: there is no such file; `build:` of service {build.service}")
        return folder

    def prepare(
        self, options: dict[str, Any], namespace: str | None, client: "Client | None" = None, *, pulls: bool = False
    ) -> "tuple[ComposeFile, list[Document]]":
        """Set --applyset to the project's own set, and print the notes; return the file and its documents.

        With a client the VOLUMEs of its images are in the file; missing images are pulled for that if asked for.
        Raises CliError with all problems; UsageError if a set is given.
        """
        from controller.documents.compose.compose import apply_set_name

        if options["applyset"]:
            raise click.UsageError("a Compose project is an apply set of its own; leave --applyset out")
        file, composed = self, self.composed(namespace)
        if client is not None:
            file = self._with_image_volumes(client, composed, pulls=pulls)
            composed = file.composed(namespace)
        for remark in composed.notes:
            note(f"note: {remark}")
        if self.from_environment:
            note(f"note: the file takes these variables of your environment along: {', '.join(self.from_environment)}")
        options["applyset"] = apply_set_name(namespace or DEFAULT_NAMESPACE, composed.project)
        return file, composed.documents

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
        if self.project.image_volumes:
            compose_fields["imageVolumes"] = {
                image: [*volumes] for image, volumes in self.project.image_volumes.items()
            }
        return {"file": self.file, "text": self.text, "compose": compose_fields}


def _variables_for(all_variables: Mapping[str, str], chosen: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """Return the variables that are named in the texts, and those of --var: no others leave this machine."""
    from controller.documents.compose.compose import variable_names

    return {name: all_variables[name] for name in sorted(variable_names(texts)) if name in all_variables} | dict(chosen)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the files that a Compose file names; `problems`, by path, are those outside of its folder.

    Somebody else may have written the file, and what it names is sent to the daemon and shown to services.
    """

    folder: str
    allow_outside: bool
    problems: dict[str, "Problem"] = field(default_factory=dict)

    def dotenv(self, env_files: Sequence[str]) -> dict[str, str]:
        """Return the variables of these files, or of `.env` beside the Compose file if there is one."""
        from controller.documents.compose.env_file import read_variables
        from controller.kinds.common.problem import Problem

        paths = [Path(path) for path in env_files] or ([Path(self.folder, ".env")] if self.folder else [])
        variables: dict[str, str] = {}
        for path in paths:
            if not env_files and not path.is_file():
                continue
            if not env_files and self._is_outside(path.resolve()):
                self.problems[".env"] = Problem(str(path), 0, 0, "", self._message(path.resolve()))
                continue
            (source,) = files.read([str(path)])
            values, wrong = read_variables(source["text"], {**variables, **os.environ})
            if wrong:
                raise CliError(f"{path}:{wrong[0]}: must be NAME=VALUE")
            variables |= values
        return variables

    def with_files(
        self,
        source: Mapping[str, str],
        options: "Project",
        all_variables: Mapping[str, str],
        chosen: Mapping[str, str],
        texts: Sequence[str],
    ) -> "Project":
        """Return the options with the texts of all files that the Compose file names, and their variables."""
        from controller.documents.compose.compose import references

        while options.folder:
            places = dict(references(source["file"], source["text"], options))
            new_texts = {
                path: text
                for path, place in places.items()
                if path not in options.files and (text := self._text_of(path, place)) is not None
            }
            if not new_texts:
                break
            read_files = {**options.files, **new_texts}
            variables = _variables_for(all_variables, chosen, [*texts, *read_files.values()])
            options = replace(options, files=read_files, variables=variables)
        return options

    def _text_of(self, path: str, element: "Element") -> str | None:
        """Return the text of a file; None for a folder, for what is no text or not there, and for one outside.

        Folders of keys are never read. An absolute path is a folder of the host, or one that is allowed.
        """
        from controller.documents.compose.mounts import CLOCKS
        from controller.policy.container.mounts import CREDENTIAL_FOLDERS

        try:
            place = Path(self.folder, path).resolve()
            if path in CLOCKS or not set(place.parts).isdisjoint(CREDENTIAL_FOLDERS) or not place.is_file():
                return None
            if self._is_outside(place):
                self.problems[path] = element.problem(self._message(place))
                return None
            return place.read_text(encoding="utf-8") if place.stat().st_size <= _MOST_TEXT else None
        except (OSError, ValueError):
            return None

    def _is_outside(self, place: Path) -> bool:
        return not self.allow_outside and not place.is_relative_to(self.folder)

    def _message(self, place: Path) -> str:
        return f"{place} is not read, as it lies outside of the Compose file's folder {self.folder}; {_REMEDY}"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--var {text}: write NAME=VALUE")
    return name, value
