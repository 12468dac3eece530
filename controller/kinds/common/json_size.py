"""Size of JSON values as they are sent. Pure."""

import json
from typing import Any


def json_bytes(value: Any) -> int:
    """Return the bytes of a value as JSON in UTF-8: text counts as it is, however its sender had escaped it."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
