"""Events from what came back: one for each engine call that changed something, and one for the call that failed."""

from collections.abc import Iterator

from controller.kinds.action import (
    Action,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    PauseContainer,
    PullImage,
    ReadTail,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
)
from controller.kinds.meta import Event, StoredObject
from controller.kinds.mount import BindMounts, RemoveVolumes
from controller.kinds.network import EnsureNetwork, RemoveNetwork
from controller.kinds.outcome import Ok
from controller.kinds.snapshot import Result

REASONS: dict[type[Action], str] = {
    PullImage: "Pulled",
    CreateContainer: "Created",
    StartContainer: "Started",
    SignalContainer: "Stopping",
    PauseContainer: "Paused",
    UnpauseContainer: "Unpaused",
    UpdateLimits: "Resized",
    RenameContainer: "Renamed",
    DisconnectNetwork: "Disconnected",
    ConnectNetwork: "Connected",
    RemoveContainer: "Removed",
    EnsureNetwork: "NetworkMade",
    RemoveNetwork: "NetworkRemoved",
    BindMounts: "Bound",
    RemoveVolumes: "VolumesRemoved",
}


def of_result(obj: StoredObject, result: Result, now: float) -> Iterator[Event]:
    """The events of one group that came back."""
    for action, outcome in result.done:
        if isinstance(outcome, Ok) and isinstance(action, ReadTail):
            continue  # nothing was changed
        if isinstance(outcome, Ok):
            yield Event(obj.ref, "Normal", REASONS[type(action)], f"{action} ({action.why})", now)
            yield from (Event(obj.ref, "Normal", "ImageNoted", each, now) for each in outcome.notes)
        else:
            yield Event(obj.ref, "Warning", outcome.reason, f"{action}: {outcome.message}", now)
