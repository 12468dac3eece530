"""Back-off after failed engine calls and after crashes of containers.

The figures for crashes are the kubelet's (CrashLoopBackOff), except that the first restart is immediate:
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
"""

import re
from dataclasses import replace

from controller.kinds.planning.action import (
    Action,
    BuildImage,
    CreateContainer,
    HibernateContainer,
    PullImage,
    ReadTail,
    StartContainer,
    UpdateLimits,
    WakeContainer,
)
from controller.kinds.planning.instance_state import Failure, InstanceState
from controller.kinds.planning.outcome import START_BLOCKED, Ok, Outcome, Terminal, Transient, Waiting
from controller.kinds.planning.snapshot import Result
from controller.kinds.runtime import agent
from controller.kinds.runtime.mount import BindMounts, CheckFiles, RemoveFiles, RemoveVolumes, SaveFiles
from controller.kinds.runtime.network import EnsureNetwork
from controller.kinds.runtime.run import NO_RUN
from controller.kinds.runtime.secret import SECRET_MISSING
from controller.policy.images import has_recipe

CALL_FIRST_SECONDS = 1.0
CALL_LONGEST_SECONDS = 300.0
SECRET_LONGEST_SECONDS = 10.0  # the operator who sets a missing secret waits for this
CRASH_FIRST_SECONDS = 10.0
CRASH_LONGEST_SECONDS = 300.0
HEALTHY_SECONDS = 600.0
BLOCKED_STARTS = 3  # a leftover that is just being cleaned up lets a retry through
IMAGE_BUILDING = "ImageBuilding"
_PULL_FAILED = "ImagePullFailed"
_AGENT_MISSING = "AgentImageMissing"
_STARTS = ("StartFailed", START_BLOCKED)
_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
_NO_IMAGE = ("ImageMissing", _PULL_FAILED, "ImageBuildFailed", "ImageRefused", "EgressImageMissing")


def crash_delay_seconds(crashes: int) -> float:
    """Return the seconds between the `crashes`-th unrequested end in a row and the next start."""
    if crashes <= 1:
        return 0.0
    return float(min(CRASH_FIRST_SECONDS * 2 ** min(crashes - 2, 20), CRASH_LONGEST_SECONDS))


def call_delay_seconds(failures: int) -> float:
    """Return the seconds before the next try after `failures` failed tries in a row."""
    return float(min(CALL_FIRST_SECONDS * 2 ** min(failures - 1, 20), CALL_LONGEST_SECONDS))


def waits(now: float, until: float, longest_seconds: float) -> bool:
    """Return True until then. A time beyond the longest possible wait means that the clock was set back."""
    return now < until <= now + longest_seconds


def fold(state: InstanceState, result: Result, now: float) -> InstanceState:
    """Return the state after the results of a group of actions. A success clears the failures of the same kind."""
    for action, outcome in result.done:
        if isinstance(action, ReadTail) and isinstance(outcome, Ok):
            continue  # that a log could be read says nothing of the calls that failed
        outcome = _of_egress(action, outcome, result)
        if isinstance(action, UpdateLimits):
            failure = _failure_after(state.backoff.resize, action, outcome, result, now)
            state = replace(state, backoff=replace(state.backoff, resize=failure))
        else:
            failure = _failure_after(state.backoff.failure, action, outcome, result, now)
            state = replace(state, backoff=replace(state.backoff, failure=failure))
        if isinstance(action, RemoveVolumes) and isinstance(outcome, Ok):
            state = replace(state, lifecycle=replace(state.lifecycle, volumes_reclaimed=True))
        if isinstance(action, CreateContainer) and action.uid == result.uid and isinstance(outcome, Ok):
            state = replace(state, container=replace(state.container, id=outcome.container_id))
        state = _with_files(state, action, outcome, result.uid)
        if isinstance(outcome, Ok) and action_uid(action) == result.uid:
            state = _after_success(state, action, outcome, now)
    return state


def action_uid(action: Action) -> str:
    """Return the uid of the object whose container an action is about; "" if there is none."""
    return getattr(action, "uid", "")


def _after_success(state: InstanceState, action: Action, outcome: Ok, now: float) -> InstanceState:
    """Return the state after a successful start, hibernation or wake."""
    if isinstance(action, HibernateContainer) and state.memory.hibernation is not None:
        hibernation = replace(state.memory.hibernation, phase="Hibernated", at=now)
        return replace(state, memory=replace(state.memory, hibernation=hibernation))
    if isinstance(action, StartContainer) and outcome.seconds:
        return replace(state, runs=replace(state.runs, start_seconds=round(outcome.seconds, 3)))
    if isinstance(action, WakeContainer) and outcome.seconds:
        return replace(state, memory=replace(state.memory, wake_seconds=round(outcome.seconds, 3)))
    return state


def _with_files(state: InstanceState, action: Action, outcome: Outcome, uid: str) -> InstanceState:
    """Return the state after an action on files in memory."""
    if isinstance(action, CheckFiles) and not isinstance(outcome, Ok):
        # Its stop was recorded with the plan, and has not begun.
        stop = state.runs.stop._replace(run=NO_RUN)
        lifecycle = replace(state.lifecycle, idled=state.lifecycle.idled._replace(generation=0), evicted_for=())
        return replace(state, runs=replace(state.runs, stop=stop), lifecycle=lifecycle)
    if not isinstance(outcome, Ok):
        return state
    if isinstance(action, SaveFiles):
        saved_files = outcome.saved or state.memory.saved_files if action.keep else None
        return replace(state, memory=replace(state.memory, saved_files=saved_files))
    started = isinstance(action, BindMounts) and action.uid == uid and not action.container_id
    if state.memory.saved_files and (started or isinstance(action, RemoveFiles)):
        return replace(state, memory=replace(state.memory, saved_files=None))
    return state


def _failure_after(
    prior: Failure | None, action: Action, outcome: Outcome, result: Result, now: float
) -> Failure | None:
    """Return the failure to remember after an outcome, with the time of the next try; None after a success."""
    if isinstance(outcome, Ok):
        # An image that came is no success yet: the create that needs it comes next, and may fail again.
        if isinstance(action, BuildImage) and prior is not None:
            return replace(prior, image="")
        return prior if isinstance(action, PullImage | BuildImage) else None
    count = prior.count if prior is not None and is_backing_off(prior, result.generation, result.deleting) else 0
    if prior is not None and outcome.reason == START_BLOCKED != prior.reason:
        count = 0  # only equal failures in a row tell that no further try will help (`is_start_blocked`)
    if isinstance(outcome, Waiting):
        delay, terminal = outcome.after_seconds, False
    elif isinstance(outcome, Terminal):
        count = count + 1
        delay = 0.0
        terminal = True
    elif (image := missing_image(action, outcome)) and not any(
        isinstance(action, PullImage) for action, _ in result.done
    ):
        if prior is not None and count and prior.reason == _PULL_FAILED and not has_recipe(image):
            return replace(prior, retry_at=now, absent=True)
        delay, terminal = 0.0, False  # the image is simply not here yet: fetch it now, this is no failure
    else:
        count, terminal = count + 1, False
        longest = SECRET_LONGEST_SECONDS if outcome.reason == SECRET_MISSING else CALL_LONGEST_SECONDS
        delay = min(call_delay_seconds(count), longest)
    subnet = action.config.subnet if isinstance(action, EnsureNetwork) else ""
    first = (
        _first_cause(prior) if prior is not None and is_backing_off(prior, result.generation, result.deleting) else ""
    )
    message = outcome.message
    if first and outcome.reason in _STARTS and not _says_the_same(first, message):
        message = f"{message}; the first try said: {first}"
    return Failure(
        count=count,
        retry_at=now + delay,
        reason=outcome.reason,
        message=message,
        generation=result.generation,
        deleting=result.deleting,
        terminal=terminal,
        subnet=subnet,
        first=first,
        image=action.image if isinstance(action, BuildImage) else missing_image(action, outcome),
    )


def _first_cause(prior: Failure) -> str:
    """Return what the first failed start said; later ones may fail for what the first one left behind."""
    return prior.first or (prior.message if prior.reason in _STARTS else "")


def _says_the_same(first: str, second: str) -> bool:
    """Return True if two messages differ in ids, times and process numbers at most."""
    return _NUMBERS.sub("", first) == _NUMBERS.sub("", second)


def _of_egress(action: Action, outcome: Outcome, result: Result) -> Outcome:
    """Return the outcome, with the missing image of an egress container told apart from the sandbox's own image."""
    beside = isinstance(action, CreateContainer) and action.uid != result.uid
    if beside and isinstance(outcome, Transient) and outcome.reason == "ImageMissing":
        return replace(outcome, reason="EgressImageMissing")
    return outcome


def missing_image(action: Action, outcome: Outcome) -> str:
    """Return the image whose absence made an action fail, if it may be had by a pull or a build; else ""."""
    reason = outcome.reason if isinstance(outcome, Transient) else ""
    if isinstance(action, CreateContainer) and reason == _AGENT_MISSING:
        return agent.IMAGE
    if isinstance(action, CreateContainer):
        image = action.config.image if reason in ("ImageMissing", "EgressImageMissing") else ""
        # A build never brings an earlier image back.
        return "" if action.image_id and has_recipe(image) else image
    return action.image if isinstance(action, BindMounts) and reason == "ImageMissing" else ""


def lacks_image(failure: Failure) -> bool:
    """Return True if it failed, and goes on failing, because an image is unavailable."""
    return failure.count > 0 and failure.reason in (*_NO_IMAGE, _AGENT_MISSING)


def can_not_start(failure: Failure | None) -> bool:
    """Return True if it will not start as things are: refused for good, or its image is unavailable."""
    return failure is not None and (failure.terminal or (failure.count > 0 and failure.reason in _NO_IMAGE))


def is_start_blocked(failure: Failure | None, generation: int) -> bool:
    """Return True if the engine refused its start so often that no further try will help."""
    tries = failure.count if failure is not None and is_backing_off(failure, generation, deleting=False) else 0
    return failure is not None and failure.reason == START_BLOCKED and tries >= BLOCKED_STARTS


def is_backing_off(failure: Failure | None, generation: int, deleting: bool) -> bool:
    """Return True if a failure still applies: a new generation, or deletion, starts afresh."""
    return failure is not None and failure.generation == generation and failure.deleting == deleting
