"""Registry that isolates collectors: one that fails loses only its own metrics."""

import logging
import platform
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from controller.metrics.catalogue import CATALOGUE

_log = logging.getLogger("paddock.metrics")
ERRORS = CATALOGUE["paddock_metrics_errors_total"]
BUILD_INFO = CATALOGUE["paddock_build_info"]


class Registry(CollectorRegistry):
    """CollectorRegistry that catches and counts a collector's exception, and continues with the next one.

    A collector's families are published whole or not at all. What is lost shows as `paddock_metrics_errors_total`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._guards: dict[Collector, _Guarded] = {}
        self._said: set[str] = set()
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._errors = Counter(ERRORS.base, ERRORS.help, ERRORS.labels, registry=self)
        for reason in ERRORS.values["reason"]:
            self._errors.labels(reason)

    def register(self, collector: Collector) -> None:
        guard = _Guarded(collector, self._failed)
        super().register(guard)
        self._guards[collector] = guard

    def unregister(self, collector: Collector) -> None:
        super().unregister(self._guards.pop(collector))

    def lost(self, reason: str, about: str, error: Exception) -> None:
        """Count a metric lost by a bug, and log it, once per subject."""
        self._errors.labels(reason).inc()
        if (key := f"{reason}:{about}") not in self._said:
            self._said.add(key)
            _log.error("metrics lost (%s) by %s: %s; logged once", reason, about, error, exc_info=error)

    def _failed(self, collector: Collector, error: Exception) -> None:
        self.lost("collector", type(collector).__name__, error)


class _Guarded:
    """Collector that yields nothing if the inner one raises."""

    def __init__(self, inner: Collector, failed: Callable[[Collector, Exception], None]) -> None:
        self._inner = inner
        self._failed = failed

    def describe(self) -> Iterable[Metric]:
        described: Iterable[Metric] = getattr(self._inner, "describe", tuple)()
        return described

    def collect(self) -> Iterable[Metric]:
        try:
            return list(self._inner.collect())
        except Exception as error:  # whatever it is: the other collectors' figures are still wanted
            self._failed(self._inner, error)
            return ()


def new_registry(version: str, revision: str = "") -> Registry:
    """Return a registry with metrics of this process (process_*, python_gc_*) and its build."""
    registry = Registry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    build = Gauge(BUILD_INFO.name, BUILD_INFO.help, BUILD_INFO.labels, registry=registry)
    build.labels(version, revision, platform.python_version()).set(1)
    return registry
