"""Small sandboxes of a security level, as tests of networks apply them through the planner or through the loop."""

from typing import Any, Protocol

SMALL: dict[str, Any] = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}


class Harness(Protocol):
    """The planner's history or the loop's harness."""

    def apply(self, name: str, **spec: Any) -> None:
        """Apply a sandbox."""


def apply_small(harness: Harness, name: str, level: str, **spec: Any) -> None:
    """Apply a small sandbox of that level."""
    harness.apply(name, template={"securityLevel": level}, **{"resources": SMALL, **spec})
