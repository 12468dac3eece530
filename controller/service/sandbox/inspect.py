"""A sandbox's container as the engine reports it now, with Paddock's record of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.ports import Engine, Store, StreamError, Streams
from controller.service import errors
from controller.service.exec.streams import SandboxStreams
from controller.service.objects.objects import Objects
from controller.service.sources.instance import instance_object

HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class Inspection:
    """`container` is the engine's own answer, without values of variables; None without a container."""

    obj: StoredObject
    container: Mapping[str, Any] | None
    instance: StoredObject | None


class Inspections:
    """The use-case. It queries the engine each time, and wakes nothing."""

    def __init__(
        self, *, objects: Objects, store: Store, engine: Engine, streams: Streams, sandbox_streams: SandboxStreams
    ) -> None:
        self._objects, self._store, self._engine = objects, store, engine
        self._streams, self._sandbox_streams = streams, sandbox_streams

    def inspect(self, kind: Kind, namespace: str, name: str) -> Inspection:
        """Return the container and its record. Raises NotFound; ServiceUnavailable if the engine does not answer."""
        obj = self._objects.get(kind, namespace, name)
        observed = self._sandbox_streams.observed_container(obj)
        try:
            container = None if observed is None else without_values(self._streams.inspect(observed.id))
        except StreamError as error:
            raise errors.of_stream(error) from error
        with errors.translate_store_errors():
            record = next(iter(self._store.instances([obj.uid])), None)
        instance = None if record is None else instance_object(record, self._engine.observe())
        return Inspection(obj, container, instance)


def without_values(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine's answer with the names of variables only: values may be secrets."""
    config = dict(answer.get("Config") or {})
    config["Env"] = [f"{variable.partition('=')[0]}={HIDDEN}" for variable in config.get("Env") or ()]
    return {**answer, "Config": config}
