"""One comparison of attestation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """One comparison, in the terms of a spec.

    `is_missing`: one of the engine's own mounts is not there; a start makes it.
    """

    name: str
    observed: str
    desired: str
    holds: bool
    is_missing: bool = False
