"""The audit log: one entry for each thing that was asked for, and the chain of hashes that holds the log together.

An entry never holds a value that a user wrote: no environment, no arguments of a command, no part of a spec but the
names of the fields that changed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

GENESIS = ""  # the hash before the first entry
# Verbs of entries of Paddock's own. `thin`: so many entries of one caller were dropped, who had more than a fair share.
# `thinned` stands where they were, with the hash of the last of them: the chain goes on from it.
OWN, THIN, THINNED = "paddock", "thin", "thinned"
Outcome = Literal["allowed", "refused"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who (`actor`) asked from where (`source`) for what, and the decision. `id` and `hash` are given by the store."""

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
    """What verifying found: `problem` "" when every entry is as it was written.

    `pruned` is how many are gone from the beginning, `thinned` how many from in between.
    """

    entries: int
    pruned: int
    last_id: int
    last_hash: str
    problem: str = ""
    thinned: int = 0


def fair_share(counts: Iterable[int], keep: int) -> int:
    """The most that each may have, so that all have at most `keep` together and none gives way to a larger one."""
    left, smallest_first = keep, sorted(counts)
    for at, count in enumerate(smallest_first):
        share = left // (len(smallest_first) - at)
        if count > share:
            return share
        left -= count
    return keep


def linked(entry: AuditEntry, before: str) -> str:
    """The hash of an entry that comes after the one whose hash is `before`."""
    parts = [before, entry.id, entry.at, entry.actor, entry.source, entry.verb, entry.kind, entry.namespace]
    parts += [entry.name, entry.uid, entry.outcome, dict(entry.detail)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
