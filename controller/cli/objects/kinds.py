"""Objects as users name them (`sb/quickstart`, `sandboxes a b`), resolved to API paths by asking the daemon."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from controller.cli.client import PREFIX, Client, segment
from controller.cli.errors import CliError, Refused
from controller.documents.foreign_kinds import word_advice

ALL = "all"
SANDBOXES = "sandboxes"
_NAME = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MEANT = 3  # letters of a part of a kind's name, at least


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the daemon serves it."""

    plural: str
    singular: str
    kind: str
    namespaced: bool
    read_only: str = ""  # why it can't be written, and what to do instead
    watched: bool = True
    deletable: bool = True
    patchable: bool = True

    def path(self, namespace: str | None, name: str = "") -> str:
        """Return the path of the objects, or of one object. `namespace` None: all namespaces."""
        place = f"namespaces/{segment(namespace)}/" if self.namespaced and namespace is not None else ""
        return f"{place}{self.plural}" + (f"/{segment(name)}" if name else "")

    def word(self, name: str) -> str:
        """Return the prefix of a result line, as kubectl has it: `sandbox.paddock/quickstart`."""
        return f"{self.singular}.paddock/{name}"

    def check_writable(self) -> None:
        """Raise CliError for a read-only kind."""
        if self.read_only:
            raise CliError(f"{self.kind} is read-only: {self.read_only}")

    def check_patchable(self) -> None:
        """Raise CliError for a kind whose objects can't be changed at all."""
        if not self.patchable:
            self.check_writable()

    def check_deletable(self, *, by_name: bool) -> None:
        """Raise CliError for a kind whose objects can't be deleted, or only by name."""
        if not self.deletable:
            self.check_writable()
        if self.read_only and not by_name:
            raise CliError(
                f"{self.plural} can only be deleted by name; write `paddock delete {self.singular} NAME ...`"
            )


def read_named(client: Client, resource: Resource, place: str | None, name: str, *, rows: bool = False) -> Any:
    """Return the object of a name; where several hosts have one of that name, a list of them. Raises Refused."""
    try:
        return client.get(resource.path(place, name), table=rows)
    except Refused as error:
        if error.reason != "Conflict":
            raise
    return client.get(resource.path(place), table=rows, fieldSelector=f"metadata.name={name}")


@dataclass(frozen=True, slots=True)
class Target:
    """Objects of one kind given on a command line; no names: all of them."""

    resource: Resource
    names: tuple[str, ...]


class Kinds:
    """Kinds that the daemon serves, read once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._words: dict[str, Resource] = {}
        self._shown: list[str] = []
        for listed in client.get(PREFIX).get("resources", []):
            self._add(listed)

    def _add(self, listed: dict[str, Any]) -> None:
        resource = Resource(
            listed["name"],
            listed["singularName"],
            listed["kind"],
            listed["namespaced"],
            read_only=listed.get("readOnly", ""),
            watched="watch" in listed.get("verbs", ("watch",)),
            deletable="delete" in listed.get("verbs", ("delete",)),
            patchable="patch" in listed.get("verbs", ("patch",)),
        )
        for word in (listed["name"], listed["singularName"], *listed["shortNames"]):
            self._words[word] = resource
        self._shown.append("/".join((listed["name"], *listed["shortNames"])))

    @property
    def _listed_by_all(self) -> list[Resource]:
        """Kinds of a namespace that users write; `get all` shows them."""
        resources = dict.fromkeys(self._words.values())
        return [resource for resource in resources if resource.namespaced and not resource.read_only]

    def resource(self, word: str, place: str | None = None) -> Resource:
        """Return the kind with that name, singular or short name.

        With a namespace (`place`) the word may have meant a sandbox there, and the message says that there is none.
        """
        resource = self._words.get(word.lower().removesuffix(".paddock"))
        if resource is None:
            raise CliError(f"unknown kind `{word}`{self._advice(word.lower(), place)}")
        return resource

    def _advice(self, word: str, place: str | None) -> str:
        """Return what to write in place of an unknown kind."""
        if advice := word_advice(word):
            return f"; {advice}"
        if close := self._close(word):
            return f"; did you mean `{close}`?"
        no_sandbox = f", and no sandbox of namespace {place} is called so" if place is not None else ""
        return f"{no_sandbox}; known kinds: {', '.join((ALL, *self._shown))}"

    def _close(self, word: str) -> str:
        """Return the kind that this word is a part of (`pool` of `sandboxpool`) or nearly is; "" if there is none."""
        containing = (
            sorted((known_word for known_word in self._words if word in known_word), key=len)
            if len(word) >= _MEANT
            else []
        )
        spelled = difflib.get_close_matches(word, (ALL, *self._words), n=1, cutoff=0.9)  # a slip of the keyboard
        close = spelled or containing or difflib.get_close_matches(word, (ALL, *self._words), n=1, cutoff=0.7)
        return close[0] if close else ""

    def targets(self, arguments: Sequence[str], place: str | None = None) -> list[Target]:
        """Parse `KIND [NAME ...]`, `KIND,KIND` or `KIND/NAME ...`, as kubectl does.

        With a namespace (`place`), a word that is no kind but the name of a sandbox there means that sandbox.
        """
        if not arguments:
            raise click.UsageError("name a kind, such as `sandboxes`, or KIND/NAME")
        if any("/" in argument for argument in arguments):
            return [self._pair(argument) for argument in arguments]
        if arguments[0] == ALL and len(arguments) == 1:
            return [Target(resource, ()) for resource in self._listed_by_all]
        if place is not None and self._is_sandbox(arguments[0], place):
            return [Target(self.resource(SANDBOXES), tuple(arguments))]
        kinds = [self.resource(kind_word, place) for kind_word in arguments[0].split(",") if kind_word]
        return [Target(resource, tuple(arguments[1:])) for resource in kinds]

    def _is_sandbox(self, word: str, place: str) -> bool:
        """Return True for a word that is no kind, if a sandbox is called so."""
        if word.lower().removesuffix(".paddock") in self._words or not _NAME.fullmatch(word):
            return False
        try:
            self._client.get(self.resource(SANDBOXES).path(place, word))
        except Refused as error:
            if error.reason not in ("NotFound", "Forbidden"):
                raise
            return False
        return True

    def _pair(self, word: str) -> Target:
        kind, slash, name = word.partition("/")
        if not slash or not kind or not name or "/" in name:
            raise click.UsageError(f"`{word}`: when one argument is KIND/NAME, all must be")
        return Target(self.resource(kind), (name,))
