"""Resource warnings of a sandbox near a limit, with hysteresis so that they do not repeat."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

NEAR, CLEAR = 0.9, 0.8
# Disk usage is measured seldom, and exceeding the limit stops the sandbox: so it is reported earlier.
LAYER_NEAR, LAYER_CLEAR = 0.8, 0.7
# Samples in a row above the threshold until a resource is near. Short CPU peaks are normal.
SAMPLES_NEEDED: Mapping[str, int] = MappingProxyType(
    {"memory": 1, "cpu": 4, "pids": 1, "disk": 1, "layer": 1, "folder": 1}
)


@dataclass(frozen=True, slots=True)
class Health:
    """Resources near their limits, and for each other change the number of samples in a row."""

    near: frozenset[str] = frozenset()
    streaks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ThresholdCrossing:
    """A crossed threshold: `resource` came near its limit, or recovered."""

    resource: str
    near: bool


WELL = Health()


def judge(before: Health, shares: Mapping[str, float | None]) -> tuple[Health, tuple[ThresholdCrossing, ...]]:
    """Return the state after a sample, and the crossings. `shares` are use by limit; None: unknown, or no limit.

    Unknown values change nothing.
    """
    judgements = dict(_judge_limits(before, shares))
    near = frozenset(name for name, (is_near, _) in judgements.items() if is_near)
    streaks = {name: streak for name, (_, streak) in judgements.items() if streak}
    crossed = tuple(
        ThresholdCrossing(name, name in near) for name in SAMPLES_NEEDED if (name in near) != (name in before.near)
    )
    return Health(near, streaks), crossed


def thresholds(resource: str) -> tuple[float, float]:
    """Return the share from which a resource is near its limit, and the one below which it has recovered."""
    return (LAYER_NEAR, LAYER_CLEAR) if resource == "layer" else (NEAR, CLEAR)


def _judge_limits(before: Health, shares: Mapping[str, float | None]) -> Iterator[tuple[str, tuple[bool, int]]]:
    for name, needed in SAMPLES_NEEDED.items():
        share = shares.get(name)
        was = name in before.near
        streak = before.streaks.get(name, 0)
        near, clear = thresholds(name)
        if share is None:
            yield name, (was, streak)
        elif was:
            yield name, (share >= clear, 0)
        else:
            streak = streak + 1 if share >= near else 0
            yield name, (streak >= needed, 0 if streak >= needed else streak)
