"""Seccomp profiles as JSON text, for the engine's API (it would resolve a path in its own file system)."""

import hashlib
import importlib.util
import json
from functools import cache
from pathlib import Path

_DIGEST_DIGITS = 16


class NoProfile(Exception):
    """A profile is missing or was changed; the message says what to do."""


@cache
def profile(reference: str) -> str:
    """Return the JSON of `name@digest`, on one line. Raises NoProfile: no other profile is ever used instead."""
    name, _, digest = reference.partition("@")
    file = _folder() / f"{name}.json"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise NoProfile(f"seccomp profile {file}: {error.strerror}; reinstall paddock") from error
    if hashlib.sha256(content).hexdigest()[:_DIGEST_DIGITS] != digest:
        raise NoProfile(f"seccomp profile {file}: not the one of this version; reinstall paddock")
    return json.dumps(json.loads(content), separators=(",", ":"))


def _folder() -> Path:
    """Return the folder of the profiles: inside the installed package, or beside it in a checkout."""
    package = importlib.util.find_spec("controller")
    for root in map(Path, (package.submodule_search_locations if package else None) or ()):
        for folder in (root / "images" / "seccomp", root.parent / "images" / "seccomp"):
            if folder.is_dir():
                return folder
    raise NoProfile("seccomp profiles: missing from this installation; reinstall paddock")
