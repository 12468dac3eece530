"""Reads PromQL as far as the tests of rules and dashboards need: which metrics it names, with which labels and how."""

import re
from collections.abc import Iterator, Mapping, Set

from controller.metrics.catalogue import CATALOGUE
from controller.metrics.catalogue.family import Family

# What Prometheus itself adds to every series it scrapes, and the one metric it makes of a scrape.
TARGET = {"instance", "job"}
_SERIES = ("_bucket", "_sum", "_count")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r"(?<![\w:$])(?:[a-z_]+:)?(paddock_\w+|up)(?::\w+)?(?![\w(])")
_RECORDED = re.compile(r"(?<![\w:])[a-z_]+:paddock_\w+:\w+")
_MATCHERS = re.compile(r"(paddock_\w+(?::\w+)?|up)\s*\{([^}]*)\}")
_GROUPS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_COUNTED = re.compile(r"\b(?:rate|irate|increase|resets)\s*\(\s*([\w:]+)")
_MEASURED = re.compile(r"\b(?:delta|idelta|deriv|predict_linear)\s*\(\s*([\w:]+)")


def family_of(name: str) -> Family | None:
    """The family of a series' name; a histogram has three."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    base = next((name.removesuffix(series) for series in _SERIES if name.endswith(series)), "")
    catalogue = CATALOGUE.get(base)
    return catalogue if catalogue is not None and catalogue.type == "histogram" else None


def recorded(expr: str) -> Set[str]:
    """Names of recording rules in it."""
    return set(_RECORDED.findall(_STRING.sub('""', expr)))


def names(expr: str) -> Set[str]:
    """Names of series in it, those of recording rules left out."""
    return set(_NAME.findall(_RECORDED.sub(" ", _STRING.sub('""', expr))))


def mistakes(expr: str, recordings: Mapping[str, str]) -> Iterator[str]:
    """Return the errors of an expression, in words. `recordings` are the expressions of recording rules by name."""
    target = set(TARGET)
    for name in recorded(expr):
        if name not in recordings:
            yield f"no rule records {name}"
        else:
            target |= _labels(recordings[name])
    for name in names(expr) - {"up"}:
        if family_of(name) is None:
            yield f"{name} is not in the catalogue"
    target |= _labels(expr)
    plain = _STRING.sub('""', expr)
    for name, matchers in _MATCHERS.findall(plain):
        family = family_of(name)
        labels = (set(family.labels) | TARGET | _le(name)) if family else target
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if label not in labels:
                yield f"{name} has no label {label}"
    for group in _GROUPS.findall(plain):
        for label in filter(None, map(str.strip, group.split(","))):
            if label not in target:
                yield f"no metric of it has a label {label}"
    yield from _wrong_verbs(plain)


def _wrong_verbs(plain: str) -> Iterator[str]:
    for name in _COUNTED.findall(plain):
        family = family_of(name)
        if family is not None and family.type == "gauge":
            yield f"{name} is a gauge: no rate() of it"
    for name in _MEASURED.findall(plain):
        observed = family_of(name)
        if observed is not None and observed.type != "gauge":
            yield f"{name} is a {observed.type}: rate() is for it"


def _labels(expr: str) -> set[str]:
    observed = [(name, family_of(name)) for name in names(expr)]
    return {label for name, family in observed if family for label in (*family.labels, *_le(name))} | TARGET


def _le(name: str) -> set[str]:
    return {"le"} if name.endswith("_bucket") else set()
