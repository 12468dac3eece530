"""Registry of kinds. A module of this package that defines `KIND` is a kind; nothing else has to be edited."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from graphlib import TopologicalSorter

from controller.kinds.base import Model
from controller.kinds.meta import StoredObject


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `paddock get`. `cell` gets the object and now (Unix seconds)."""

    title: str
    cell: Callable[[StoredObject, float], str]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """The path in the spec of another kind at which it names an object of this kind.

    A namespaced object is named in its namespace, a host-scoped one in any.
    """

    kind: str
    path: tuple[str, ...]

    def names(self, obj: StoredObject) -> str:
        """Return the name that an object of that kind refers to; "" if none."""
        node: object = obj.spec
        for step in self.path:
            node = node.get(step) if isinstance(node, Mapping) else None
        return node if isinstance(node, str) else ""


class Origin(Enum):
    """Source of the objects of a kind, and so what may be done with them.

    All but the stored ones are computed at each read by the source of the kind's name in service/sources: nobody can
    write or watch them.
    """

    STORED = "stored"
    """People write them."""
    RECORDED = "recorded"
    """Paddock records them. Their fields stand at the top, not in `spec`, and their table begins with their own
    columns, as Kubernetes does for events.
    """
    MANAGED = "managed"
    """Paddock stores one for each container; the daemon of its host alone knows its status."""
    ON_HOST = "on host"
    """Each belongs to one host (`status.host`), whose daemon alone knows it, and deletes it."""
    MACHINE = "machine"
    """Each is a machine. PATCH changes spec, labels and annotations: they are stored from the first patch on, and the
    source adds the status. The source deletes them, too.
    """


@dataclass(frozen=True, slots=True)
class Kind:
    """Description of a kind for the CLI and the API."""

    name: str
    """Name in documents, such as Sandbox."""
    plural: str
    """Plural in lower case, as in paths of the API."""
    spec: type[Model]
    """Model of its spec."""
    short_names: tuple[str, ...] = ()
    """Further names on the command line."""
    namespaced: bool = True
    """Its objects are in namespaces."""
    built_in: tuple[str, ...] = ()
    """Names of Paddock's own objects, which are read-only."""
    columns: tuple[Column, ...] = ()
    """Columns of its table."""
    finalizers: tuple[str, ...] = ()
    """Put on every new object: it is deleted only once the planner has seen that all it owned is gone."""
    referenced_by: tuple[Reference, ...] = ()
    """Kinds that refer to it: an object is not deleted before those that do."""
    scale: tuple[str, ...] = ()
    """Path below the spec that `paddock scale` sets; empty: none."""
    origin: Origin = Origin.STORED
    """Source of its objects."""
    read_only: str = ""
    """Text that names its writer, and says what to do instead. Empty: people write its objects."""
    status: type[Model] | None = None
    """Model of its status; None: it has none."""
    selectable: tuple[str, ...] = ()
    """Fields for field selectors besides name and namespace."""
    ends_later: Callable[[StoredObject], bool] = lambda _: False
    """True for an object whose work must end first when its deletion is requested: it keeps ENDING_FINALIZER, and its
    dependents, until the loop that does the work removes that.
    """

    def __post_init__(self) -> None:
        if bool(self.read_only) is (self.origin is Origin.STORED):
            raise ValueError(
                f"{self.name}: `read_only` says what to do instead, if objects are not {Origin.STORED.value}"
            )

    @property
    def deletable(self) -> bool:
        """True for a read-only kind whose source deletes objects."""
        return self.origin in (Origin.ON_HOST, Origin.MACHINE)

    @property
    def patchable(self) -> bool:
        """True for a read-only kind whose spec, labels and annotations PATCH changes."""
        return self.origin is Origin.MACHINE

    @property
    def by_host(self) -> bool:
        """True if the daemon of an object's host alone knows the object."""
        return self.origin is Origin.ON_HOST

    @property
    def seen_by_host(self) -> bool:
        """True if the daemon of an object's host alone knows its status."""
        return self.origin is Origin.MANAGED

    @property
    def flat(self) -> bool:
        """True if the fields stand at the top of an object."""
        return self.origin is Origin.RECORDED

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return every name of the kind on the command line, in lower case."""
        return (self.plural, self.name.lower(), *self.short_names)

    def is_built_in(self, name: str) -> str:
        """Return why nobody may write or delete the object of that name; "" if it is not built in."""
        if name not in self.built_in:
            return ""
        return f"{self.name} `{name}` is built in and can't be changed or deleted; use another name"


class Registry:
    """Finds kinds by name (`Sandbox`) or by any name of the command line (`sandboxes`, `sandbox`, `sb`)."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self._by_name: Mapping[str, Kind] = {kind.name: kind for kind in kinds}
        self._by_word: dict[str, Kind] = {}
        for kind in kinds:
            for word in kind.spellings:
                former = self._by_word.setdefault(word, kind)
                if former is not kind:
                    raise ValueError(f"`{word}` names both {former.name} and {kind.name}")

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_name.values())

    @cached_property
    def deletion_order(self) -> Mapping[str, int]:
        """Return the position of each kind, by name, in a deletion of several: referrers come first."""
        users = {kind.name: [referrer.kind for referrer in kind.referenced_by] for kind in self}
        return {name: place for place, name in enumerate(TopologicalSorter(users).static_order())}

    def by_name(self, name: str) -> Kind | None:
        return self._by_name.get(name)

    def by_word(self, word: str) -> Kind | None:
        return self._by_word.get(word.lower())


@cache
def discover() -> Registry:
    """Return the registry of all modules in this package that define `KIND`."""
    package = importlib.import_module("controller.kinds")
    kinds = []
    for module in pkgutil.iter_modules(package.__path__):
        kind = getattr(importlib.import_module(f"controller.kinds.{module.name}"), "KIND", None)
        if isinstance(kind, Kind):
            kinds.append(kind)
    return Registry(tuple(kinds))
