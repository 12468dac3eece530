"""Scheduler `swarm`: Docker Swarm decides which host has room, and which hosts are there.

Each sandbox has a placeholder: a service of one task with the sandbox's reservation, pinned to its host once the
sandbox is bound to it. A suspended one is scaled to 0. Placeholders run no foreign code.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

from controller.kinds.common.labels import INSTANCE
from controller.ports.common import Wake
from controller.ports.scheduler import (
    Availability,
    Lost,
    Pending,
    PlacedRecord,
    Placement,
    PlacementState,
    SchedulerError,
    SchedulerHost,
    SchedulerProblem,
    StaleBinding,
)
from controller.scheduler.swarm import placeholder, services
from controller.scheduler.swarm.api import Refusal, SwarmApi
from controller.scheduler.swarm.watch import Waiting, Watch

T = TypeVar("T")

_ATTEMPTS = 5  # others may change the same service or node meanwhile
_NEW = ("", "")
_ASKED = "Docker Swarm has been asked for a host"


class _Outrun(Exception):
    """Another change of the same service or node came first."""


class SwarmScheduler:
    """The port over one engine, which must be a manager of its swarm for all but `prepare`."""

    def __init__(self, base_url: str, instance_id: str, *, timeout_seconds: float = 20.0) -> None:
        """Connects at the first call. A swarm that has lost its leader holds writes back for about 12 s."""
        self._api = SwarmApi(base_url, timeout_seconds=timeout_seconds)
        self._instance_id = instance_id
        self._lock = threading.Lock()
        self._pending: dict[str, Waiting] = {}
        self._records: dict[str, tuple[object, PlacedRecord]] = {}  # as of the last list, by the service's id
        self._watches: list[Watch] = []

    def ping(self) -> str:
        return self._do(lambda: str(self._own_node()))

    def heartbeat_seconds(self) -> float:
        """Return how often the swarm hears of a node: after three of them it is down."""
        swarm = self._do(lambda: self._api.get("/swarm"))
        return float(swarm["Spec"].get("Dispatcher", {}).get("HeartbeatPeriod") or 0) / 1e9

    def prepare(self) -> None:
        """Load the placeholders' image into this host's engine."""
        self._do(self._image)

    def hosts(self) -> Sequence[SchedulerHost]:
        nodes = self._do(self._nodes)
        return sorted((services.host_of(node) for node in nodes.values()), key=lambda host: (host.name, host.id))

    def set_host(
        self, name: str, *, fit: bool, labels: Mapping[str, str], availability: Availability | None = None
    ) -> None:
        def attempt() -> None:
            nodes = self._nodes()
            node = nodes[self._node_id(name, nodes)]
            node_spec = services.changed_node(node["Spec"], fit=fit, labels=labels, availability=availability)
            if node_spec != node["Spec"]:
                self._update(f"/nodes/{node['ID']}", node, node_spec)

        self._repeat(attempt, f"host {name}")

    def place(self, placement: Placement) -> PlacementState:
        def attempt() -> PlacementState:
            nodes = self._nodes() if placement.host else None
            if nodes is not None and not self._ids(placement.host, nodes):
                return Lost(placement.host, f"no node of the swarm is called {placement.host}")
            service = self._service(placement.uid)
            if service is None:
                return self._create(placement, nodes)
            had, desired = services.placement_of(service), placement
            if had.binding > placement.binding:
                raise StaleBinding(f"placement {placement.uid}: it has binding {had.binding} already; read again")
            if had.binding == placement.binding and not placement.host:
                desired = replace(placement, host=had.host)
            return self._change(service, desired)

        return self._repeat(attempt, f"placement {placement.uid}")

    def pin(self, uid: str, binding: int, host: str) -> PlacementState:
        def attempt() -> PlacementState:
            service = self._service(uid)
            if service is None or services.placement_of(service).binding != binding:
                raise StaleBinding(f"placement {uid}: there is none of binding {binding}; read again")
            return self._change(service, replace(services.placement_of(service), host=host))

        return self._repeat(attempt, f"placement {uid}")

    def release(self, uid: str, binding: int | None = None) -> None:
        def attempt() -> None:
            service = self._service(uid)
            if service is None or (binding is not None and services.placement_of(service).binding > binding):
                return
            try:
                self._api.delete(f"/services/{service['ID']}")
            except Refusal as refusal:
                if refusal.status != 404:
                    raise

        self._do(attempt)

    def list(self) -> Sequence[PlacedRecord]:
        def attempt() -> Sequence[PlacedRecord]:
            swarm_services = self._api.get("/services", label=[f"{INSTANCE}={self._instance_id}"])
            ours = [service for service in swarm_services if services.is_ours(service, self._instance_id)]
            nodes, tasks = self._nodes() if ours else {}, self._tasks_of_all() if ours else {}
            node_versions = frozenset((node["ID"], node["Version"]["Index"]) for node in nodes.values())
            records = [
                self._known_record(service, tasks.get(service["ID"], ()), nodes, node_versions) for service in ours
            ]
            self._records = {service["ID"]: self._records[service["ID"]] for service in ours}
            return sorted(records, key=lambda record: record.placement.uid)

        with self._lock:
            self._pending.clear()
        return self._do(attempt)

    def watch(self, wake: Wake) -> Callable[[], None]:
        watch = Watch(self._api, self._waiting, wake)
        with self._lock:
            self._watches.append(watch)

        def stop() -> None:
            with self._lock:
                if watch in self._watches:
                    self._watches.remove(watch)
            watch.stop()

        return stop

    def _create(self, placement: Placement, nodes: Mapping[str, Any] | None) -> PlacementState:
        node_id = self._node_id(placement.host, nodes) if nodes is not None else ""
        new = services.new_service(
            placement, instance_id=self._instance_id, image=self._image(), version=self._api.version
        )
        spec = services.changed_service(new, placement, node_id)
        try:
            created = self._api.post("/services/create", spec)
        except Refusal as refusal:
            if refusal.status != 409:
                raise
            raise _Outrun from refusal
        if not placement.running:
            return self._state({"ID": created["ID"], "Spec": spec})
        self._note(created["ID"], Waiting({"Spec": spec}, _NEW))
        return Pending(_ASKED)

    def _change(self, service: Mapping[str, Any], placement: Placement) -> PlacementState:
        node_id = ""
        if placement.host:
            nodes = self._nodes()
            if not self._ids(placement.host, nodes):
                return Lost(placement.host, f"no node of the swarm is called {placement.host}")
            node_id = self._node_id(placement.host, nodes)
        spec = services.changed_service(service["Spec"], placement, node_id)
        if spec != service["Spec"]:
            self._update(f"/services/{service['ID']}", service, spec)
        return self._state({"ID": service["ID"], "Spec": spec})

    def _state(self, service: Mapping[str, Any]) -> PlacementState:
        tasks = self._api.get("/tasks", service=[service["ID"]])
        return self._record(service, tasks, self._nodes()).state

    def _record(
        self, service: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], nodes: Mapping[str, Any]
    ) -> PlacedRecord:
        state = services.state_of(service, tasks, nodes)
        pending = Waiting(service, services.progress(service, tasks)) if isinstance(state, Pending) else None
        self._note(service["ID"], pending)
        return PlacedRecord(services.placement_of(service), state)

    def _known_record(
        self,
        service: Mapping[str, Any],
        tasks: Sequence[Mapping[str, Any]],
        nodes: Mapping[str, Any],
        node_versions: frozenset[tuple[str, int]],
    ) -> PlacedRecord:
        """Return the record of a service: the same Python object as long as the swarm has changed nothing of it.

        `node_versions` are those of all nodes.
        """
        key = (
            service["Version"]["Index"],
            tuple((task["ID"], task["Version"]["Index"]) for task in tasks),
            node_versions,
        )
        cached = self._records.get(service["ID"])
        if cached is not None and cached[0] == key and not isinstance(cached[1].state, Pending):
            return cached[1]
        record = self._record(service, tasks, nodes)
        self._records[service["ID"]] = key, record
        return record

    def _note(self, service_id: str, pending: Waiting | None) -> None:
        """Remember that a placeholder has no host, so that watches look after it; None: it has one."""
        with self._lock:
            if pending is None:
                self._pending.pop(service_id, None)
                return
            self._pending[service_id] = pending
            watches = tuple(self._watches)
        for watch in watches:
            watch.hurry()

    def _waiting(self) -> Mapping[str, Waiting]:
        with self._lock:
            return dict(self._pending)

    def _service(self, uid: str) -> Mapping[str, Any] | None:
        """Return the placeholder of that uid. Raises SchedulerError if a service of that name is not ours."""
        service: Mapping[str, Any] | None = self._api.find(f"/services/{services.service_name(uid)}")
        if service is not None and not services.is_ours(service, self._instance_id):
            raise SchedulerError(
                SchedulerProblem.REFUSED,
                f"service {services.service_name(uid)}: it is not this Paddock's; remove it (`docker service rm`)",
            )
        return service

    def _tasks_of_all(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        tasks = self._api.get("/tasks", label=[f"{INSTANCE}={self._instance_id}"])
        in_order = sorted(tasks, key=itemgetter("ServiceID"))
        return {service: tuple(service_tasks) for service, service_tasks in groupby(in_order, itemgetter("ServiceID"))}

    def _nodes(self) -> dict[str, Any]:
        return {node["ID"]: node for node in self._api.get("/nodes")}

    def _ids(self, name: str, nodes: Mapping[str, Any]) -> Sequence[str]:
        return [node_id for node_id, node in nodes.items() if services.host_name(node) == name]

    def _node_id(self, name: str, nodes: Mapping[str, Any]) -> str:
        """Return the id of the node of that name. Raises SchedulerError if there is none, or more than one."""
        node_ids = self._ids(name, nodes)
        if len(node_ids) == 1:
            return node_ids[0]
        problem = f"{len(node_ids)} nodes of the swarm have" if node_ids else "no node of the swarm has"
        raise SchedulerError(
            SchedulerProblem.REFUSED,
            f"host {name}: {problem} this name; give each its own "
            f"(`docker node update --label-add {services.HOST}=NAME NODE`)",
        )

    def _own_node(self) -> str:
        self._api.get("/nodes")
        return str(self._api.get("/info").get("Swarm", {}).get("NodeID", ""))

    def _image(self) -> str:
        """Return the id of the placeholders' image on this host's engine; it is loaded if it is not there."""
        image = self._api.find(f"/images/{placeholder.NAME}/json")
        if image is None:
            architecture = str(self._api.get("/info").get("Architecture", ""))
            if architecture not in placeholder.architectures():
                raise SchedulerError(
                    SchedulerProblem.REFUSED,
                    f"Docker Swarm: there is no placeholder for {architecture}; use hosts of "
                    f"{' or '.join(placeholder.architectures())}",
                )
            self._api.load_image(placeholder.archive(architecture))
            image = self._api.get(f"/images/{placeholder.NAME}/json")
        return str(image["Id"])

    def _update(self, path: str, had: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Update a service or a node. Raises _Outrun if another change came first: engines answer that with 500."""
        version = had["Version"]["Index"]
        try:
            self._api.post(f"{path}/update", spec, version=str(version))
        except Refusal as refusal:
            now = self._api.find(path)
            if now is not None and now["Version"]["Index"] == version:
                raise
            raise _Outrun from refusal

    def _repeat(self, attempt: Callable[[], T], what: str) -> T:
        """Try until nobody else's change comes between."""
        for _ in range(_ATTEMPTS):
            with suppress(_Outrun):
                return self._do(attempt)
        raise SchedulerError(SchedulerProblem.REFUSED, f"{what}: it is being changed by others; try again")

    def _do(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Refusal as refusal:
            self._explain(refusal)

    def _explain(self, refusal: Refusal) -> NoReturn:
        """Raise a SchedulerError for a refusal, by what the engine says about its swarm."""
        problem, advice = SchedulerProblem.REFUSED, ""
        try:
            swarm = self._api.get("/info").get("Swarm", {})
            if not swarm.get("ControlAvailable"):
                problem = SchedulerProblem.NOT_A_MEMBER
                advice = "; make this host a manager (`docker swarm init`, `docker swarm join --token ...`)"
            elif refusal.status >= 500 and not self._decides():
                problem = SchedulerProblem.NO_LEADER
                advice = "; start more of its managers (`docker node ls` shows them)"
        except Refusal:
            pass
        raise SchedulerError(problem, f"Docker Swarm: {refusal.message}{advice}") from refusal

    def _decides(self) -> bool:
        try:
            self._api.get("/nodes")
        except Refusal:
            return False
        return True
