"""Text of a scrape, as prometheus_client writes it, several times faster.

The library renders a sample's name and labels character by character in OpenMetrics (what Prometheus asks for),
about 20 us each: 500 sandboxes would take over half a second. Our names need no escaping, the labels of a sandbox are
the same in 30 families, so they are written once, and a family needs no Sample for each of its lines. Tests hold the
output to the library's, byte for byte.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, overload

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

# The types we export; the others are written in ways of their own.
_PLAIN = ("counter", "gauge", "histogram")
_SMALL = 1_000_000  # from here on it is written with an exponent
_DIGITS = 6  # before the point, without one
_EXACT = 1 << 53  # from here on a float64 is rounded


class Source(Protocol):
    """Source of families: a registry, or a registry restricted to some names."""

    def collect(self) -> Iterable[Metric]: ...


class Labels(dict[str, str]):
    """Labels of a sample with their text, made once and shared by all samples with the same labels."""

    __slots__ = ("text",)
    text: str

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self.text = label_text(labels)

    def plus(self, name: str, value: str) -> "Labels":
        """Return these labels and one more, which is written next to their text."""
        labels = Labels.__new__(Labels)
        labels.update(self)
        labels[name] = value
        label = f'{name}="{_escape(value)}"'
        if self and name > max(self):
            labels.text = f"{self.text[:-1]},{label}}}"
        elif self and name < min(self):
            labels.text = f"{{{label},{self.text[1:]}"
        else:
            labels.text = label_text(labels)
        return labels


Pairs = list[tuple[dict[str, str], float]]  # labels and value


class Series(Sequence[Sample]):
    """Samples of one name. A Sample is made only for those who read one.

    `pairs` returns the samples' labels and values. `lines` are the same as text, if they are written already.
    """

    __slots__ = ("_lines", "_name", "_pairs")

    def __init__(self, name: str, pairs: Callable[[], Pairs], lines: list[str] | None = None) -> None:
        self._name, self._pairs, self._lines = name, pairs, lines

    def __len__(self) -> int:
        return len(self._pairs())

    def __iter__(self) -> Iterator[Sample]:
        return (Sample(self._name, labels, value) for labels, value in self._pairs())

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return list(self)[index]

    def lines(self) -> list[str]:
        """Return the samples as text, one or more lines each."""
        if self._lines is not None:
            return self._lines
        name = self._name
        return [
            f"{name}{labels.text if type(labels) is Labels else label_text(labels)} {number_text(value)}\n"
            for labels, value in self._pairs()
        ]


def line(name: str, labels: dict[str, str], value: float) -> str:
    """Return one sample as text."""
    return f"{name}{labels.text if type(labels) is Labels else label_text(labels)} {number_text(value)}\n"


def label_text(labels: Mapping[str, str]) -> str:
    """Return `{name="value",...}` in order of names; "" without labels."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(labels[name])}"' for name in sorted(labels)) + "}"


def number_text(value: float) -> str:
    """Format a number as Go writes a float64. Most of ours take a fast path: whole ones, and small ones."""
    if type(value) is int:
        if 0 <= value < _SMALL:
            return f"{value}.0"
        if _SMALL <= value < _EXACT:
            digits = str(value)
            return f"{digits[0]}.{digits[1:]}".rstrip("0.") + f"e+{len(digits) - 1:02}"
    elif type(value) is float:
        text = repr(value)
        if 0 < text.find(".") <= _DIGITS and "e" not in text:
            return text
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _escape(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def renderer(accept: str) -> tuple[Callable[[Source], bytes], str]:
    """Choose the renderer and content type by the Accept header. Unusual ones are left to the library."""
    encoder, content_type = choose_encoder(accept)
    if "escaping=dots" in content_type or "escaping=values" in content_type or "version=2" in content_type:
        return encoder, content_type
    if content_type.startswith("application/openmetrics-text"):
        return open_metrics, content_type
    return plain_text, content_type


def plain_text(source: Source) -> bytes:
    """Render the Prometheus text format: a counter's family has `_total`, too."""
    lines: list[str] = []
    for metric in source.collect():
        name, type_ = metric.name, metric.type
        if type_ == "counter":
            name += "_total"
        text = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {text}\n# TYPE {name} {type_}\n")
        _samples(metric, lines)
    return "".join(lines).encode()


def open_metrics(source: Source) -> bytes:
    """Render OpenMetrics 1.0."""
    lines: list[str] = []
    for metric in source.collect():
        name = metric.name
        lines.append(f"# HELP {name} {_escape(metric.documentation)}\n# TYPE {name} {metric.type}\n")
        if metric.unit:
            lines.append(f"# UNIT {name} {metric.unit}\n")
        _samples(metric, lines)
    lines.append("# EOF\n")
    return "".join(lines).encode()


def _samples(metric: Metric, lines: list[str]) -> None:
    if metric.type not in _PLAIN:
        raise ValueError(f"{metric.name} is a {metric.type}; only {', '.join(_PLAIN)} can be rendered")
    if isinstance(metric.samples, Series):
        lines += metric.samples.lines()
        return
    for sample in metric.samples:
        lines.append(line(sample.name, sample.labels, sample.value))
