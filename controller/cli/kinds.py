"""Objects as users name them (`sb/quickstart`, `sandboxes a b`), resolved to API paths by asking the daemon."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from controller.cli.client import PREFIX, Client, segment
from controller.cli.errors import CliError, Refused

ALL = "all"
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
        self._words: dict[str, Resource] = {}
        self._shown: list[str] = []
        for each in client.get(PREFIX).get("resources", []):
            self._add(each)

    def _add(self, found: dict[str, Any]) -> None:
        resource = Resource(
            found["name"],
            found["singularName"],
            found["kind"],
            found["namespaced"],
            read_only=found.get("readOnly", ""),
            watched="watch" in found.get("verbs", ("watch",)),
            deletable="delete" in found.get("verbs", ("delete",)),
            patchable="patch" in found.get("verbs", ("patch",)),
        )
        for word in (found["name"], found["singularName"], *found["shortNames"]):
            self._words[word] = resource
        self._shown.append("/".join((found["name"], *found["shortNames"])))

    @property
    def _listed_by_all(self) -> list[Resource]:
        """Kinds of a namespace that users write; `get all` shows them."""
        found = dict.fromkeys(self._words.values())
        return [each for each in found if each.namespaced and not each.read_only]

    def resource(self, word: str) -> Resource:
        """Return the kind with that name, singular or short name."""
        found = self._words.get(word.lower().removesuffix(".paddock"))
        if found is None:
            close = self._close(word.lower())
            hint = f"did you mean `{close}`?" if close else f"known kinds: {', '.join((ALL, *self._shown))}"
            raise CliError(f"unknown kind `{word}`; {hint}")
        return found

    def _close(self, word: str) -> str:
        """Return the kind that this word is a part of (`pool` of `sandboxpool`) or nearly is; "" if there is none."""
        whole = sorted((each for each in self._words if word in each), key=len) if len(word) >= _MEANT else []
        close = whole or difflib.get_close_matches(word, (ALL, *self._words), n=1, cutoff=0.7)
        return close[0] if close else ""

    def targets(self, words: Sequence[str]) -> list[Target]:
        """Parse `KIND [NAME ...]`, `KIND,KIND` or `KIND/NAME ...`, as kubectl does."""
        if not words:
            raise click.UsageError("name a kind, such as `sandboxes`, or KIND/NAME")
        if any("/" in each for each in words):
            return [self._pair(each) for each in words]
        if words[0] == ALL and len(words) == 1:
            return [Target(each, ()) for each in self._listed_by_all]
        kinds = [self.resource(each) for each in words[0].split(",") if each]
        return [Target(each, tuple(words[1:])) for each in kinds]

    def _pair(self, word: str) -> Target:
        kind, slash, name = word.partition("/")
        if not slash or not kind or not name or "/" in name:
            raise click.UsageError(f"`{word}`: when one argument is KIND/NAME, all must be")
        return Target(self.resource(kind), (name,))
