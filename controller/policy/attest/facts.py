"""One comparison of attestation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """One comparison, in the terms of a spec. `gone`: one of the engine's own mounts is not there; a start makes it."""

    name: str
    found: str
    wanted: str
    holds: bool
    gone: bool = False
