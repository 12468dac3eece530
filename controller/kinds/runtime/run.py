"""Run of a container: the time from one start to its end."""

from typing import NamedTuple


class Run(NamedTuple):
    """One run of a container. What was measured, asked or decided of it never outlives it."""

    container_id: str
    """Engine's id of the container."""
    started_at: float
    """Start (Unix seconds)."""


NO_RUN = Run("", 0.0)
