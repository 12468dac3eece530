"""Parser of spec files: text into checked documents, with every problem of every document at once.

A document here is valid by itself. Admission on this host, and conflicts with stored objects, are checked later.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pydantic import BaseModel, ValidationError

from controller.documents import aliases
from controller.documents.error_messages import faults, kind_of, remedy_for_block
from controller.documents.foreign_kinds import document_advice
from controller.documents.model_fields import closest
from controller.documents.yaml_tree import REST_UNREPORTED, Node, Reading, Tree, ValueBudget
from controller.kinds.common.problem import MOST_PROBLEMS, Path, Problem
from controller.kinds.envelope import DEFAULT_NAMESPACE, TOP_FIELDS, Metadata, namespace_fault
from controller.kinds.registry import Kind, Registry
from controller.version import API_VERSION

MAX_VALUES = 20_000  # of one object, with what aliases stand for


@dataclass(frozen=True, slots=True)
class Document:
    """A document that is valid by itself."""

    read_tree: Callable[[], Tree]
    """Returns the document with the position of each field."""
    kind: Kind
    """Its kind."""
    namespace: str
    """Its namespace; empty: the kind has none."""
    name: str
    """Its name."""
    spec: Mapping[str, Any]
    """Its spec as written, nulls included."""
    labels: Mapping[str, Any]
    """Its labels as written, nulls included."""
    annotations: Mapping[str, Any]
    """Its annotations, likewise."""
    resource_version: str = ""
    """Version that must be the stored one; empty: any."""
    uid: str = ""
    """Uid that must be the stored one; empty: any."""
    owner_references: tuple[Mapping[str, Any], ...] = ()
    """Its owners."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind.name, self.namespace, self.name

    @property
    def tree(self) -> Tree:
        """The text's parts with their positions; the first use may read the file again."""
        return self.read_tree()

    def problem(self, path: Path, message: str) -> Problem:
        """Return a problem at that path of this document."""
        return self.tree.problem(path, message)

    def text(self, path: Path) -> str:
        """Return the scalar at that path as written; "" if there is none."""
        node = self.tree.find(path)
        return node.text if node else ""


def parse(
    file: str, text: str, registry: Registry, *, namespace: str | None = None, budget: ValueBudget | None = None
) -> tuple[list[Document], list[Problem]]:
    """Return the valid documents of a file, and the problems of the others.

    `namespace` is for documents that name none; one that names another is a problem. `budget`: see `read`.
    """
    reading, again = Reading(file, text, budget), _ReadAgain(file, text)
    problems: list[Problem] = []
    good: list[Document] = []
    for at, tree in enumerate(itertools.chain.from_iterable(_flatten(file_tree) for file_tree in reading)):
        if len(reading.problems) + len(problems) >= MOST_PROBLEMS:
            problems.append(tree.problem((), REST_UNREPORTED))
            break
        if tree.root.size > MAX_VALUES:
            message = f"has {tree.root.size:,} values (aliases counted as often as used); an object has at most"
            problems.append(tree.problem((), f"{message} {MAX_VALUES:,}: store large data elsewhere"))
            continue
        document, wrong = check_tree(tree, registry, namespace)
        problems += wrong
        if document is not None and not wrong:
            good.append(replace(document, read_tree=partial(again.tree, at, document.kind.name)))
    return good, _one_each_place([*reading.problems, *problems])


class _ReadAgain:
    """The trees of a file, read again when one is needed for a message: they take thirty times its text's memory."""

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text

    @cached_property
    def _trees(self) -> list[Tree]:
        return [document_tree for tree in Reading(self._file, self._text) for document_tree in _flatten(tree)]

    def tree(self, at: int, kind: str) -> Tree:
        """Return that document's tree in Paddock's own form."""
        tree = self._trees[at]
        deque(aliases.resolve(tree, kind), maxlen=0)
        return tree


def check_tree(tree: Tree, registry: Registry, namespace: str | None) -> tuple[Document | None, list[Problem]]:
    """Return the document of a tree, and its problems."""
    check = _Check(tree, registry, namespace)
    return check.run(), check.problems


def find_duplicates(documents: Sequence[Document]) -> list[Problem]:
    """Yield a problem for each document that describes an object a second time."""
    first_documents: dict[tuple[str, str, str], Document] = {}
    problems = []
    for document in documents:
        first = first_documents.setdefault(document.key, document)
        if first is not document:
            place = f" at {first.tree.file}:{first.tree.root.line}" if first.tree.file else ""
            problems.append(document.problem((), f"{document.kind.name} `{document.name}` is already defined{place}"))
    return problems


def _flatten(tree: Tree) -> Iterator[Tree]:
    """Yield the documents inside a `kind: List` (`get -o yaml` prints one for several objects)."""
    kind, items = tree.find(("kind",)), tree.find(("items",))
    if kind is None or kind.value != "List" or items is None or items.items is None:
        yield tree
        return
    for node in items.items:
        yield Tree(tree.file, node)


def _one_each_place(problems: list[Problem]) -> list[Problem]:
    """Return the first problem of each place and field, in the order of the file. Consequences of it are left out."""
    problems_by_place: dict[tuple[int, int, str], Problem] = {}
    for problem in problems:
        blank = problems_by_place.get((problem.line, problem.column, ""))
        if problem.line == 0 or blank is None:
            problems_by_place.setdefault((problem.line, problem.column, problem.field), problem)
    return sorted(problems_by_place.values(), key=lambda problem: (problem.line, problem.column))


class _Check:
    """Checks one document and collects its problems."""

    def __init__(self, tree: Tree, registry: Registry, namespace: str | None) -> None:
        self._tree, self._registry, self._namespace = tree, registry, namespace
        self.problems: list[Problem] = []

    def _say(self, path: Path, message: str, *, at_key: bool = False, reason: str = "FieldValueInvalid") -> None:
        self.problems.append(self._tree.problem(path, message, at_key=at_key, reason=reason))

    def run(self) -> Document | None:
        root = self._tree.root
        if root.fields is None:
            what = kind_of(root.plain())
            self._say((), f"a document must be a mapping with {', '.join(TOP_FIELDS[:4])}, not {what}")
            return None
        if self._foreign(root):
            return None
        if advice := self._of_others():
            self._say(("kind",), advice, reason="FieldValueNotSupported")
            return None
        self._top(root)
        kind = self._kind()
        if kind is not None and kind.read_only:
            self.problems = []  # this one problem is enough
            self._say(("kind",), f"{kind.name} is read-only: {kind.read_only}", reason="FieldValueForbidden")
            return None
        metadata = self._read(Metadata, "metadata")
        if kind is None:
            return None
        for path, message in aliases.resolve(self._tree, kind.name):
            self._say(path, message, at_key=True, reason="FieldValueForbidden")
        spec = self._read(kind.spec, "spec")
        namespace = self._place(kind, metadata) if isinstance(metadata, Metadata) else None
        if spec is None or namespace is None or not isinstance(metadata, Metadata):
            return None
        return self._document(kind, metadata, namespace)

    def _document(self, kind: Kind, metadata: Metadata, namespace: str) -> Document:
        tree = self._tree
        plain: dict[str, Any] = tree.root.plain()
        return Document(
            read_tree=lambda: tree,
            kind=kind,
            namespace=namespace,
            name=metadata.name,
            spec=plain.get("spec") or {},
            labels=plain["metadata"].get("labels") or {},
            annotations=plain["metadata"].get("annotations") or {},
            resource_version=metadata.resource_version or "",
            uid=metadata.uid or "",
            owner_references=tuple(
                reference.model_dump(by_alias=True, exclude_none=True) for reference in metadata.owner_references or ()
            ),
        )

    def _foreign(self, root: Node) -> bool:
        """Report a configuration of other tools by what to write instead; False if it is meant as a document."""
        fields = root.fields or {}
        if "kind" in fields or "apiVersion" in fields:
            return False
        if {"name", "type", "version"} <= set(fields):
            self._say((), "is a plugin's manifest; install it with `paddock plugin install FILE`")
            return True
        foreign_names = [name for name in fields if remedy_for_block(name)]
        for name in foreign_names[:MOST_PROBLEMS]:
            self._say((name,), f"not a document; {remedy_for_block(name)}", at_key=True, reason="FieldValueForbidden")
        return bool(foreign_names)

    def _of_others(self) -> str:
        """Return what to write in place of a document of Kubernetes or agent-sandbox; "" for any other."""
        version, kind = self._tree.find(("apiVersion",)), self._tree.find(("kind",))
        kind_name = kind.text if kind else ""
        advice = document_advice(version.text if version else "", kind_name) if kind_name else ""
        return f"`{kind_name}` is {advice}" if advice else ""

    def _top(self, root: Node) -> None:
        unknown = [name for name in root.fields or () if name not in TOP_FIELDS]
        for name in unknown[:MOST_PROBLEMS]:
            meant = closest(name, TOP_FIELDS)
            hint = f"did you mean `{meant}`?" if meant else f"known here: {', '.join(TOP_FIELDS)}"
            self._say((name,), f"unknown field; {hint}", at_key=True, reason="FieldValueForbidden")
        if len(unknown) > MOST_PROBLEMS:
            self._say((), f"and {len(unknown) - MOST_PROBLEMS} more unknown fields")
        version = self._tree.find(("apiVersion",))
        if version is None:
            self._say(("apiVersion",), f"is required; add `apiVersion: {API_VERSION}`", reason="FieldValueRequired")
        elif version.value != API_VERSION:
            version_text = f"`{version.text}`" if version.text else kind_of(version.plain())
            self._say(("apiVersion",), f"{version_text} is not served here; write `{API_VERSION}`")

    def _kind(self) -> Kind | None:
        kind_names = [known_kind.name for known_kind in self._registry if not known_kind.read_only]
        node = self._tree.find(("kind",))
        if node is None:
            self._say(
                ("kind",), f"is required; add `kind:` (one of {', '.join(kind_names)})", reason="FieldValueRequired"
            )
            return None
        kind = self._registry.by_name(node.value) if isinstance(node.value, str) else None
        if kind is None:
            word = self._registry.by_word(node.text) if node.text else None
            meant = word.name if word else closest(node.text, kind_names)
            hint = f"did you mean `{meant}`?" if meant else f"known kinds: {', '.join(kind_names)}"
            self._say(("kind",), f"`{node.text}` is not a known kind; {hint}", reason="FieldValueNotSupported")
        return kind

    def _read(self, model: type[BaseModel], section: str) -> BaseModel | None:
        """Validate `metadata` or `spec`; nulls mean "not set", so they are left out first."""
        node = self._tree.find((section,))
        needed = [field for field, info in model.model_fields.items() if info.is_required()]
        if node is None and needed:
            self._say(
                (section,), f"is required; add `{section}:` with {', '.join(needed)}", reason="FieldValueRequired"
            )
            return None
        plain = node.plain() if node else None
        try:
            return model.model_validate({} if plain is None else without_nulls(plain), by_alias=True, by_name=False)
        except ValidationError as error:
            for fault in faults(model, error, (section,), self._text):
                self._say(fault.path, fault.message, at_key=fault.at_key, reason=fault.reason)
            return None

    def _text(self, path: Path) -> str:
        node = self._tree.find(path)
        return node.text if node else ""

    def _place(self, kind: Kind, metadata: Metadata) -> str | None:
        """Return the namespace of the object; None if there is a problem with it."""
        path = ("metadata", "namespace")
        if metadata.name in kind.built_in:
            self._say(("metadata", "name"), kind.is_built_in(metadata.name))
        if not kind.namespaced:
            if metadata.namespace is not None:
                self._say(path, f"{kind.name} is host-scoped and has no namespace; remove this line", at_key=True)
            return ""
        if self._namespace and metadata.namespace not in (None, self._namespace):
            self._say(path, f"is `{metadata.namespace}`, and the command says -n {self._namespace}; make them agree")
            return None
        why = namespace_fault(self._namespace or DEFAULT_NAMESPACE)
        if why:
            self._say(path, why)
            return None
        return metadata.namespace or self._namespace or DEFAULT_NAMESPACE


def without_nulls(value: Any) -> Any:
    """Return the value without null fields: in a document null removes a field."""
    if isinstance(value, dict):
        return {key: without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(element) for element in value]
    return value
