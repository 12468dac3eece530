"""The audit log: one entry for each request, and a hash chain over the entries of each writer.

A writer is a daemon, by its place: its host's name, or `api/NAME`. Versions before had one chain for all daemons of a
store: that of writer "".
An entry never holds a value that a user wrote: no environment, no command arguments, of a spec only the names of the
changed fields.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

GENESIS = ""  # the hash before the first entry
# Verbs of entries of Paddock's own. `thin`: so many entries of one caller were dropped, who had more than a fair share.
# `thinned` replaces them, with the hash of the last one, from which the chain continues.
OWN, THIN, THINNED = "paddock", "thin", "thinned"
Outcome = Literal["allowed", "refused"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One audited request."""

    at: float
    """Time of the request (Unix seconds)."""
    actor: str
    """Name of the caller."""
    source: str
    """From where: an address, or the socket."""
    verb: str
    """Verb of the request, such as create."""
    kind: str = ""
    """Kind of the object."""
    namespace: str = ""
    """Namespace of the object."""
    name: str = ""
    """Name of the object."""
    uid: str = ""
    """Uid of the object."""
    outcome: Outcome = "allowed"
    """Decision."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Further facts, as JSON."""
    id: int = 0
    """Number in its writer's chain; the store sets it."""
    hash: str = ""
    """Hash over it and the entry before; the store sets it."""
    writer: str = ""
    """Daemon that wrote it; the store sets it."""


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Result of verifying a writer's chain. `problem` is "" if every entry is unchanged.

    `pruned` entries are missing from the beginning, `thinned` ones from in between. `last_at` is the newest one's time.
    """

    writer: str
    entries: int
    pruned: int
    last_id: int
    last_hash: str
    problem: str = ""
    thinned: int = 0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of verifying the log: that of each chain, in the order of their writers."""

    chains: Sequence[ChainReport]

    @property
    def problem(self) -> str:
        """The problems of all chains, each with its writer; "" if there is none."""
        return "; ".join(f"{chain_title(chain.writer)}: {chain.problem}" for chain in self.chains if chain.problem)

    @property
    def entries(self) -> int:
        return sum(chain.entries for chain in self.chains)

    @property
    def pruned(self) -> int:
        return sum(chain.pruned for chain in self.chains)

    @property
    def thinned(self) -> int:
        return sum(chain.thinned for chain in self.chains)

    @property
    def newest(self) -> ChainReport:
        """The chain that was written last."""
        return max(self.chains, key=lambda chain: chain.last_at, default=ChainReport("", 0, 0, 0, GENESIS))


def chain_title(writer: str) -> str:
    """Return the name of a writer's chain, for messages."""
    return f"chain of {writer or 'older versions'}"


def fair_share(counts: Iterable[int], keep: int) -> int:
    """Return the largest number of entries per caller at which all callers together have at most `keep`."""
    remaining, smallest_first = keep, sorted(counts)
    for at, count in enumerate(smallest_first):
        share = remaining // (len(smallest_first) - at)
        if count > share:
            return share
        remaining -= count
    return keep


def entry_hash(entry: AuditEntry, before: str) -> str:
    """Return the hash of an entry that follows the one whose hash is `before`."""
    parts = [before, entry.id, entry.at, entry.actor, entry.source, entry.verb, entry.kind, entry.namespace]
    parts += [entry.name, entry.uid, entry.outcome, dict(entry.detail), *([entry.writer] if entry.writer else [])]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
