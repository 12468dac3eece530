"""The build: a hash of the code, which tells builds of one version apart."""

import hashlib
from functools import cache
from pathlib import Path

_DIGITS = 8


@cache
def build_hash() -> str:
    """Return the hash of this daemon's code as it was at the first call; "" if it can't be read."""
    root = Path(__file__).parent
    code = hashlib.sha256()
    try:
        for file in sorted(root.rglob("*.py")):
            code.update(f"{file.relative_to(root)}\0".encode())
            code.update(file.read_bytes())
    except OSError:
        return ""
    return code.hexdigest()[:_DIGITS]
