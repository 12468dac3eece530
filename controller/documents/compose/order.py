"""Order of the services: `depends_on` and `links` as the `startAfter` of their sandboxes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.documents.compose.element import Element, list_node, mapping_node, scalar
from controller.documents.yaml_tree import Node

_CONDITIONS = {
    "service_started": "Started",
    "service_healthy": "Ready",
    "service_completed_successfully": "Succeeded",
}


@dataclass(frozen=True, slots=True)
class Dependency:
    """A service that comes first, where the file says so, and the spec's word for its condition."""

    service: str
    element: Element
    condition: str = "Started"
    is_required: bool = True


def read_dependencies(service: Element) -> tuple[Dependency, ...]:
    """Return the services that come before this one; problems for unknown conditions."""
    dependencies = [*_depends_on(service.child("depends_on")), *_linked(service.child("links"))]
    return tuple({dependency.service: dependency for dependency in reversed(dependencies)}.values())[::-1]


def _depends_on(element: Element | None) -> Iterator[Dependency]:
    if element is None:
        return
    if element.node.items is not None:
        for dependency in element.items():
            if (name := dependency.text()) is not None:
                yield Dependency(name, dependency)
        return
    for name, dependency in element.fields().items():
        dependency.check_keys("condition", "required", "restart")
        condition, required = dependency.child("condition"), dependency.child("required")
        text = condition.text() if condition is not None else "service_started"
        if condition is not None and text is not None and text not in _CONDITIONS:
            condition.refuse(f"`{text}` is not a condition; write {', '.join(_CONDITIONS)}")
        is_required = required is None or bool(required.flag())
        yield Dependency(name, dependency, _CONDITIONS.get(text or "", "Started"), is_required)


def _linked(element: Element | None) -> Iterator[Dependency]:
    for link in element.items() if element is not None else ():
        if (text := link.text()) is not None:
            yield Dependency(text.partition(":")[0], link)


def check_order(dependencies: Mapping[str, tuple[Dependency, ...]], inactive: Mapping[str, str]) -> None:
    """Refuse dependencies on services that are not there, and circles. `inactive` services have the reason."""
    for service, entries in dependencies.items():
        for dependency in entries:
            name = dependency.service
            if name in inactive and dependency.is_required:
                dependency.element.refuse(inactive[name], at_key=True)
            elif name not in dependencies and name not in inactive:
                message = f"there is no service `{name}` in this file; add it, or remove this"
                dependency.element.refuse(message, at_key=True)
            elif service in _before(name, dependencies):
                message = f"`{service}` and `{name}` wait for each other, so that neither would start; remove one"
                dependency.element.refuse(message, at_key=True)


def _before(service: str, dependencies: Mapping[str, tuple[Dependency, ...]]) -> set[str]:
    """Return the service and all that come before it."""
    services, remaining = set[str](), [service]
    while remaining:
        name = remaining.pop()
        if name not in services:
            services.add(name)
            remaining += [dependency.service for dependency in dependencies.get(name, ())]
    return services


def with_dependencies(services: set[str], dependencies: Mapping[str, tuple[Dependency, ...]]) -> set[str]:
    """Return these services and all that come before them."""
    return set[str]().union(*(_before(service, dependencies) for service in services))


def start_node(dependencies: tuple[Dependency, ...], sandboxes: Mapping[str, str], at: Node) -> Node | None:
    """Return the spec's `startAfter`; None for one that waits for nobody."""
    nodes = []
    for dependency in dependencies:
        if dependency.service in sandboxes:
            place = dependency.element.key or dependency.element.node
            fields = {"sandbox": scalar(sandboxes[dependency.service], place)}
            nodes.append(mapping_node({**fields, "condition": scalar(dependency.condition, place)}, place))
    return list_node(nodes, at) if nodes else None
