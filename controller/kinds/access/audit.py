"""The audit log: one entry for each request, and the hash chain over the entries.

An entry never holds a value that a user wrote: no environment, no command arguments, of a spec only the names of the
changed fields.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

GENESIS = ""  # the hash before the first entry
# Verbs of entries of Paddock's own. `thin`: so many entries of one caller were dropped, who had more than a fair share.
# `thinned` replaces them, with the hash of the last one, from which the chain continues.
OWN, THIN, THINNED = "paddock", "thin", "thinned"
Outcome = Literal["allowed", "refused"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One audited request: actor, source, verb, object, and decision. The store sets `id` and `hash`."""

    at: float
    actor: str
    source: str
    verb: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    outcome: Outcome = "allowed"
    detail: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0
    hash: str = ""


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Result of verifying the chain. `problem` is "" if every entry is unchanged.

    `pruned` entries are missing from the beginning, `thinned` ones from in between.
    """

    entries: int
    pruned: int
    last_id: int
    last_hash: str
    problem: str = ""
    thinned: int = 0


def fair_share(counts: Iterable[int], keep: int) -> int:
    """Return the largest number of entries per caller at which all callers together have at most `keep`."""
    left, smallest_first = keep, sorted(counts)
    for at, count in enumerate(smallest_first):
        share = left // (len(smallest_first) - at)
        if count > share:
            return share
        left -= count
    return keep


def entry_hash(entry: AuditEntry, before: str) -> str:
    """Return the hash of an entry that follows the one whose hash is `before`."""
    parts = [before, entry.id, entry.at, entry.actor, entry.source, entry.verb, entry.kind, entry.namespace]
    parts += [entry.name, entry.uid, entry.outcome, dict(entry.detail)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
