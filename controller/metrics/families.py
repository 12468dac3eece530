"""prometheus_client families from the catalogue, for collectors that build them at each scrape."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.samples import Sample

from controller.metrics.catalogue import CATALOGUE
from controller.metrics.catalogue.family import Family
from controller.metrics.render import Labels


def empty(family: Family) -> Metric:
    """Return the family without samples. Filling `samples` directly is much faster than add_metric()."""
    return Metric(family.base, family.help, family.type, family.unit)


def single(name: str, value: float) -> Metric:
    """Return a family of the catalogue with one sample without labels."""
    return filled(name, [({}, value)])


def filled(name: str, samples: Iterable[tuple[dict[str, str], float]]) -> Metric:
    """Return a family of the catalogue with these samples."""
    metric = empty(CATALOGUE[name])
    metric.samples = [Sample(name, labels, value) for labels, value in samples]
    return metric


def enum(name: str, label: str, rows: Iterable[tuple[dict[str, str], str]]) -> Metric:
    """Return a family that is 1 for a label's current value and 0 for its others. Rows: (labels, current)."""
    values = CATALOGUE[name].values[label]
    samples = (
        (Labels({**labels, label: value}), int(value == current)) for labels, current in rows for value in values
    )
    return filled(name, samples)
