"""Merging of Compose files: `extends`, and further files (`-f`, an override file). Each keeps its positions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.documents.compose.element import Element, Report, mapping_node, scalar
from controller.documents.compose.variables import Replacer
from controller.documents.document import MAX_VALUES
from controller.documents.yaml_tree import Node, read
from controller.kinds.common.problem import Problem

_MOST_DEPTH = 8
_REPLACED = ("command", "entrypoint", "test", "profiles")  # a later list replaces an earlier one
_PAIRS = ("environment", "labels", "args", "depends_on", "networks", "annotations")  # lists that are mappings, too
_BESIDE = "give its text with the request, or write the service out"


def in_file(node: Node, file: str) -> Node:
    """Return the same tree, with positions in that file."""
    fields = node.fields and {
        name: (replace(key, file=file), in_file(child, file)) for name, (key, child) in node.fields.items()
    }
    return replace(node, file=file, fields=fields, items=node.items and [in_file(child, file) for child in node.items])


def merged(before: Node, after: Node, key: str = "") -> Node:
    """Return two values as one: mappings by their keys, lists one after the other, all else as the later one has it."""
    if key in _PAIRS:
        before, after = _as_mapping(before, key), _as_mapping(after, key)
    if before.fields is not None and after.fields is not None:
        fields = dict(before.fields)
        for name, (name_node, child) in after.fields.items():
            earlier = fields.get(name)
            fields[name] = (name_node, child if earlier is None else merged(earlier[1], child, name))
        size = 1 + sum(1 + child.size for _, child in fields.values())
        return replace(after, fields=fields, size=size)
    if before.items is not None and after.items is not None and key not in _REPLACED:
        return replace(after, items=[*before.items, *after.items], size=before.size + after.size)
    is_empty = after.fields is None and after.items is None and after.value is None
    return before if is_empty else after


def _as_mapping(node: Node, key: str) -> Node:
    """Return a list of `NAME=VALUE`, or of names, as a mapping; anything else as it is."""
    if node.items is None or any(not isinstance(item.value, str) for item in node.items):
        return node
    nodes: dict[str, Node | None] = {}
    for item in node.items:
        name, equals, value = item.text.partition("=")
        empty = Node(item.line, item.column, file=item.file)
        if key == "depends_on":
            nodes[item.text] = mapping_node({"condition": scalar("service_started", item)}, item)
        elif key == "networks":
            nodes[item.text] = empty
        else:
            nodes[name] = scalar(value, item) if equals else empty
    return mapping_node(nodes, node)


def read_tree(file: str, text: str, report: Report) -> Node | None:
    """Return the one document of a further file; None and its problems if there is none."""
    trees, problems = read(file, text, merges=True)
    report.problems += problems
    if problems or len(trees) != 1 or trees[0].root.size > MAX_VALUES:
        if not problems:
            report.problems.append(
                Problem(file, 0, 0, "", "is not one Compose file; leave it out, or write `services:`")
            )
        return None
    return in_file(trees[0].root, file)


def extended(element: Element, files: Mapping[str, str], variables: Mapping[str, str]) -> Node:
    """Return the file with each service's `extends` carried out. `files` are the texts of others, by their paths."""
    services = element.child("services")
    if services is None or services.node.fields is None:
        return element.node
    fields = {
        name: (
            key,
            _Extender(services.node, files, variables).service(Element(child, element.report, ("services", name), key)),
        )
        for name, (key, child) in services.node.fields.items()
    }
    root_fields = dict(element.node.fields or {})
    size = 1 + sum(1 + child.size for _, child in fields.values())
    root_fields["services"] = (root_fields["services"][0], replace(services.node, fields=fields, size=size))
    return replace(element.node, fields=root_fields)


@dataclass(frozen=True, slots=True)
class _Extender:
    """Services of one file, where others are extended. `depth` counts the services on the way."""

    services: Node
    files: Mapping[str, str]
    variables: Mapping[str, str]
    depth: int = 0

    def service(self, element: Element) -> Node:
        """Return a service with what it extends."""
        extends = element.child("extends") if element.node.fields is not None else None
        if extends is None:
            return element.node
        fields = {name: entry for name, entry in (element.node.fields or {}).items() if name != "extends"}
        node = replace(element.node, fields=fields)
        base = self._base(extends, element.node)
        return node if base is None else merged(base, node)

    def _base(self, extends: Element, node: Node) -> Node | None:
        if extends.is_text:
            name, file = extends.text(), None
        else:
            extends.check_keys("service", "file")
            service, file = extends.child("service"), extends.child("file")
            name = service.text() if service is not None else None
        if name is None or self.depth >= _MOST_DEPTH:
            extends.refuse(f"needs `service:`, and at most {_MOST_DEPTH} services that extend each other")
            return None
        services = self.services if file is None else self._services_of(file)
        if services is None:
            return None
        base = (services.fields or {}).get(name)
        if base is None or base[1] is node or base[1].fields is None:
            extends.refuse(f"there is no service `{name}` to extend; write the name of another one")
            return None
        element = Element(base[1], extends.report, ("services", name), base[0])
        return replace(self, services=services, depth=self.depth + 1).service(element)

    def _services_of(self, file: Element) -> Node | None:
        path = file.text() or ""
        if path not in self.files:
            file.refuse(f"`{path}` is not read here; {_BESIDE}")
            return None
        root = read_tree(path, self.files[path], file.report)
        if root is None:
            return None
        root = Replacer(self.variables).replace_in(Element(root, file.report))
        entry = (root.fields or {}).get("services")
        return entry[1] if entry is not None else Node(0, 0, fields={})
