"""States of instances by the names of their stored fields, which are flat: `instance_state(restarts=2, pool="uid")`."""

from typing import Any

from controller.kinds.planning.instance_json import state_of
from controller.kinds.planning.instance_state import DiskExcess, FailedAttestation, GenerationTime, InstanceState
from controller.kinds.runtime.run import Run

_RECORDS = {
    "run": Run,
    "asked_to_stop": Run,
    "changed": GenerationTime,
    "insecure": FailedAttestation,
    "overfull": DiskExcess,
}


def instance_state(**stored_fields: Any) -> InstanceState:
    """Return a state with these fields; all others have their defaults."""
    return state_of(_with_records(stored_fields))


def changed_state(state: InstanceState, **stored_fields: Any) -> InstanceState:
    """Return a copy of a state with these fields."""
    return state_of(_with_records(stored_fields), state)


def _with_records(stored_fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _RECORDS[name](*value) if name in _RECORDS else value for name, value in stored_fields.items()}
