"""Brings what proxies let through and refused into the audit log: one entry a sandbox and a while, with sums by host.

The proxies' own logs are read anew from where the last entry ended. Names in them were written by boxes: they are cut,
and of very many only some are told by name.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice

import structlog

from controller.kinds.audit import AuditEntry
from controller.kinds.egress_log import Access, parsed
from controller.kinds.instance import Instance
from controller.kinds.observed import Container
from controller.kinds.snapshot import Snapshot
from controller.ports import Audit, Clock, StoreError, StreamError, Streams

EGRESS_SECONDS = 30.0
VERB = "egress"
_MOST_HOSTS, _LONGEST_HOST = 32, 253
_MOST_LINES = 100_000
_KNOWN_ENTRIES = 5000  # how many of the newest are looked through for where each sandbox's ended
_SKEW_SECONDS = 5.0  # between the proxy's time of a line and the engine's
_log = structlog.get_logger("paddock.egress")


class EgressAudit:
    """`look` is called every EGRESS_SECONDS by one thread; it never raises. `snapshot` is the loop's last."""

    def __init__(
        self, *, snapshot: Callable[[], Snapshot | None], streams: Streams, audit: Audit, clock: Clock
    ) -> None:
        self._snapshot, self._streams, self._audit, self._clock = snapshot, streams, audit, clock
        self._until: dict[str, float] | None = None

    def look(self) -> None:
        """Read what is new, and write it down. What can't be written is read again the next time."""
        snapshot = self._snapshot()
        if snapshot is None or snapshot.observed.blind:
            return
        proxies = [
            (each, containers[0])
            for each in snapshot.instances.values()
            if each.role == "egress" and (containers := snapshot.observed.containers.get(each.uid, ()))
        ]
        if not proxies:
            return
        try:
            known = self._known()
            found = [(each, self._new(each, container, known)) for each, container in proxies]
            entries = [self._entry(each, new) for each, new in found if new]
            if entries:
                self._audit.append(entries)
        except StoreError as error:
            _log.warning("what proxies let through is not in the audit log yet", reason=str(error))
            return
        known.update({each.parent_uid: new[-1].at for each, new in found if new})
        self._until = {each.parent_uid: known[each.parent_uid] for each, _ in proxies if each.parent_uid in known}

    def _known(self) -> dict[str, float]:
        """Until when each sandbox's accesses are in the log, by uid. Raises StoreError."""
        if self._until is not None:
            return dict(self._until)
        entries = self._audit.entries(limit=_KNOWN_ENTRIES)
        return {each.uid: float(each.detail["until"]) for each in entries if each.verb == VERB}

    def _new(self, instance: Instance, container: Container, known: dict[str, float]) -> list[Access]:
        until = known.get(instance.parent_uid, 0.0)
        try:
            return sorted(self._read(container.id, until), key=lambda each: each.at)
        except StreamError:
            return []  # it has just gone

    def _read(self, id_: str, until: float) -> Iterator[Access]:
        since = until - _SKEW_SECONDS if until else None
        rest, count = b"", 0
        with closing(self._streams.logs(id_, since=since)) as chunks:
            for chunk in chunks:
                if chunk.stream != "stdout":
                    continue
                *lines, rest = (rest + chunk.data).split(b"\n")
                for access in filter(None, (parsed(line.decode(errors="replace")) for line in lines)):
                    if access.at > until and count < _MOST_LINES:
                        count += 1
                        yield access

    def _entry(self, instance: Instance, found: list[Access]) -> AuditEntry:
        detail: dict[str, object] = {"until": found[-1].at}
        for verdict in ("allowed", "refused", "asked"):
            sums = Counter(each.host[:_LONGEST_HOST] for each in found if each.verdict == verdict)
            if sums:
                told = dict(islice(sums.most_common(), _MOST_HOSTS))
                others = sum(sums.values()) - sum(told.values())
                detail[verdict] = told | ({"(others)": others} if others else {})
        return AuditEntry(
            at=self._clock.now(),
            actor="paddock",
            source="",
            verb=VERB,
            kind=instance.parent_kind,
            namespace=instance.namespace,
            name=instance.parent_name,
            uid=instance.parent_uid,
            detail=detail,
        )
