"""Translation between placements and the swarm's services, tasks and nodes; no I/O.

A placeholder reserves a sandbox's memory and processor time, and does nothing else. Only its name, labels, constraints,
reservation and replicas are ever changed: everything else is as it was created, because another value would replace its
task.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from controller.kinds.common.labels import INSTANCE, PREFIX, UID
from controller.ports.scheduler import (
    Availability,
    Liveness,
    Lost,
    Pending,
    Placed,
    Placement,
    PlacementState,
    SchedulerHost,
    Suspended,
)

HOST = PREFIX + "host"  # on a node: Paddock's name of it; on a service: the host it is pinned to
BINDING, SELECTOR = PREFIX + "binding", PREFIX + "selector"
FIT = PREFIX + "fit"
_LABEL, _DOMAIN_LABEL = PREFIX + "label.", PREFIX + "domain-label."
_EMPTY = "-"  # no valid value of a label, and constraints can't have empty ones
_OURS = (INSTANCE, UID, BINDING, SELECTOR, HOST)
_LIVENESS = {"ready": Liveness.UP, "down": Liveness.DOWN}
_HAS_NODE = {"assigned", "accepted", "preparing", "ready", "starting", "running"}
_ENDED_BADLY = {"rejected", "failed"}
_IS_TO_RUN = {"running", "ready"}
_NANOS_PER_MILLICORE = 1_000_000
_SECOND_NANOS = 1_000_000_000
_MEMORY_BYTES, _PIDS = 16 << 20, 4  # limits of a placeholder itself; the engine takes no smaller memory than 6 MiB
_PRIVILEGES_SINCE = (1, 44)  # earlier versions of the API drop these without a word


def service_name(uid: str) -> str:
    """Return the service's name. It is derived, so that a second create fails (409)."""
    return f"paddock-{uid}"


def new_service(placement: Placement, *, instance_id: str, image: str, version: tuple[int, int]) -> dict[str, Any]:
    """Return the spec of a new placeholder, without constraints: `changed_service` adds what changes."""
    container = {
        "Image": image,
        "Hostname": "placeholder",
        "User": "65534:65534",
        "ReadOnly": True,
        "CapabilityDrop": ["ALL"],
        "StopSignal": "SIGKILL",  # it has nothing to tidy up
    }
    if version >= _PRIVILEGES_SINCE:
        container["Privileges"] = {"NoNewPrivileges": True}
    return {
        "Name": service_name(placement.uid),
        "Labels": {INSTANCE: instance_id},
        "TaskTemplate": {
            "ContainerSpec": container,
            "Resources": {"Limits": {"MemoryBytes": _MEMORY_BYTES, "Pids": _PIDS}},
            "RestartPolicy": {"Condition": "any", "Delay": _SECOND_NANOS},
            "LogDriver": {"Name": "none"},
        },
        "UpdateConfig": {"Parallelism": 0, "FailureAction": "continue", "Order": "stop-first"},
        "EndpointSpec": {"Mode": "dnsrr"},
    }


def changed_service(spec: Mapping[str, Any], placement: Placement, node_id: str) -> dict[str, Any]:
    """Return a service's spec as this placement wants it. `node_id` is its host's, "" if it has none."""
    changed = copy.deepcopy(dict(spec))
    labels = {INSTANCE: spec["Labels"][INSTANCE], UID: placement.uid, BINDING: str(placement.binding)}
    labels[SELECTOR] = json.dumps(dict(placement.node_selector), sort_keys=True)
    if placement.host:
        labels[HOST] = placement.host
    changed["Labels"] = {**{key: value for key, value in placement.labels.items() if key not in _OURS}, **labels}
    template = changed["TaskTemplate"]
    reserved = {"MemoryBytes": placement.memory_bytes, "NanoCPUs": placement.cpu_millicores * _NANOS_PER_MILLICORE}
    # What is zero does not come back from the engine.
    template["Resources"]["Reservations"] = {key: value for key, value in reserved.items() if value}
    template.setdefault("Placement", {})["Constraints"] = _constraints(placement, node_id)
    template["ForceUpdate"] = placement.binding  # a later binding is a new choice, and tasks tell whose they are
    changed["Mode"] = {"Replicated": {"Replicas": int(placement.running)}}
    return changed


def placement_of(service: Mapping[str, Any]) -> Placement:
    """Return the placement that a service of ours stands for."""
    spec = service["Spec"]
    labels, resources = spec["Labels"], spec["TaskTemplate"].get("Resources", {})
    reserved = resources.get("Reservations", {})
    return Placement(
        uid=labels[UID],
        binding=int(labels[BINDING]),
        memory_bytes=int(reserved.get("MemoryBytes", 0)),
        cpu_millicores=int(reserved.get("NanoCPUs", 0)) // _NANOS_PER_MILLICORE,
        node_selector=json.loads(labels.get(SELECTOR, "{}")),
        host=labels.get(HOST, ""),
        running=bool(spec["Mode"]["Replicated"].get("Replicas", 0)),
        labels={key: value for key, value in labels.items() if key not in _OURS},
    )


def is_ours(service: Mapping[str, Any], instance_id: str) -> bool:
    labels = service["Spec"].get("Labels") or {}
    return labels.get(INSTANCE) == instance_id and UID in labels and str(labels.get(BINDING, "")).isdigit()


def state_of(
    service: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]
) -> PlacementState:
    """Return the state of a placeholder, of its tasks and of the nodes by id."""
    placement = placement_of(service)
    pinned = pinned_node(service)
    if pinned:
        node = nodes.get(pinned)
        if node is None:
            return Lost(placement.host, f"node {pinned} is no longer in the swarm")
        if _liveness(node) is Liveness.DOWN:
            return Lost(host_name(node), node["Status"].get("Message", ""))
    if not placement.running:
        return Suspended(placement.host)
    on, message = progress(service, tasks)
    node = nodes.get(on)
    if node is None or _liveness(node) is Liveness.DOWN or not _suits(placement, pinned, node):
        return Pending(message)
    return Placed(host_name(node))


def progress(service: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the id of the node that has the placeholder ("": none), and the swarm's latest message.

    Right after a change, a task of what was asked before still runs: it counts no longer. A task reserves once it has a
    node; after one that failed or was rejected, the next counts when it runs.
    """
    reservation = _reservation_of(service["Spec"]["TaskTemplate"])
    newest = sorted(tasks, key=lambda task: str(task["CreatedAt"]), reverse=True)
    newest = [task for task in newest if _reservation_of(task["Spec"]) == reservation]
    counts = {"running"} if any(task["Status"]["State"] in _ENDED_BADLY for task in newest) else _HAS_NODE
    runs = (task for task in newest if task["DesiredState"] in _IS_TO_RUN and task["Status"]["State"] in counts)
    on = next((str(task.get("NodeID", "")) for task in runs), "")
    messages = [task["Status"].get("Err") for task in newest] + [task["Status"].get("Message") for task in newest]
    return on, next((str(message) for message in messages if message), "")


def pinned_node(service: Mapping[str, Any]) -> str:
    """Return the id of the node that a service of ours is pinned to, "" if to none."""
    constraints = service["Spec"]["TaskTemplate"].get("Placement", {}).get("Constraints") or []
    pins = (constraint.removeprefix("node.id==") for constraint in constraints if constraint.startswith("node.id=="))
    return next(pins, "")


def host_of(node: Mapping[str, Any]) -> SchedulerHost:
    """Return a node as a host."""
    labels, description = node["Spec"].get("Labels") or {}, node.get("Description", {})
    resources, status = description.get("Resources", {}), node["Status"]
    return SchedulerHost(
        id=node["ID"],
        name=host_name(node),
        address=status.get("Addr", ""),
        liveness=_liveness(node),
        availability=Availability(node["Spec"]["Availability"]),
        fit=labels.get(FIT) == "true",
        labels={
            _selector_key(key): "" if value == _EMPTY else value for key, value in labels.items() if _selector_key(key)
        },
        cpu_millicores=int(resources.get("NanoCPUs", 0)) // _NANOS_PER_MILLICORE,
        memory_bytes=int(resources.get("MemoryBytes", 0)),
        message=status.get("Message", ""),
    )


def host_name(node: Mapping[str, Any]) -> str:
    """Return Paddock's name of a node: its label `paddock.host`, else its hostname."""
    return str((node["Spec"].get("Labels") or {}).get(HOST) or node.get("Description", {}).get("Hostname", ""))


def changed_node(
    spec: Mapping[str, Any], *, fit: bool, labels: Mapping[str, str], availability: Availability | None
) -> dict[str, Any]:
    """Return a node's spec with our labels and that availability; labels of others stay."""
    had = spec.get("Labels") or {}
    foreign_labels = {key: value for key, value in had.items() if key != FIT and not _selector_key(key)}
    ours = {_node_label(key): value or _EMPTY for key, value in labels.items()}
    changed = {**copy.deepcopy(dict(spec)), "Labels": {**foreign_labels, **ours, **({FIT: "true"} if fit else {})}}
    if availability is not None:
        changed["Availability"] = availability.value
    return changed


def _constraints(placement: Placement, node_id: str) -> list[str]:
    """Return its pin, or else what a host must have. A pinned one stays, whatever becomes of its host's labels."""
    if node_id:
        return [f"node.id=={node_id}"]
    chosen = sorted(placement.node_selector.items())
    return [
        f"node.labels.{FIT}==true",
        *(f"node.labels.{_node_label(key)}=={value or _EMPTY}" for key, value in chosen),
    ]


def _reservation_of(template: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the binding and the reservation of a service's template or a task's spec."""
    reserved = template.get("Resources", {}).get("Reservations") or {}
    return template.get("ForceUpdate", 0), reserved.get("MemoryBytes", 0), reserved.get("NanoCPUs", 0)


def _suits(placement: Placement, pinned: str, node: Mapping[str, Any]) -> bool:
    """Return True if a node is as asked for: right after a change of that, a task may still be elsewhere."""
    if pinned:
        return bool(node["ID"] == pinned)
    host = host_of(node)
    # The swarm compares values without regard to case.
    chosen = placement.node_selector.items()
    return host.fit and all(host.labels.get(key, "").casefold() == value.casefold() for key, value in chosen)


def _node_label(key: str) -> str:
    """Return the node's label for a label of a Host: a constraint's key has no slash, and a domain no underscore."""
    domain, slash, name = key.rpartition("/")
    return f"{_DOMAIN_LABEL}{domain}_{name}" if slash else f"{_LABEL}{name}"


def _selector_key(label: str) -> str:
    """Return the Host's label that a node's label stands for, "" if none."""
    if label.startswith(_DOMAIN_LABEL):
        return label.removeprefix(_DOMAIN_LABEL).replace("_", "/", 1)
    return label.removeprefix(_LABEL) if label.startswith(_LABEL) else ""


def _liveness(node: Mapping[str, Any]) -> Liveness:
    return _LIVENESS.get(node["Status"]["State"], Liveness.UNKNOWN)
