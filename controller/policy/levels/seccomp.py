"""Paddock's own seccomp profiles, each by its name and the digest of its file (images/seccomp/NAME.json).

The digest is part of the rendered config: a changed profile makes containers with the old one Outdated. The engine
package uses no file with another content.
"""

from collections.abc import Mapping
from types import MappingProxyType

MINIMAL = "minimal@e91fdbe24d7ba597"
STANDARD = "standard@f3abe7b61c81555f"
LOG_ONLY = "log-only@aa440d926a0c9830"
# Rank of each profile by its allowed calls. Any other (the engine's own profile, or none) ranks above them.
WIDTH: Mapping[str, int] = MappingProxyType({MINIMAL: 0, STANDARD: 1, LOG_ONLY: 2})


def name_of(reference: str) -> str:
    """Return `minimal` of `minimal@<digest>`."""
    return reference.partition("@")[0]
