"""Commands that go on when the daemon that began them does not: what they are found again by."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExecRef:
    """A running command, in words that outlive the daemon. `mark` is in the environment of its processes.

    `init_pid` is the box's first process, `since_ticks` when the command may have begun, in ticks since boot.
    """

    exec_id: str
    container_id: str
    init_pid: int
    mark: str
    since_ticks: int
