"""Instances: the store's records of our containers, each with the last observation of its container."""

from collections.abc import Callable, Sequence
from typing import Any

from controller.kinds.common import labels
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, Observation
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import Failure, Termination
from controller.plan.base.status_json import limits_to_json
from controller.ports import Store
from controller.ports.fleet import SINGLE, Fleet
from controller.service.listing import serialize
from controller.service.listing.field_selector import FieldSelector
from controller.service.sources import derived_uid
from controller.version import API_VERSION


class InstanceSource:
    """ports.Store.instances as objects. `observe` gives the engine's latest observation; it must not block.

    `place` is this host: containers of others are Unknown to it (controller/api/fleet/hosted.py asks theirs).
    """

    def __init__(self, store: Store, observe: Callable[[], Observation], place: Fleet = SINGLE) -> None:
        self._store, self._observe, self._place = store, observe, place

    def get(self, namespace: str, name: str) -> StoredObject | None:
        instance = self._store.instance(name)
        return (
            self._object(instance, self._observe())
            if instance is not None and instance.namespace == namespace
            else None
        )

    def list(self, namespace: str | None, by_fields: FieldSelector, limit: int) -> Sequence[StoredObject]:  # noqa: ARG002 - few enough
        asked_host = by_fields.equal.get("status.host")
        host = self._place.within(asked_host) if asked_host else None
        instances = [
            instance for instance in self._store.instances(host=host) if namespace in (None, instance.namespace)
        ]
        observed = self._observe()
        return [
            self._object(instance, observed)
            for instance in sorted(instances, key=lambda instance: (instance.namespace, instance.name))
        ]

    def _object(self, instance: Instance, observed: Observation) -> StoredObject:
        host = self._place.within(instance.host)
        return instance_object(instance, observed if host in (None, self._place.host) else None, host or "")


def instance_object(instance: Instance, observed: Observation | None, host: str = "") -> StoredObject:
    """Return a record and its observed container as an object, with the container's own labels.

    `observed` is None for one of another host. `host` is shown where there may be several.
    """
    owner = {"kind": instance.parent_kind, "name": instance.parent_name, "uid": instance.parent_uid}
    return StoredObject(
        kind="Instance",
        namespace=instance.namespace,
        name=instance.name,
        uid=derived_uid("Instance", instance.parent_uid, instance.name),
        generation=0,
        resource_version=instance.version,
        created_at=instance.created_at,
        labels={labels.NAME: instance.parent_name, labels.ROLE: instance.role},
        owner_references=({"apiVersion": API_VERSION, **owner},),
        spec={"parent": owner, "role": instance.role, "reserves": limits_to_json(instance.reserves)},
        status=({"host": host} if host else {}) | _status(instance, observed),
    )


def _status(instance: Instance, observed: Observation | None) -> dict[str, Any]:
    state = instance.state
    container = _container(instance, observed) if observed is not None else None
    status: dict[str, Any] = {"state": _state(container, observed)}
    if observed is None:
        status["message"] = f"only host `{instance.host}` observes it"
    elif observed.blind:
        status["message"] = f"the engine can't be observed: {observed.blind}"
    status |= {"restartCount": state.runs.restarts, "crashCount": state.runs.crashes}
    if container is not None:
        status["containerID"] = container.id
        if container.image_id:
            status["imageID"] = container.image_id
        if container.started_at:
            status["startTime"] = serialize.timestamp(container.started_at)
        if container.limits is not None:
            status["limits"] = limits_to_json(container.limits)
    if state.runs.last_end is not None:
        status["lastTermination"] = _end(state.runs.last_end)
    if state.backoff.failure is not None:
        status["failure"] = _failure(state.backoff.failure)
    return status


def _container(instance: Instance, observed: Observation) -> Container | None:
    """Return the record's latest container: by its id, else by its name."""
    candidates = observed.containers.get(instance.uid, ())
    recorded = [container for container in candidates if container.id == instance.state.container.id]
    return next(iter(recorded or [container for container in candidates if container.name == instance.name]), None)


def _state(container: Container | None, observed: Observation | None) -> str:
    if observed is None or observed.blind:
        return "Unknown"  # the last observation may be outdated
    return "Absent" if container is None else container.state.value.capitalize()


def _end(end: Termination) -> dict[str, Any]:
    return {
        "exitCode": end.exit_code,
        "reason": end.reason,
        "startedTime": serialize.timestamp(end.started_at),
        "finishedTime": serialize.timestamp(end.finished_at),
    }


def _failure(failure: Failure) -> dict[str, Any]:
    as_json = {"reason": failure.reason, "message": failure.message, "count": failure.count}
    return as_json if failure.terminal else {**as_json, "retryTime": serialize.timestamp(failure.retry_at)}
