"""Results within their bounds: what an object offers by MIME type, as JSON can carry it."""

from __future__ import annotations

import base64
import json
import math
import sys
from typing import Any

from .events import MOST_RESULT_BYTES, Events

DATA, CHART = "application/vnd.paddock.data+json", "application/vnd.paddock.chart+json"
_MOST_PLAIN = 1024 * 1024
_MOST_CELLS = 100_000  # of a data frame that is also sent as data
_MOST_TRACEBACK = 64 * 1024
_METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


def cut(text: str, most: int) -> str:
    """Return the text, or its head and tail with a count between."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def error_event(kind: str, message: str, traceback: str) -> dict[str, str]:
    """Return the fields of an error, within their bounds."""
    return {"name": cut(kind, 256), "value": cut(message, 8192), "traceback": cut(traceback, _MOST_TRACEBACK)}


def send_result(
    events: Events, data: dict[str, Any], *, main: bool, display: str = "", update: bool = False, metadata: Any = None
) -> None:
    """Send a bundle; leave out the largest types that do not fit, and say so."""
    bundle: dict[str, Any] = {}
    problems: list[str] = []
    for mime, value in data.items():
        if mime != "text/plain" and isinstance(value, (bytes, bytearray, str)) and len(value) > MOST_RESULT_BYTES:
            problems.append(_too_large(mime, len(value)))  # not encoded first: that would take its size some times more
            continue
        try:
            bundle[mime] = _portable(mime, value)
        except (TypeError, ValueError, RecursionError) as error:
            problems.append(f"{mime}: can't be sent as JSON ({type(error).__name__})")
    sizes = {mime: len(json.dumps(value)) for mime, value in bundle.items()}
    while sum(sizes.values()) > MOST_RESULT_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        problems.append(_too_large(largest, sizes[largest]))
        del bundle[largest], sizes[largest]
    for problem in problems:
        events.send(type="notice", text=f"left out of a result: {problem}")
    if bundle:
        fields: dict[str, Any] = {"display": display[:128]} if display else {}
        if isinstance(metadata, dict) and metadata:
            fields["metadata"] = _plain_metadata(metadata)
        events.send(type="result", main=main, update=update, data=bundle, **fields)


def _too_large(mime: str, size: int) -> str:
    return f"{mime}: {size} bytes, over the {MOST_RESULT_BYTES >> 20} MiB of a result"


def _portable(mime: str, value: Any) -> Any:
    """Return a value that JSON carries: bytes in base64, NaN as null."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, str):
        return cut(value, _MOST_PLAIN) if mime == "text/plain" else value
    if mime.endswith("json"):
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except ValueError:
            return json.loads(json.dumps(_without_nan(value, 0), allow_nan=False))
    return str(value)


def _without_nan(value: Any, depth: int) -> Any:
    if depth > 200:
        raise ValueError("nested too deeply, or in a cycle")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _without_nan(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each, depth + 1) for each in value]
    return value


def _plain_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(metadata, allow_nan=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return {}
    return json.loads(text) if len(text) <= 65536 else {}


def bundle_of(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what an object offers, and its metadata. What raises is left out, but for its plain text."""
    try:
        bundle: dict[str, Any] = {"text/plain": repr(value)}
    except Exception as error:
        bundle = {"text/plain": f"<{type(value).__name__}: its repr raised {type(error).__name__}>"}
    metadata: dict[str, Any] = {}
    if isinstance(value, type):
        return bundle, metadata
    try:
        offered = value._repr_mimebundle_(include=None, exclude=None)
        if isinstance(offered, tuple):
            offered, metadata = offered[0], dict(offered[1])
        bundle.update(offered or {})
    except Exception:  # it has none, or a broken one
        metadata = {}
    for method, mime in _METHODS.items():
        if mime in bundle:
            continue
        try:
            offered = getattr(value, method)()
        except Exception:
            continue
        if isinstance(offered, tuple):
            offered = offered[0]
        if offered is not None:
            bundle[mime] = offered
    for mime, read in ((DATA, frame_data), (CHART, figure_chart)):
        found = read(value)
        if found is not None:
            bundle[mime] = found
    return bundle, metadata


def frame_data(value: Any) -> Any:
    """Return a data frame's columns as lists, dates as ISO 8601; None for anything else, or one that is large."""
    pandas = sys.modules.get("pandas")
    frame_type = getattr(pandas, "DataFrame", None)
    if frame_type is None or not isinstance(value, frame_type) or value.size > _MOST_CELLS:
        return None
    try:
        table = json.loads(value.to_json(orient="split", date_format="iso"))
    except Exception:
        return None
    columns = [str(name) for name in value.columns]
    return {name: [row[at] for row in table["data"]] for at, name in enumerate(columns)}


def figure_chart(value: Any) -> Any:
    """Return the data of a matplotlib figure, where the image has e2b-charts."""
    figures = sys.modules.get("matplotlib.figure")
    figure_type = getattr(figures, "Figure", None)
    if figure_type is None or not isinstance(value, figure_type):
        return None
    try:
        from e2b_charts import chart_figure_to_dict

        return chart_figure_to_dict(value)
    except Exception:
        return None
