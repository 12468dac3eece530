"""Fresh prometheus_client families from the catalogue, for the collectors that build them anew at each scrape."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.samples import Sample

from controller.metrics.catalogue import CATALOGUE
from controller.metrics.catalogue.family import Family
from controller.metrics.render import Labels


def empty(family: Family) -> Metric:
    """The family without samples. Filling `samples` directly is much faster than add_metric()."""
    return Metric(family.base, family.help, family.type, family.unit)


def single(name: str, value: float) -> Metric:
    """A family of the catalogue with one sample and no labels."""
    return filled(name, [({}, value)])


def filled(name: str, samples: Iterable[tuple[dict[str, str], float]]) -> Metric:
    """A family of the catalogue with those samples."""
    metric = empty(CATALOGUE[name])
    metric.samples = [Sample(name, labels, value) for labels, value in samples]
    return metric


def enum(name: str, label: str, rows: Iterable[tuple[dict[str, str], str]]) -> Metric:
    """A family that is 1 for the current value of a closed label and 0 for the others. Rows: (labels, current)."""
    values = CATALOGUE[name].values[label]
    samples = (
        (Labels({**labels, label: value}), int(value == current)) for labels, current in rows for value in values
    )
    return filled(name, samples)
