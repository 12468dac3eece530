"""Seccomp profiles as the engine takes them: as JSON text (it would look for a path in its own file system)."""

import hashlib
import importlib.util
import json
from functools import cache
from pathlib import Path

_DIGEST_DIGITS = 16


class NoProfile(Exception):
    """A profile can't be had, or is not the one that was meant; says why and what to do."""


@cache
def profile(reference: str) -> str:
    """The JSON of `name@digest`, on one line. Raises NoProfile: a sandbox is never started with another one."""
    name, _, digest = reference.partition("@")
    file = _folder() / f"{name}.json"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise NoProfile(f"the seccomp profile {file}: {error.strerror}; install paddock again") from error
    if hashlib.sha256(content).hexdigest()[:_DIGEST_DIGITS] != digest:
        raise NoProfile(f"the seccomp profile {file} is not the one this version came with; install paddock again")
    return json.dumps(json.loads(content), separators=(",", ":"))


def _folder() -> Path:
    """Where the profiles are: inside the installed package, or beside it in a checkout."""
    package = importlib.util.find_spec("controller")
    for root in map(Path, (package.submodule_search_locations if package else None) or ()):
        for folder in (root / "images" / "seccomp", root.parent / "images" / "seccomp"):
            if folder.is_dir():
                return folder
    raise NoProfile("the seccomp profiles are missing from this installation; install paddock again")
