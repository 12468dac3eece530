"""Commands that outlive the daemon which started them: references to find them again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExecRef:
    """A running command, by facts that outlive the daemon. `mark` is in the environment of its processes.

    `init_pid` is the sandbox's first process. `since_ticks` is the earliest start of the command, in ticks since boot.
    """

    exec_id: str
    container_id: str
    init_pid: int
    mark: str
    since_ticks: int
