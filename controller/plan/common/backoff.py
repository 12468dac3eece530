"""How long to wait after failures: engine calls that failed, and containers that keep dying.

The figures for dying containers are the kubelet's (CrashLoopBackOff), except that the first restart is at once:
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
"""

from dataclasses import replace

from controller.kinds.planning.action import Action, CreateContainer, PullImage, ReadTail, UpdateLimits
from controller.kinds.planning.instance_record import Failure, Memory
from controller.kinds.planning.outcome import Ok, Outcome, Terminal, Transient, Waiting
from controller.kinds.planning.snapshot import Result
from controller.kinds.runtime.mount import RemoveVolumes
from controller.kinds.runtime.network import EnsureNetwork

CALL_FIRST_SECONDS = 1.0
CALL_LONGEST_SECONDS = 300.0
CRASH_FIRST_SECONDS = 10.0
CRASH_LONGEST_SECONDS = 300.0
HEALTHY_SECONDS = 600.0
_NO_IMAGE = ("ImageMissing", "ImagePullFailed", "ImageRefused", "EgressImageMissing")


def crash_delay_seconds(crashes: int) -> float:
    """Seconds between the `crashes`-th unasked-for end in a row and the next start."""
    if crashes <= 1:
        return 0.0
    return float(min(CRASH_FIRST_SECONDS * 2 ** min(crashes - 2, 20), CRASH_LONGEST_SECONDS))


def call_delay_seconds(failures: int) -> float:
    """Seconds before the next try after `failures` failed tries in a row."""
    return float(min(CALL_FIRST_SECONDS * 2 ** min(failures - 1, 20), CALL_LONGEST_SECONDS))


def waits(now: float, until: float, longest_seconds: float) -> bool:
    """Whether to wait until then. What is further off than any wait can be tells that the clock was set back."""
    return now < until <= now + longest_seconds


def fold(memory: Memory, result: Result, now: float) -> Memory:
    """The memory after a group of actions came back. Success forgets the failures of the same sort."""
    for action, outcome in result.done:
        if isinstance(action, ReadTail) and isinstance(outcome, Ok):
            continue  # that a log could be read says nothing of the calls that failed
        outcome = _of_egress(action, outcome, result)
        if isinstance(action, UpdateLimits):
            memory = replace(memory, resize=_after(memory.resize, action, outcome, result, now))
        else:
            memory = replace(memory, failure=_after(memory.failure, action, outcome, result, now))
        if isinstance(action, RemoveVolumes) and isinstance(outcome, Ok):
            memory = replace(memory, reclaimed=True)
        if isinstance(action, CreateContainer) and action.uid == result.uid and isinstance(outcome, Ok):
            memory = replace(memory, container=outcome.container_id)
    return memory


def _after(prior: Failure | None, action: Action, outcome: Outcome, result: Result, now: float) -> Failure | None:
    if isinstance(outcome, Ok):
        # That an image is here is no success yet: the create that wanted it comes next, and may fail again.
        return prior if isinstance(action, PullImage) else None
    count = prior.count if prior is not None and held(prior, result.generation, result.deleting) else 0
    if isinstance(outcome, Waiting):
        delay, terminal = outcome.after_seconds, False
    elif isinstance(outcome, Terminal):
        count, delay, terminal = count + 1, 0.0, True
    elif wants_pull(action, outcome) and not any(isinstance(each, PullImage) for each, _ in result.done):
        delay, terminal = 0.0, False  # the image is simply not here yet: fetch it now, this is no failure
    else:
        count, terminal = count + 1, False
        delay = call_delay_seconds(count)
    subnet = action.config.subnet if isinstance(action, EnsureNetwork) else ""
    return Failure(
        count, now + delay, outcome.reason, outcome.message, result.generation, result.deleting, terminal, subnet=subnet
    )


def _of_egress(action: Action, outcome: Outcome, result: Result) -> Outcome:
    """An egress container's missing image is not the sandbox's: that one is not to be pulled for it."""
    beside = isinstance(action, CreateContainer) and action.uid != result.uid
    if beside and isinstance(outcome, Transient) and outcome.reason == "ImageMissing":
        return replace(outcome, reason="EgressImageMissing")
    return outcome


def wants_pull(action: Action, outcome: Outcome) -> bool:
    """Whether a create failed for want of its image."""
    return isinstance(action, CreateContainer) and not isinstance(outcome, Ok) and outcome.reason == "ImageMissing"


def can_not_start(failure: Failure | None) -> bool:
    """Whether it will not start as things are: it is refused for good, or its image could not be had."""
    return failure is not None and (failure.terminal or (failure.count > 0 and failure.reason in _NO_IMAGE))


def held(failure: Failure | None, generation: int, deleting: bool) -> bool:
    """Whether a failure still speaks of what is wanted now: a new generation, or deletion, starts afresh."""
    return failure is not None and failure.generation == generation and failure.deleting == deleting
