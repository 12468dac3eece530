"""Order of versions, as each ecosystem defines it. Pure."""

import re
from collections.abc import Callable
from functools import cmp_to_key
from itertools import zip_longest
from typing import Any

_SEMVER = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")


def key(ecosystem: str) -> Callable[[str], Any]:
    """Return the sort key of an ecosystem's versions. The key raises ValueError for what is no version of it."""
    return {"deb": cmp_to_key(compare_debian), "npm": _semver, "pypi": _python}[ecosystem]


def _python(version: str) -> Any:
    from packaging.version import Version  # not where images are built

    return Version(version)  # InvalidVersion is a ValueError


def _semver(version: str) -> tuple[Any, ...]:
    found = _SEMVER.fullmatch(version.strip())
    if found is None:
        raise ValueError(f"`{version}` is not a semantic version")
    numbers = tuple(int(each or 0) for each in found.groups()[:3])
    if found[4] is None:
        return (numbers, 1, ())
    # Numbers come before words, and a prerelease before its release.
    parts = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in found[4].split("."))
    return (numbers, 0, parts)


def compare_debian(left: str, right: str) -> int:
    """Return -1, 0 or 1, by Debian's policy (5.6.12)."""
    mine, theirs = _debian(left), _debian(right)
    if mine[0] != theirs[0]:
        return -1 if mine[0] < theirs[0] else 1
    return _part(mine[1], theirs[1]) or _part(mine[2], theirs[2])


def _debian(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.strip().partition(":")
    if not colon:
        epoch, rest = "0", epoch
    upstream, hyphen, revision = rest.rpartition("-")
    return int(epoch), upstream if hyphen else rest, revision if hyphen else "0"


def _part(left: str, right: str) -> int:
    for mine, theirs in zip_longest(_pieces(left), _pieces(right), fillvalue=("", 0)):
        for a, b in zip_longest(mine[0], theirs[0], fillvalue=""):
            if _weight(a) != _weight(b):
                return -1 if _weight(a) < _weight(b) else 1
        if mine[1] != theirs[1]:
            return -1 if mine[1] < theirs[1] else 1
    return 0


def _pieces(text: str) -> list[tuple[str, int]]:
    """Return pairs of what is no digit, and the number after it."""
    return [(each[1], int(each[2] or 0)) for each in re.finditer(r"([^0-9]*)([0-9]*)", text)]


def _weight(character: str) -> int:
    """Return a character's place: `~` before the end, then letters, then the rest."""
    if character == "~":
        return -1
    if not character:
        return 0
    return ord(character) if character.isalpha() else ord(character) + 256
