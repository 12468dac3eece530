"""Events of action results: one for each engine call that changed something, and one for the call that failed."""

from collections.abc import Collection, Iterator

from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.action import (
    Action,
    BuildImage,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    HibernateContainer,
    PauseContainer,
    PullImage,
    ReadTail,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
    WakeContainer,
)
from controller.kinds.planning.outcome import Ok, Waiting
from controller.kinds.planning.snapshot import Result
from controller.kinds.runtime.mount import BindMounts, CheckFiles, RemoveFiles, RemoveVolumes, SaveFiles
from controller.kinds.runtime.network import EnsureNetwork, RemoveNetwork
from controller.kinds.runtime.snapshot import RestoreRoot

REASONS: dict[type[Action], str] = {
    PullImage: "Pulled",
    BuildImage: "Built",
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
    HibernateContainer: "Hibernated",
    WakeContainer: "Awake",
    EnsureNetwork: "NetworkMade",
    RemoveNetwork: "NetworkRemoved",
    BindMounts: "Bound",
    RemoveVolumes: "VolumesRemoved",
    SaveFiles: "FilesSaved",
    RemoveFiles: "FilesRemoved",
    RestoreRoot: "Restored",
}


def result_events(obj: StoredObject, result: Result, now: float) -> Iterator[Event]:
    """Yield the events of one group of actions that was reported back."""
    replaced = {action.uid for action, _ in result.done if isinstance(action, RemoveContainer)}
    for action, outcome in result.done:
        if isinstance(outcome, Ok) and _is_silent(action):
            continue  # nothing was changed, or nothing but a part of the start
        if isinstance(outcome, Waiting) and isinstance(action, BuildImage):
            continue  # its beginning was an event, and the condition says how far it is
        if isinstance(outcome, Ok):
            yield Event(obj.ref, "Normal", REASONS[type(action)], f"{action} ({_why(action, replaced)})", now)
            yield from (Event(obj.ref, "Normal", "ImageNoted", note, now) for note in outcome.notes)
        else:
            yield Event(obj.ref, "Warning", outcome.reason, f"{action}: {outcome.message}", now)


def _is_silent(action: Action) -> bool:
    """Return True for an action whose success is no news."""
    if isinstance(action, BindMounts):
        return not action.container_id and all(mount.kind == "tmpfs" for mount in action.mounts)
    return isinstance(action, ReadTail | CheckFiles)


def _why(action: Action, replaced: Collection[str]) -> str:
    """Return the reason of an action as it reads afterwards, when what was missing is there.

    `replaced` are the uids of the containers that the same group removed.
    """
    if isinstance(action, CreateContainer) and action.uid not in replaced:
        return "found no container, desired one"
    if isinstance(action, StartContainer | ConnectNetwork) and not action.container_id:
        return "just created"
    if isinstance(action, BindMounts) and not action.container_id:
        return "before its start"
    return action.why
