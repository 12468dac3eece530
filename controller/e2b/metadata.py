"""Labels and annotations of sandboxes that a client of E2B created, and their filters. Pure."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from controller.kinds.meta import StoredObject
from controller.service.errors import BadRequest

LABEL = "paddock.e2b"
METADATA = "paddock.e2b/metadata"
TEMPLATE = "paddock.e2b/template"
TOKEN = "paddock.e2b/token"  # noqa: S105 - the id of the creator's token
STARTED = "paddock.e2b/started"  # Unix seconds from which activeDeadlineSeconds count
ENDS = "paddock.e2b/ends"  # Unix seconds; none while it is paused
ON_TIMEOUT = "paddock.e2b/on-timeout"  # kill, pause, or suspend
AUTO_RESUME = "paddock.e2b/auto-resume"  # seconds that it then has; none: it is not resumed by its use
_MOST_BYTES = 64 << 10


def encoded(metadata: Mapping[str, str]) -> str:
    """Return the metadata as an annotation. Raises BadRequest if it is too large."""
    text = json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > _MOST_BYTES:
        raise BadRequest(f"metadata: has more than {_MOST_BYTES >> 10} KiB; store large data in a file")
    return text


def metadata_of(obj: StoredObject) -> dict[str, str]:
    """Return the metadata that its creator gave it."""
    try:
        stored: Any = json.loads(obj.annotations.get(METADATA) or "{}")
    except ValueError:  # somebody has edited it
        return {}
    return {str(key): str(value) for key, value in stored.items()} if isinstance(stored, dict) else {}


def filter_of(query: str) -> dict[str, str]:
    """Parse the filter of a list, which clients quote twice: a form whose keys and values are quoted once more."""
    return {unquote(key): unquote(value) for key, value in parse_qsl(query, keep_blank_values=True)}


def matches(metadata: Mapping[str, str], pairs: Mapping[str, str]) -> bool:
    """Return True if the metadata has all of the filter's pairs."""
    return all(metadata.get(key) == value for key, value in pairs.items())


def seconds_in(obj: StoredObject, annotation: str) -> float | None:
    """Return the time in an annotation, in Unix seconds; None if there is none."""
    try:
        return float(obj.annotations[annotation])
    except (KeyError, ValueError):
        return None
