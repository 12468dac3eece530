"""Data of a dashboard's panel, asked of Prometheus as Grafana asks."""

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_POINTS = 150


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its legend, its labels, and (Unix seconds, value) in order."""

    name: str
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is shown (Unix seconds), and how often Prometheus scrapes."""

    begin: float
    end: float
    scrape_seconds: float

    @property
    def step_seconds(self) -> float:
        return max(self.scrape_seconds, (self.end - self.begin) / _POINTS)


class Asker:
    """Asks the Prometheus at `url` about `window`. `chosen` are the values of variables; else it is everything."""

    def __init__(self, url: str, window: Window, chosen: Mapping[str, str]) -> None:
        self._url, self.window, self._chosen = url, window, chosen

    def series(self, panel: Mapping[str, Any]) -> list[Series]:
        """All that the panel's targets give."""
        return [series for target in panel.get("targets", ()) for series in self._of(target)]

    def _of(self, target: Mapping[str, Any]) -> Iterator[Series]:
        window, expr = self.window, self._plain(target["expr"])
        if target.get("instant"):
            answer = self._get("query", query=expr, time=str(window.end))
        else:
            document = {"start": str(window.begin), "end": str(window.end), "step": str(window.step_seconds)}
            answer = self._get("query_range", query=expr, **document)
        for entry in answer:
            pairs = entry["values"] if "values" in entry else [entry["value"]]
            points = tuple((float(at), float(value)) for at, value in pairs)
            points = tuple(pair for pair in points if math.isfinite(pair[1]))
            if points:
                yield Series(_legend(target.get("legendFormat", ""), entry["metric"]), entry["metric"], points)

    def _plain(self, expr: str) -> str:
        """With a value in the place of each variable."""
        window = self.window
        rate = f"{max(window.step_seconds + window.scrape_seconds, 4 * window.scrape_seconds):.0f}s"
        plain = expr.replace("$__rate_interval", rate).replace("$__range", f"{window.end - window.begin:.0f}s")
        return re.sub(r"\$(namespace|sandbox|pool)\b", lambda found: self._chosen.get(found[1], ".+"), plain)

    def _get(self, what: str, **query: str) -> list[Any]:
        address = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            document: list[Any] = json.load(answer)["data"]["result"]
            return document


def _legend(pattern: str, labels: Mapping[str, str]) -> str:
    if not pattern or pattern == "__auto":
        inner = ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__")
        return f"{labels.get('__name__', '')}{{{inner}}}"
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), pattern)
