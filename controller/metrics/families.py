"""prometheus_client families from the catalogue, for collectors that build them at each scrape."""

from collections.abc import Callable, Iterable

from prometheus_client import Metric

from controller.metrics.catalogue import CATALOGUE
from controller.metrics.catalogue.family import Family
from controller.metrics.render import Labels, Pairs, Series


def empty(family: Family) -> Metric:
    """Return the family without samples. Filling `samples` directly is much faster than add_metric()."""
    return Metric(family.base, family.help, family.type, family.unit)


def single(name: str, value: float) -> Metric:
    """Return a family of the catalogue with one sample without labels."""
    return filled(name, [({}, value)])


def filled(name: str, samples: Iterable[tuple[dict[str, str], float]]) -> Metric:
    """Return a family of the catalogue with these samples."""
    pairs = list(samples)
    return _of(Series(name, lambda: pairs), name)


def text_family(name: str, lines: list[str], pairs: Callable[[], Pairs]) -> Metric:
    """Return a family of the catalogue whose samples are text already; `pairs` are the same as labels and values."""
    return _of(Series(name, pairs, lines), name)


def _of(samples: Series, name: str) -> Metric:
    metric = empty(CATALOGUE[name])
    metric.samples = samples  # type: ignore[assignment]  # read like a list of them
    return metric


def enum(name: str, label: str, rows: Iterable[tuple[Labels, str]]) -> Metric:
    """Return a family that is 1 for a label's current value and 0 for its others. Rows: (labels, current)."""
    values = CATALOGUE[name].values[label]
    samples = ((labels.plus(label, value), int(value == current)) for labels, current in rows for value in values)
    return filled(name, samples)
