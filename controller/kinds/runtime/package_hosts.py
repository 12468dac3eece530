"""Hosts of package managers, from this host's own configuration."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from controller.kinds.runtime.container import stable_hash

_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST = 253


@dataclass(frozen=True, slots=True)
class PackageHosts:
    """`hosts` in order, without duplicates. `left_out` are configured hosts that no sandbox can reach, as messages."""

    hosts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def version_of(hosts: Iterable[str]) -> str:
    """Return eight hex digits that change with the list."""
    return stable_hash(sorted(set(hosts)))[:8]


def is_host_name(text: str) -> bool:
    """Return True if the name may stand in a list of allowed hosts: a whole name in lower case, no address."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Registries:
    """Addresses of the registries that packages are installed from. Empty: the package manager's own default."""

    npm: str = ""
    pypi: str = ""
