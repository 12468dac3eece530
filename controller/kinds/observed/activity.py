"""Use of a sandbox: observed by this daemon, and as kept in the store. Times are Unix seconds."""

from dataclasses import dataclass

from controller.kinds.runtime.run import Run


@dataclass(frozen=True, slots=True)
class CpuSample:
    """CPU seconds used by a run at one time; None if they could not be read.

    `ticks` is that time by a clock that nobody sets.
    """

    run: Run
    at: float
    seconds: float | None
    ticks: float = 0.0


@dataclass(frozen=True, slots=True)
class Activity:
    """Use of one object that this daemon has observed since it started.

    `last_at` is when a stream (an exec, a followed log) last began or ended. `open` counts open streams, `asking` the
    execs among them: they start a suspended sandbox. `mark` is the first CPU sample since the last use, `cpu` the
    newest. `void` are times of the clock before it jumped, of the stored use and of the run's start: `last_at` is in
    their place. `contexts` are the code contexts of `contexts_run`, by name and language (None: none was asked for).
    """

    last_at: float = 0.0
    open: int = 0
    asking: int = 0
    mark: CpuSample | None = None
    cpu: CpuSample | None = None
    void: tuple[float, ...] = ()
    contexts: tuple[tuple[str, str], ...] = ()
    contexts_run: Run | None = None


@dataclass(frozen=True, slots=True)
class StoredUse:
    """Stored use: the last known use, written at most every 30 s.

    `open`: streams were open then, so the use lasts until a newer record. `generation` is the spec's at that time: a
    change of the spec is a use, too.
    """

    at: float
    open: bool
    noted_at: float
    generation: int
