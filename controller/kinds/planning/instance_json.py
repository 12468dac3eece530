"""Stored form of an instance's state: one flat object of JSON, as it was before the state had records by subject.

A field keeps its stored name for ever: daemons of other versions read the same rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from controller.kinds.common.log_tail import Tail
from controller.kinds.observed.activity import StoredUse
from controller.kinds.planning.instance_state import (
    DiskExcess,
    FailedAttestation,
    Failure,
    GenerationTime,
    Hibernation,
    InstanceState,
    Termination,
)
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import SavedFiles
from controller.kinds.runtime.probe import ProbeProgress, probe_progress_from_json
from controller.kinds.runtime.run import Run

# Attribute of the state by stored name.
STORED_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "restarts": "runs.restarts",
        "crashes": "runs.crashes",
        "last_end": "runs.last_end",
        "failure": "backoff.failure",
        "resize": "backoff.resize",
        "image_id": "container.image_id",
        "template": "container.template",
        "made_from": "container.template_fields",
        "asked_to_stop": "runs.stop.run",
        "asked_to_stop_at": "runs.stop.at",
        "stop_reason": "runs.stop.reason",
        "finished": "runs.finished",
        "run": "runs.last",
        "container": "container.id",
        "pool": "claim.pool",
        "hostname": "container.hostname",
        "launch": "claim.launch",
        "launch_reason": "claim.launch_reason",
        "claiming": "claim.is_pending",
        "checked": "runs.probes",
        "changed": "lifecycle.changed",
        "use": "lifecycle.use",
        "idled_generation": "lifecycle.idled.generation",
        "idled_at": "lifecycle.idled.at",
        "evicted": "lifecycle.evicted_for",
        "first_start": "runs.first_start",
        "expired_generation": "lifecycle.expired.generation",
        "expired_at": "lifecycle.expired.at",
        "subnet": "network.subnet",
        "insecure": "security.failed_attestation",
        "overfull": "lifecycle.disk_excess",
        "gpus": "container.gpus",
        "peers": "network.peers_subnet",
        "reclaimed": "lifecycle.volumes_reclaimed",
        "unguarded": "security.is_unguarded",
        "user_id": "security.user_id",
        "ready_key": "claim.ready_key",
        "hibernation": "memory.hibernation",
        "start_seconds": "runs.start_seconds",
        "wake_seconds": "memory.wake_seconds",
        "saved": "memory.saved_files",
    }
)
# Records and attribute of the state by stored name: split once, as a daemon reads a row for each instance.
_PATHS: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        name: (tuple(records), attribute)
        for name, path in {**STORED_FIELDS, "extra": "extra"}.items()
        for *records, attribute in [path.split(".")]
    }
)
_DEFAULT = InstanceState()
# Stored name, attribute and default of each field.
_FIELDS = tuple(
    (name, attrgetter(attribute), attrgetter(attribute)(_DEFAULT)) for name, attribute in STORED_FIELDS.items()
)


def state_to_json(state: InstanceState) -> dict[str, Any]:
    """Return the state as plain JSON, without default values."""
    non_default = {name: content for name, read, default in _FIELDS if (content := read(state)) != default}
    plain = {
        name: asdict(content) if is_dataclass(content) and not isinstance(content, type) else content
        for name, content in non_default.items()
    }
    return _flat({**plain, "extra": state.extra} if state.extra else plain)


def state_from_json(data: Mapping[str, Any]) -> InstanceState:
    """Return the state from its JSON. Unknown fields (a newer daemon's) are kept as `extra`."""
    parts = _sorted_out(STORED_FIELDS, data)
    if "launch_reason" not in parts and ": " in parts.get(
        "launch", ""
    ):  # as older versions stored it: `Cold: <reason>`
        parts["launch"], _, parts["launch_reason"] = parts["launch"].partition(": ")
    for name, parse in _PARSERS.items():
        if parts.get(name) is not None:
            parts[name] = parse(parts[name])
    return state_of(parts)


def state_of(stored_fields: Mapping[str, Any], state: InstanceState = _DEFAULT) -> InstanceState:
    """Return the state with these values of fields, by stored name (and `extra`)."""
    by_record: dict[str, Any] = {}
    for name, value in stored_fields.items():
        records, attribute = _PATHS[name]
        values = by_record
        for record in records:
            values = values.setdefault(record, _Values())
        values[attribute] = value
    return _replace(state, by_record)  # type: ignore[no-any-return]


class _Values(dict[str, Any]):
    """Values of a record's fields, by name: no value of a field itself."""


def _replace(record: Any, values: Mapping[str, Any]) -> Any:
    """Return a record with these values, and its records with theirs."""
    changes = {
        name: _replace(getattr(record, name), value) if isinstance(value, _Values) else value
        for name, value in values.items()
    }
    return record._replace(**changes) if hasattr(record, "_replace") else replace(record, **changes)


def _flat(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a part with its `extra` merged into its fields, recursively."""
    plain_fields = {
        name: _flat(content) if _has_extra(content) else content for name, content in plain.items() if name != "extra"
    }
    return {**plain.get("extra", {}), **plain_fields}


def _has_extra(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("extra"), Mapping)


def _sorted_out(names: Mapping[str, object], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part by name; unknown ones go into its `extra`."""
    known_fields = {name: value for name, value in data.items() if name in names and name != "extra"}
    if len(known_fields) == len(data):
        return known_fields
    return {**known_fields, "extra": {name: value for name, value in data.items() if name not in known_fields}}


@cache
def _names(kind: type[Failure | Hibernation | Termination]) -> Mapping[str, None]:
    """Return the names of a dataclass's fields, in order."""
    return dict.fromkeys(field_info.name for field_info in fields(kind))


def _tuple(kind: type[Any], data: Sequence[Any]) -> Any:
    """Return a tuple of that kind from its JSON, without what a newer daemon stores behind its known parts."""
    return kind(*data[: len(kind._fields)])


def _cut(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a dataclass without `extra` has, without those that a newer daemon stores."""
    return {name: value for name, value in data.items() if name in kind.__dataclass_fields__}


def _failure(data: Mapping[str, Any]) -> Failure:
    return Failure(**_sorted_out(_names(Failure), data))


def _hibernation(data: Mapping[str, Any]) -> Hibernation:
    parts = _sorted_out(_names(Hibernation), data)
    return Hibernation(**{**parts, "run": _tuple(Run, parts["run"])})


def _termination(data: Mapping[str, Any]) -> Termination:
    parts = _sorted_out(_names(Termination), data)
    if parts.get("limits") is not None:
        parts["limits"] = Limits(**_cut(Limits, parts["limits"]))
    if parts.get("tail") is not None:
        parts["tail"] = Tail(tuple(parts["tail"]["lines"]), parts["tail"]["note"])
    return Termination(**parts)


_PARSERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "last_end": _termination,
        "failure": _failure,
        "resize": _failure,
        "asked_to_stop": lambda data: _tuple(Run, data),
        "run": lambda data: _tuple(Run, data),
        "changed": lambda data: _tuple(GenerationTime, data),
        "insecure": lambda data: _tuple(FailedAttestation, data),
        "overfull": lambda data: _tuple(DiskExcess, data),
        "evicted": tuple,
        "gpus": tuple,
        "use": lambda data: StoredUse(**_cut(StoredUse, data)),
        "saved": lambda data: SavedFiles(**_cut(SavedFiles, data)),
        "hibernation": _hibernation,
        "checked": lambda data: probe_progress_from_json(_cut(ProbeProgress, data)),
    }
)
