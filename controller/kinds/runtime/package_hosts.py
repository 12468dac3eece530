"""The hosts that package managers fetch from: those of this host's own configuration, and what was left out."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from controller.kinds.runtime.container import stable_hash

_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST = 253


@dataclass(frozen=True, slots=True)
class PackageHosts:
    """`hosts` in order, each once. `left_out` are what a tool is configured to use and no box can reach, in words."""

    hosts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def version_of(hosts: Iterable[str]) -> str:
    """Eight hex digits that move with the list."""
    return stable_hash(sorted(set(hosts)))[:8]


def is_host_name(text: str) -> bool:
    """Whether it may stand in a list of allowed hosts: a whole name in lower case, no address."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None
