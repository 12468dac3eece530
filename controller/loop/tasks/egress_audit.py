"""Egress in the audit log: periodic entries of each sandbox, with its allowed and refused requests summed by host.

The proxies' logs are read from where the last entry ended: periodically, and once more before a proxy is removed with
its log. Sandboxes choose the host names in them: these are truncated, and of very many only some are listed.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice

import structlog

from controller.kinds.access.audit import AuditEntry
from controller.kinds.planning.action import Action, RemoveContainer
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.egress_log import Access, parsed
from controller.ports import Audit, Clock, StoreError, StreamError, Streams

EGRESS_SECONDS = 30.0
VERB = "egress"
_MOST_HOSTS, _LONGEST_HOST = 32, 253
_MOST_LINES = 100_000
_KNOWN_ENTRIES = 5000  # newest entries searched for the end of each sandbox's last one
_RECENT_SECONDS = 600.0
_SKEW_SECONDS = 5.0  # between the proxy's time of a line and the engine's
_log = structlog.get_logger("paddock.egress")


class EgressAudit:
    """Thread-safe; never raises. `look` is called every EGRESS_SECONDS. `snapshot` returns the last pass's."""

    def __init__(
        self, *, snapshot: Callable[[], Snapshot | None], streams: Streams, audit: Audit, clock: Clock
    ) -> None:
        self._snapshot, self._streams, self._audit, self._clock = snapshot, streams, audit, clock
        self._until: dict[str, float] | None = None
        self._unresolved: Mapping[str, Mapping[str, float]] = {}  # sandbox -> host -> time of the last failure of DNS
        self._reported: Mapping[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def observe_now(self) -> None:
        """Append the new requests to the audit log. After a store failure they are read again."""
        snapshot = self._snapshot()
        if snapshot is None or snapshot.observed.blind:
            return
        proxies = [
            (instance, containers[0].id)
            for instance in snapshot.instances.values()
            if instance.role == "egress" and (containers := snapshot.observed.containers.get(instance.uid, ()))
        ]
        if proxies:
            self._append_new(proxies)
        with self._lock:
            present_uids = {instance.parent_uid for instance, _ in proxies}
            until_by_uid = self._until or {}
            for uid in until_by_uid.keys() - present_uids:
                del until_by_uid[uid]
            self._unresolved = {uid: hosts for uid, hosts in self._unresolved.items() if uid in present_uids}

    def unresolved(self) -> Mapping[str, tuple[str, ...]]:
        """Return the listed hosts that had no address when they were last asked for, by the uids of sandboxes.

        After ten minutes without such a request they are forgotten. Called by the reconcile pass: it never waits, and
        returns the same objects while nothing changes.
        """
        since, before = self._clock.now() - _RECENT_SECONDS, self._reported
        recent = {
            uid: tuple(sorted(host for host, at in hosts.items() if at >= since))
            for uid, hosts in self._unresolved.items()
        }
        self._reported = {
            uid: before[uid] if before.get(uid) == hosts else hosts for uid, hosts in recent.items() if hosts
        }
        return self._reported

    def _note_unresolved(self, uid: str, accesses: list[Access]) -> None:
        """Note the failures of DNS among new requests. The mappings are replaced, not changed: a pass may read them."""
        hosts = dict(self._unresolved.get(uid, {}))
        for access in accesses:
            if access.verdict != "unresolved":
                hosts.pop(access.host[:_LONGEST_HOST], None)
            elif len(hosts) < _MOST_HOSTS:
                hosts[access.host[:_LONGEST_HOST]] = access.at
        unresolved = {key: failures for key, failures in self._unresolved.items() if key != uid}
        self._unresolved = {**unresolved, uid: hosts} if hosts else unresolved

    def before(self, action: Action) -> None:
        """Append the last requests of a proxy that is about to be removed; it was killed already."""
        snapshot = self._snapshot()
        if not isinstance(action, RemoveContainer) or snapshot is None:
            return
        proxy = snapshot.instances.get(action.uid)
        if proxy is not None and proxy.role == "egress":
            self._append_new([(proxy, action.container_id)])

    def _append_new(self, proxies: list[tuple[Instance, str]]) -> None:
        with self._lock:
            try:
                until_by_uid = self._logged_until()
                new_requests = [(instance, self._new(instance, id_, until_by_uid)) for instance, id_ in proxies]
                for instance, new in new_requests:
                    self._note_unresolved(instance.parent_uid, new)
                entries = [self._entry(instance, new) for instance, new in new_requests if new]
                if entries:
                    self._audit.append(entries)
            except StoreError as error:
                _log.warning("egress audit delayed", reason=str(error))
                return
            self._until = until_by_uid | {instance.parent_uid: new[-1].at for instance, new in new_requests if new}

    def _logged_until(self) -> dict[str, float]:
        """Return the time up to which each sandbox's requests are in the log, by uid. Raises StoreError."""
        if self._until is not None:
            return dict(self._until)
        entries = self._audit.entries(limit=_KNOWN_ENTRIES)
        return {entry.uid: float(entry.detail["until"]) for entry in entries if entry.verb == VERB}

    def _new(self, instance: Instance, id_: str, until_by_uid: dict[str, float]) -> list[Access]:
        until = until_by_uid.get(instance.parent_uid, 0.0)
        try:
            return sorted(self._read(id_, until), key=lambda access: access.at)
        except StreamError:
            return []  # the proxy was just removed

    def _read(self, id_: str, until: float) -> Iterator[Access]:
        since = until - _SKEW_SECONDS if until else None
        remainder, count = b"", 0
        with closing(self._streams.logs(id_, since=since)) as chunks:
            for chunk in chunks:
                if chunk.stream != "stdout":
                    continue
                *lines, remainder = (remainder + chunk.data).split(b"\n")
                for access in filter(None, (parsed(line.decode(errors="replace")) for line in lines)):
                    if access.at > until and count < _MOST_LINES:
                        count += 1
                        yield access

    def _entry(self, instance: Instance, requests: list[Access]) -> AuditEntry:
        detail: dict[str, object] = {"until": requests[-1].at}
        for verdict in ("allowed", "refused", "unresolved", "asked"):
            sums = Counter(access.host[:_LONGEST_HOST] for access in requests if access.verdict == verdict)
            if sums:
                listed = dict(islice(sums.most_common(), _MOST_HOSTS))
                unlisted_count = sum(sums.values()) - sum(listed.values())
                detail[verdict] = listed | ({"(others)": unlisted_count} if unlisted_count else {})
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
