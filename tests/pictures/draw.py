"""A dashboard as a page of HTML: each panel where it stands, drawn by its type, unit, legend and thresholds."""

import html
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.pictures.ask import Asker, Series, Window
from tests.pictures.units import written

WIDTH = 1600
_BYTES = ("bytes", "binBps")
_COLUMNS, _CELL, _GAP = 24, 38, 8
_CLOCK = 62  # pixels of a time at the axis
_COLOURS = (
    "#73BF69",
    "#F2CC0C",
    "#8AB8FF",
    "#FF780A",
    "#F2495C",
    "#5794F2",
    "#B877D9",
    "#FADE2A",
    "#56A64B",
    "#C4162A",
)
_COLOUR_OF = {"green": "#73BF69", "orange": "#FF9830", "red": "#F2495C", "blue": "#5794F2", "text": "#ccccdc"}
_STYLE = """
body{margin:0;background:#111217;color:#ccccdc;font:12px 'DejaVu Sans',sans-serif;position:relative}
.panel{position:absolute;background:#181b1f;border:1px solid #2c3235;box-sizing:border-box;overflow:hidden}
.row{position:absolute;font-size:15px;padding-top:8px} h1{font-size:18px;margin:0;padding:10px}
.title{padding:6px 8px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;font-weight:bold}
.text{white-space:pre-line;padding:0 8px}
.legend{position:absolute;overflow:hidden;display:flex;flex-wrap:wrap;align-content:flex-start}
.legend span{white-space:nowrap;margin-right:14px;line-height:17px;overflow:hidden;text-overflow:ellipsis}
.nothing{padding:40px;text-align:center}
.bar{display:flex;align-items:center;margin:0 8px;overflow:hidden}
.bar b{width:38%;font-weight:normal;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.bar i{display:block;height:70%;min-width:2px} .bar u{text-decoration:none;padding-left:6px;white-space:nowrap}
table{border-collapse:collapse;width:100%} td,th{border-bottom:1px solid #2c3235;padding:4px 6px;text-align:left;
 white-space:nowrap;max-width:220px;overflow:hidden;text-overflow:ellipsis}
.stats{position:absolute;inset:28px 4px 4px 4px;display:flex;flex-wrap:wrap}
.stat{flex:1 1 30%;display:flex;flex-direction:column;align-items:center;justify-content:center;overflow:hidden}
"""


def page(board: Mapping[str, Any], asker: Asker, page_width: int = WIDTH) -> tuple[str, int, list[str]]:
    """The HTML, its height in pixels, and the titles of the panels that have nothing to show."""
    parts, silent, bottom, column = [], [], 0.0, page_width / _COLUMNS
    for panel in board["panels"]:
        at = panel["gridPos"]
        x, y, width, height = at["x"] * column, 48 + at["y"] * _CELL, at["w"] * column - _GAP, at["h"] * _CELL - _GAP
        bottom = max(bottom, y + height)
        place = f"left:{x:.0f}px;top:{y:.0f}px;width:{width:.0f}px;height:{height:.0f}px"
        if panel["type"] == "row":
            parts.append(f'<div class="row" style="{place}">▾ {_text(panel["title"])}</div>')
            continue
        if panel["type"] == "text":
            message = _text(panel["options"]["content"])
            title = f'<div class="title">{_text(panel["title"])}</div>'
            parts.append(f'<div class="panel" style="{place}">{title}<div class="text">{message}</div></div>')
            continue
        series = asker.series(panel)
        silent += [] if series else [panel["title"]]
        title = f'<div class="title">{_text(panel["title"])}</div>'
        nothing = f'<div class="nothing">{_text(_defaults(panel)["noValue"])}</div>'
        inner = _inner(panel, series, width, height, asker) if series else nothing
        parts.append(f'<div class="panel" style="{place}">{title}{inner}</div>')
    body = f"<h1>{_text(board['title'])}</h1>" + "".join(parts)
    return f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style><body>{body}', int(bottom) + 12, silent


def _inner(panel: Mapping[str, Any], series: Sequence[Series], width: float, height: float, asker: Asker) -> str:
    if panel["type"] == "timeseries":
        return _lines(panel, series, width, height, asker)
    if panel["type"] == "table":
        return _table(panel, series)
    if panel["type"] == "stat":
        return _stats(panel, series, width, height)
    return {"bargauge": _bars}[panel["type"]](panel, series, height)


def _defaults(panel: Mapping[str, Any]) -> Mapping[str, Any]:
    defaults: Mapping[str, Any] = panel["fieldConfig"]["defaults"]
    return defaults


def _unit(panel: Mapping[str, Any]) -> Callable[[float], str]:
    """Return the function that writes the panel's numbers."""
    defaults = _defaults(panel)
    return written(defaults["unit"], defaults.get("decimals"))


def _shown(panel: Mapping[str, Any], series: Series) -> str:
    return _text(_word(panel, series.last).get("text") or _unit(panel)(series.last))


def _word(panel: Mapping[str, Any], value: float) -> Mapping[str, str]:
    """Return the text that stands for the value, if any does."""
    for mapping in _defaults(panel).get("mappings", ()):
        options: Mapping[str, str] = mapping["options"].get(f"{value:g}", {})
        if options:
            return options
    return {}


def _colour(panel: Mapping[str, Any], value: float) -> str:
    steps = _defaults(panel)["thresholds"]["steps"]
    colour = _word(panel, value).get("color")
    if colour:
        return _COLOUR_OF[colour]
    colour = steps[0]["color"]
    for step in steps[1:]:
        if value >= step["value"]:
            colour = step["color"]
    return _COLOUR_OF[colour]


def _stats(panel: Mapping[str, Any], series: Sequence[Series], width: float, height: float) -> str:
    longest = max(len(_shown(panel, line)) for line in series)
    size = min(44.0, (height - 40) / max(1, (len(series) + 2) // 3) * 0.45, width / min(3, len(series)) / longest * 1.4)
    if panel["options"].get("textMode") == "name":
        cells = [f'<div class="stat" style="font-size:{size / 2:.0f}px">{_text(line.name)}</div>' for line in series]
    else:
        name = len(series) > 1 or panel["options"].get("textMode") == "value_and_name"
        cells = [
            f'<div class="stat"><div style="font-size:{size:.0f}px;color:{_colour(panel, line.last)}">'
            f"{_shown(panel, line)}</div>{_text(line.name) if name else ''}</div>"
            for line in series
        ]
    return f'<div class="stats">{"".join(cells)}</div>'


def _bars(panel: Mapping[str, Any], series: Sequence[Series], height: float) -> str:
    most = _defaults(panel).get("max") or max((line.last for line in series), default=0) or 1
    tall = min(40.0, max(10.0, (height - 36) / len(series)))
    rows = [
        f'<div class="bar" style="height:{tall:.0f}px"><b>{_text(line.name)}</b>'
        f'<i style="width:{max(0.0, min(1.0, line.last / most)) * 42:.1f}%;background:{_colour(panel, line.last)}"></i>'
        f"<u>{_shown(panel, line)}</u></div>"
        for line in series
    ]
    return "".join(rows)


def _table(panel: Mapping[str, Any], series: Sequence[Series]) -> str:
    options = {transformation["id"]: transformation["options"] for transformation in panel["transformations"]}
    names, headings = options["filterFieldsByName"]["include"]["names"], options["organize"]["renameByName"]
    head = "".join(f"<th>{_text(headings[name])}</th>" for name in names)
    rows = []
    for first in series:
        document = {**first.labels, "Value": _shown(panel, first)}
        rows.append("<tr>" + "".join(f"<td>{_text(document.get(name, ''))}</td>" for name in names) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


@dataclass(frozen=True, slots=True)
class _Frame:
    """Places of a chart's lines, in pixels, and the spans of its axes."""

    left: float
    top: float
    right: float
    bottom: float
    most: float
    window: Window

    def at(self, point: tuple[float, float]) -> tuple[float, float]:
        window = self.window
        x = self.left + (point[0] - window.begin) / (window.end - window.begin) * (self.right - self.left)
        return x, self.bottom - min(1.0, max(0.0, point[1] / self.most)) * (self.bottom - self.top)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self.at, points))


def _lines(panel: Mapping[str, Any], series: Sequence[Series], width: float, height: float, asker: Asker) -> str:
    legend, wide, tall = _legend(panel, series, width, height)
    drawn = _stacked(series) if _is_stacked(panel) else [line.points for line in series]
    defaults = _defaults(panel)
    most = defaults.get("max") or max((y for points in drawn for _, y in points), default=0.0)
    step, count = _ticks(most, in_bytes=defaults.get("unit") in _BYTES, whole=defaults.get("decimals") == 0)
    frame = _Frame(78.0, 6.0, width - wide - 34, height - 28 - tall - 26, step * count, asker.window)
    parts = [_axes(frame, [step * index for index in range(count + 1)], _unit(panel))]
    areas = _areas(frame, drawn) if _is_stacked(panel) else {}
    for number, (points, one_series) in enumerate(zip(drawn, series, strict=True)):
        dash = (
            ' stroke-dasharray="7,5"' if one_series.name.endswith("limit") and panel["fieldConfig"]["overrides"] else ""
        )
        colour = _COLOURS[number % len(_COLOURS)]
        line = f'fill="none" stroke="{colour}" stroke-width="1.3"{dash}'
        if number in areas:  # from its line down to that of the series below it
            parts.append(f'<polygon points="{areas[number]}" fill="{colour}" fill-opacity="0.6"/>')
        parts.append(f'<polyline points="{frame.path(points)}" {line}/>')
    for bound in _defaults(panel)["thresholds"]["steps"][1:]:
        if bound["value"] <= frame.most:
            y = frame.at((asker.window.begin, bound["value"]))[1]
            colour = _COLOUR_OF[bound["color"]]
            parts.append(f'<path d="M{frame.left},{y}H{frame.right}" stroke="{colour}" stroke-dasharray="6,4"/>')
    size = f'width="{width - wide:.0f}" height="{frame.bottom + 26:.0f}"'
    return f'<svg {size} font-size="11">{"".join(parts)}</svg>{legend}'


def _axes(frame: _Frame, values: Sequence[float], unit: Callable[[float], str]) -> str:
    parts = []
    for value in values:
        y = frame.at((frame.window.begin, value))[1]
        parts.append(f'<path d="M{frame.left},{y}H{frame.right}" stroke="#2c3235"/>')
        message = _text(unit(value))
        parts.append(f'<text x="{frame.left - 6}" y="{y + 4}" text-anchor="end" fill="#ccccdc">{message}</text>')
    times = max(1, min(4, int((frame.right - frame.left) / _CLOCK)))  # as Grafana: as many as fit side by side
    for step in range(times + 1):
        when = frame.window.begin + (frame.window.end - frame.window.begin) * step / times
        x, y = frame.at((when, 0))
        clock = time.strftime("%H:%M:%S", time.gmtime(when))
        parts.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle" fill="#8e8e9c">{clock}</text>')
    return "".join(parts)


def _ticks(most: float, *, in_bytes: bool = False, whole: bool = False) -> tuple[float, int]:
    """A round step, and how many of them are drawn: of bytes a power of two, of what is counted a whole number."""
    most = most or 1.0
    base = 10 ** math.floor(math.log10(most / 4))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(entry * base for entry in factors if entry * base * 4 >= most)
    if in_bytes:
        step = 2.0 ** math.ceil(math.log2(most / 4))
    if whole or in_bytes:
        step = max(1.0, step)
    return step, max(1, math.ceil(most / step - 1e-9))


def _legend(
    panel: Mapping[str, Any], series: Sequence[Series], width: float, height: float
) -> tuple[str, float, float]:
    """The legend, and what it takes of the panel's width and height: what does not fit, Grafana lets scroll."""
    unit, options = _unit(panel), panel["options"]["legend"]
    rows = [(_COLOURS[number % len(_COLOURS)], line) for number, line in enumerate(series)]
    if options["placement"] == "right":
        rows = sorted(rows, key=lambda row: -row[1].last)
        wide = 0.36 * width
        place = f"right:6px;top:28px;width:{wide - 12:.0f}px;height:{height - 34:.0f}px;flex-direction:column;"
        texts = [f"{_text(line.name)} &nbsp; {_text(unit(line.last))}" for _, line in rows]
        return _legend_box(place + "flex-wrap:nowrap", rows, texts), wide, 0.0
    texts = [f"{_text(line.name)} Last: {_text(unit(line.last))}" for _, line in rows]
    lines, usage = 1, 0.0
    for text in texts:
        long = 34 + len(text) * 7
        lines, usage = (lines + 1, long) if usage and usage + long > width - 16 else (lines, usage + long)
    tall = min(lines * 17.0, (height - 28) * 0.35)
    return _legend_box(f"left:8px;right:8px;bottom:4px;height:{tall:.0f}px", rows, texts), 0.0, tall


def _legend_box(place: str, rows: Sequence[tuple[str, Series]], texts: Sequence[str]) -> str:
    spans = "".join(
        f'<span><b style="color:{colour}">—</b> {text}</span>' for (colour, _), text in zip(rows, texts, strict=True)
    )
    return f'<div class="legend" style="{place}">{spans}</div>'


def _is_stacked(panel: Mapping[str, Any]) -> bool:
    custom = _defaults(panel).get("custom", {})
    return bool(custom.get("stacking", {}).get("mode") == "normal")


def _areas(frame: _Frame, drawn: Sequence[Sequence[tuple[float, float]]]) -> dict[int, str]:
    """The outlines of stacked series: each line, and back along the one below it."""
    outlines = {}
    below: Sequence[tuple[float, float]] = ()
    for number, points in enumerate(drawn):
        if points:
            floor = below or ((points[0][0], 0.0), (points[-1][0], 0.0))
            outlines[number] = frame.path([*points, *reversed(floor)])
            below = points
    return outlines


def _stacked(series: Sequence[Series]) -> list[tuple[tuple[float, float], ...]]:
    under: dict[float, float] = {}
    drawn = []
    for line in series:
        points = []
        for at, value in line.points:
            under[at] = under.get(at, 0.0) + value
            points.append((at, under[at]))
        drawn.append(tuple(points))
    return drawn


def _text(text: object) -> str:
    return html.escape(str(text))
