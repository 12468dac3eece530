"""Metric families as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Type = Literal["counter", "gauge", "histogram"]
Values = Mapping[str, tuple[str, ...]]
Words = Mapping[str, Mapping[str, str]]
_OPEN: Values = MappingProxyType({})
_NO_WORDS: Words = MappingProxyType({})

# What a value outside a closed list, or one too many of an open one, is counted under.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Family:
    """One family of metrics."""

    name: str
    """Name as users query it; a counter's ends with `_total`."""
    type: Type
    """Counter, gauge or histogram."""
    help: str
    """Text for people."""
    labels: tuple[str, ...] = ()
    """Names of its labels."""
    unit: str = ""
    """Unit; empty for a plain number."""
    values: Values = field(default_factory=lambda: _OPEN)
    """Values of closed labels: only these (and `other`) are exported, from the start, at 0. Others take any value, up
    to a bound.
    """
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets (seconds)."""
    detail: bool = False
    """It is exported only on request."""
    at_start: float | None = None
    """Value of a gauge before it is first set; None: it is absent until then."""
    aliases: Words = field(default_factory=lambda: _NO_WORDS)
    """Values of closed labels for those of another package."""

    @property
    def base(self) -> str:
        """Name without a counter's `_total`, as prometheus_client and OpenMetrics call a family."""
        return self.name.removesuffix("_total") if self.type == "counter" else self.name

    @property
    def closed(self) -> bool:
        """True if the values of every label are a closed list."""
        return all(label in self.values for label in self.labels)


def counter(
    name: str,
    text: str,
    labels: tuple[str, ...] = (),
    *,
    unit: str = "",
    values: Values = _OPEN,
    aliases: Words = _NO_WORDS,
    detail: bool = False,
) -> Family:
    return Family(name, "counter", help=text, labels=labels, unit=unit, values=values, detail=detail, aliases=aliases)


def gauge(
    name: str,
    text: str,
    labels: tuple[str, ...] = (),
    *,
    unit: str = "",
    values: Values = _OPEN,
    detail: bool = False,
    at_start: float | None = None,
) -> Family:
    return Family(name, "gauge", help=text, labels=labels, unit=unit, values=values, detail=detail, at_start=at_start)


def histogram(
    name: str, text: str, labels: tuple[str, ...] = (), *, buckets: tuple[float, ...], values: Values = _OPEN
) -> Family:
    return Family(name, "histogram", help=text, labels=labels, unit="seconds", values=values, buckets=buckets)
