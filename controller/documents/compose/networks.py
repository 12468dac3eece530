"""Networks of a Compose file: the services that reach each other, and the names that they do it by.

All sandboxes of a namespace that join others share one bridge. So the networks of a file have to join what that bridge
joins: every service with every other one.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from controller.documents.compose.element import Element, mapping_node, scalar
from controller.documents.yaml_tree import Node

DEFAULT = "default"
_HARMLESS = ("driver", "internal", "name", "attachable", "labels")
_OWN = "the network of a namespace's sandboxes is Paddock's own; remove it"
_ADDRESS = "a service has no address of its own here; write the name alone, or `{aliases: [NAME]}`"


@dataclass(slots=True)
class Joined:
    """A service's part in the networks: their names, its own further names there, and those that it gives others.

    `links` are names of other services for it alone, each with the service that it stands for.
    """

    networks: tuple[str, ...] = ()
    aliases: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)


def read_networks(element: Element | None) -> tuple[str, ...]:
    """Return the file's networks; problems for those that are more than a name."""
    names: list[str] = []
    for name, network in element.fields().items() if element is not None else ():
        external = network.child("external")
        is_own = external is not None and external.flag() is False
        network.check_keys(*_HARMLESS, *(("external",) if is_own else ()), **dict.fromkeys(network.fields(), _OWN))
        driver = network.child("driver")
        if driver is not None and driver.text() not in (None, "bridge"):
            driver.refuse(_OWN)
        names.append(name)
    return tuple(names)


def read_joined(service: Element, networks: tuple[str, ...]) -> Joined:
    """Return a service's part in the networks of its file. Without `networks:` it joins the default one."""
    element, mode = service.child("networks"), service.child("network_mode")
    joined = Joined(links=_links(service.child("links")))
    if element is None:
        joined.networks = (DEFAULT,) if mode is None else ()
        return joined
    if mode is not None:
        mode.refuse("`networks:` is set, too; keep one", at_key=True)
    names: list[str] = []
    for name, network in _entries(element):
        if name not in (DEFAULT, *networks):
            network.refuse(
                f"there is no network `{name}` in this file; add it at the end: `networks: {{{name}: {{}}}}`"
            )
        names.append(name)
        if network.node.fields is None:
            continue
        harmless = dict.fromkeys(("ipv4_address", "ipv6_address", "link_local_ips", "mac_address"), _ADDRESS)
        network.check_keys("aliases", "priority", "gw_priority", **harmless)
        aliases = network.child("aliases")
        joined.aliases += [alias.node.text for alias in aliases.texts()] if aliases is not None else []
    joined.networks = tuple(names)
    return joined


def _entries(element: Element) -> Iterator[tuple[str, Element]]:
    if element.node.fields is not None:
        yield from element.fields().items()
        return
    for network in element.items():
        if network.text() is not None:
            yield network.node.text, network


def _links(element: Element | None) -> dict[str, str]:
    links: dict[str, str] = {}
    for link in element.items() if element is not None else ():
        text = link.text() or ""
        service, _, name = text.partition(":")
        links[name or service] = service
    return links


def check_separation(element: Element | None, joined: Mapping[str, Joined]) -> None:
    """Refuse networks that keep services of the file apart: one bridge joins them all."""
    parts = {
        service: set(service_networks.networks)
        for service, service_networks in joined.items()
        if service_networks.networks
    }
    apart = next(
        ((first, second) for first in parts for second in parts if parts[first].isdisjoint(parts[second])), None
    )
    if element is not None and apart is not None:
        element.refuse(
            f"keeps `{apart[0]}` and `{apart[1]}` apart, and the sandboxes of a namespace share one network, where"
            " each reaches all; keep one network, or put each group into a file and a namespace of its own"
        )


def peer_names(
    service: str, joined: Mapping[str, Joined], sandboxes: Mapping[str, str], own_names: Collection[str]
) -> dict[str, str]:
    """Return the names that a service reaches the others by, each with the sandbox that it stands for.

    `own_names` are services whose sandboxes have a name of their own (`container_name`).
    """
    ours = joined[service]
    names: dict[str, str] = {}
    for neighbour, theirs in joined.items():
        if not set(ours.networks) & set(theirs.networks):
            continue
        names[neighbour] = sandboxes[neighbour]
        names |= dict.fromkeys(theirs.aliases, sandboxes[neighbour])
        if neighbour in own_names:
            names[sandboxes[neighbour]] = sandboxes[neighbour]
    names |= {name: sandboxes[neighbour] for name, neighbour in ours.links.items() if neighbour in sandboxes}
    return names


def network_node(names: Mapping[str, str], ours: Node | None, at: Node) -> Node | None:
    """Return the spec's `network`: with the others, unless `x-paddock` says otherwise."""
    fields = {name: node for name, (_, node) in ((ours.fields if ours is not None else None) or {}).items()}
    peers = fields.get("peers")
    if not names or (peers is not None and peers.value != "Allowed"):
        return ours
    name_nodes = {name: scalar(sandbox, at) for name, sandbox in sorted(names.items())}
    return mapping_node({"peers": scalar("Allowed", at), "peerNames": mapping_node(name_nodes, at), **fields}, at)
