"""Who uses a sandbox, and when: what a daemon sees of it, and what of that the store keeps. Times are Unix seconds."""

from dataclasses import dataclass

Run = tuple[str, float]  # one run of a container: its id, and when it was started


@dataclass(frozen=True, slots=True)
class CpuSample:
    """CPU seconds that a run had used at a time; None where that could not be read."""

    run: Run
    at: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Activity:
    """What this daemon has seen of the use of one object since it started.

    `last_at` is when a stream (an exec, a followed log) last began or ended, `open` how many are open now, `asking`
    how many of those are execs: they wake a box that sleeps. `mark` is the first CPU sample since the last use, `cpu`
    the newest.
    """

    last_at: float = 0.0
    open: int = 0
    asking: int = 0
    mark: CpuSample | None = None
    cpu: CpuSample | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """What the store keeps: the last known use, written at most every 30 s.

    `open`: streams were open when this was noted, so the use went on for as long as nothing newer is said.
    `generation` is the spec's at that time: a change of the spec is a use, too.
    """

    at: float
    open: bool
    noted_at: float
    generation: int
