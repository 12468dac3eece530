"""One thing that attestation compared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was compared, in the words of a spec."""

    name: str
    found: str
    wanted: str
    holds: bool
