"""Counts and timings of other packages, published by prometheus_client. Implements ports.Meter."""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from threading import Lock

from prometheus_client import Counter, Gauge, Histogram

from controller.metrics.catalogue import METER
from controller.metrics.catalogue.family import OTHER, Family, Type
from controller.metrics.registry import BUILD_INFO, ERRORS, Registry

# Series of one family; what comes after is counted under `other`, so that a mistake can't fill the memory.
MAX_SERIES = 1000
MAX_VALUE_LENGTH = 128
_OWN_BY_REGISTRY = (ERRORS.name, BUILD_INFO.name)

Child = Counter | Gauge | Histogram
Labels = Mapping[str, str]


class Misuse(Exception):
    """Use of a metric that contradicts the catalogue: a bug in the caller."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PrometheusMeter:
    """Publishes by catalogue name into `registry`. Thread-safe.

    A wrong name, type, label or value is a bug of the caller. It never breaks the caller: the registry counts it
    and says it once. With `strict` (tests) it is raised instead.
    """

    def __init__(self, registry: Registry, *, strict: bool = False, families: Iterable[Family] = METER) -> None:
        self._registry = registry
        self._strict = strict
        published = (family for family in families if family.name not in _OWN_BY_REGISTRY)
        self._series = {family.name: _Series(family, registry) for family in published}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        self._publish("counter", name, amount, labels)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self._publish("histogram", name, seconds, labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self._publish("gauge", name, value, labels)

    def watch(self, name: str, read: Callable[[], float], /, **labels: str) -> None:
        """Publish a gauge that is read at each scrape, in the scrape's thread; `read` must be fast."""
        try:
            series = self._series_of("gauge", name)
            child = series.child(labels)
            assert isinstance(child, Gauge)
            child.set_function(read)
            series.show()
        except Exception as error:
            self._lost(name, error)

    def _publish(self, type_: Type, name: str, value: float, labels: Labels) -> None:
        try:
            series = self._series_of(type_, name)
            _apply(series.child(labels), _number(name, value))
            series.show()
        except Exception as error:  # a figure is never worth the caller's work
            self._lost(name, error)

    def _series_of(self, type_: Type, name: str) -> "_Series":
        series = self._series.get(name)
        if series is None:
            raise Misuse("unknown_name", f"`{name}`: not in the catalogue; add it there")
        if series.family.type != type_:
            raise Misuse("wrong_type", f"`{name}` is a {series.family.type}, not a {type_}")
        return series

    def _lost(self, name: str, error: Exception) -> None:
        if self._strict:
            raise error
        self._registry.lost(error.reason if isinstance(error, Misuse) else "bad_value", name, error)


def _number(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise Misuse("bad_value", f"`{name}` can't be {value}")
    return value


def _apply(child: Child, value: float) -> None:
    if isinstance(child, Counter):
        child.inc(value)
    elif isinstance(child, Gauge):
        child.set(value)
    else:
        child.observe(value)


class _Series:
    """Series of one family, made at their first use; closed label values at once.

    A gauge without labels would show 0 before it is set, which may be a lie: it is hidden until then.
    """

    def __init__(self, family: Family, registry: Registry) -> None:
        self.family = family
        self._registry = registry
        self._lock = Lock()
        self._children: dict[tuple[str, ...], Child] = {}
        self._metric = _metric(family)
        self._hidden = True
        self._start()
        if family.type != "gauge" or family.labels:
            self.show()

    def show(self) -> None:
        """Start publishing."""
        if self._hidden:
            with self._lock:
                if self._hidden:
                    self._registry.register(self._metric)
                    self._hidden = False

    def _start(self) -> None:
        """Export the series of closed label values, at 0."""
        family = self.family
        if not family.closed or (family.type == "gauge" and family.at_start is None):
            return
        for values in product(*(family.values[label] for label in family.labels)):
            child = self._make(values)
            if family.at_start is not None:
                _apply(child, family.at_start)
                self.show()

    def child(self, labels: Labels) -> Child:
        values = self._label_values(labels)
        child = self._children.get(values)
        if child is not None:
            return child
        with self._lock:
            if len(self._children) >= MAX_SERIES:
                values = tuple(
                    self._last(label, value) for label, value in zip(self.family.labels, values, strict=True)
                )
            return self._make(values)

    def _make(self, values: tuple[str, ...]) -> Child:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*values) if values else self._metric
        return child

    def _label_values(self, labels: Labels) -> tuple[str, ...]:
        """Return the label values in order; closed labels are checked by list, open ones by length."""
        family = self.family
        if len(labels) != len(family.labels) or any(label not in labels for label in family.labels):
            label_names = ", ".join(family.labels) or "no labels"
            raise Misuse("wrong_labels", f"`{family.name}` takes {label_names}, not {', '.join(labels) or 'none'}")
        return tuple(_bound(family, label, str(labels[label])) for label in family.labels)

    def _last(self, label: str, value: str) -> str:
        return value if label in self.family.values else OTHER


def _bound(family: Family, label: str, value: str) -> str:
    known_values = family.values.get(label)
    if known_values is None:
        return value[:MAX_VALUE_LENGTH]
    if label in family.aliases:
        value = family.aliases[label].get(value, value)
    return value if value in known_values else OTHER


def _metric(family: Family) -> Child:
    """Return the unregistered prometheus_client metric of a family."""
    if family.type == "histogram":
        return Histogram(
            family.name, family.help, family.labels, unit=family.unit, buckets=family.buckets, registry=None
        )
    kind = Counter if family.type == "counter" else Gauge
    return kind(family.base, family.help, family.labels, unit=family.unit, registry=None)
