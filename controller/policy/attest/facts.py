"""One comparison of attestation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """One comparison, in the terms of a spec."""

    name: str
    found: str
    wanted: str
    holds: bool
