"""Reason to refuse a spec."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse a spec. `field` is the path below the document (`spec.template.user`)."""

    field: str
    message: str
