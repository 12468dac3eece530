"""Desired and actual state of each sandbox, from the last snapshot (section B of the catalogue)."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from prometheus_client import Metric

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.sandbox import SandboxSpec, at_own_level, idle_timeout_seconds
from controller.kinds.securityprofile import StoredProfile
from controller.metrics.catalogue import CATALOGUE, OBJECTS
from controller.metrics.catalogue.family import OTHER
from controller.metrics.catalogue.objects import END_REASONS, HIBERNATED
from controller.metrics.families import empty, filled, text_family
from controller.metrics.render import Labels, Pairs, line
from controller.metrics.state import is_hibernated, known_conditions, sandbox_state, waiting_reason
from controller.policy.profiles import network_of


@dataclass(frozen=True, slots=True)
class Row:
    """One sandbox, with the labels that its samples share."""

    labels: Labels
    sandbox: Sandbox
    instance: Instance | None
    containers: tuple[Container, ...]
    pool: str

    @property
    def obj(self) -> StoredObject:
        return self.sandbox.obj

    @property
    def spec(self) -> SandboxSpec | None:
        """The spec; None if unreadable for this version."""
        return self.sandbox.spec


_Series = Iterator[tuple[str, Labels, float]]  # names of families, labels and values
# Families whose values change by themselves; the others are those of the stored and observed object.
_LIVE = ("paddock_sandbox_last_activity_timestamp_seconds", "paddock_sandbox_status_drifted_fields")
_STATES = CATALOGUE["paddock_sandbox_status_state"].values["state"]
_USER_LABELS = "paddock_sandbox_labels"
_Lines = tuple[Row, tuple[str, ...]]  # a sandbox, and its lines of each family


@dataclass(frozen=True, slots=True)
class _Last:
    """Lines of the last scrape, by uid, and the profiles that it took networks from."""

    profiles: Mapping[str, StoredProfile] | None = None
    lines: Mapping[str, _Lines] = field(default_factory=dict)


class ObjectCollector:
    """Collector of every sandbox of the last snapshot. Series vanish with their object.

    The lines of a sandbox that did not change since the last scrape are those of before. `label_allowlist` names the
    users' own labels that are exported; the rest never reach Prometheus. `detail` adds the families that are off by
    default.
    """

    def __init__(
        self, snapshot: Callable[[], Snapshot | None], *, label_allowlist: Sequence[str] = (), detail: bool = False
    ) -> None:
        self._snapshot, self._detail = snapshot, detail
        self._label_allowlist = tuple(label_allowlist)
        without = _LIVE if label_allowlist else (*_LIVE, _USER_LABELS)
        self._names = [family.name for family in OBJECTS if family.name not in without]
        self._last = _Last()

    def describe(self) -> Iterable[Metric]:
        return [empty(family) for family in OBJECTS]

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        last = self._last if self._last.profiles is snapshot.rules.profiles else _Last()
        lines = {uid: self._lines_of(snapshot, uid, last.lines.get(uid)) for uid in snapshot.desired.sandboxes}
        self._last = _Last(snapshot.rules.profiles, lines)

        @cache
        def pairs() -> Mapping[str, Pairs]:
            return _by_name(
                sample for row, _ in lines.values() for sample in self._series(row, snapshot.rules.profiles)
            )

        for index, name in enumerate(self._names):
            texts = [texts[index] for _, texts in lines.values() if texts[index]]
            yield text_family(name, texts, partial(_pairs_of, pairs, name))
        last_uses = ((row.labels, _last_use(row, snapshot)) for row, _ in lines.values())
        yield filled(
            "paddock_sandbox_last_activity_timestamp_seconds", ((at, seconds) for at, seconds in last_uses if seconds)
        )
        if self._detail:
            drifted = ((row.labels, snapshot.progress.drifted.get(uid, 0)) for uid, (row, _) in lines.items())
            yield filled("paddock_sandbox_status_drifted_fields", drifted)

    def _lines_of(self, snapshot: Snapshot, uid: str, former: _Lines | None) -> _Lines:
        """Return a sandbox with its lines: the known ones, unless something about it is another object now."""
        sandbox, instance = snapshot.desired.sandboxes[uid], snapshot.instances.get(uid)
        containers, pool = snapshot.observed.containers.get(uid, ()), snapshot.pool_of(uid)
        if former is not None:
            row = former[0]
            is_unchanged = row.sandbox is sandbox and row.instance is instance and row.containers is containers
            if is_unchanged and row.pool == pool:
                return former
        labels = Labels({"namespace": sandbox.obj.namespace, "sandbox": sandbox.obj.name})
        row = Row(labels, sandbox, instance, containers, pool)
        pairs_by_name = _by_name(self._series(row, snapshot.rules.profiles))
        return row, tuple("".join(line(name, *pair) for pair in pairs_by_name.get(name, ())) for name in self._names)

    def _series(self, row: Row, profiles: Mapping[str, StoredProfile]) -> _Series:
        """Yield what follows from the object as it is stored and observed."""
        yield from _desired(row, profiles)
        yield from _status(row)
        yield from _past(row)
        user_labels = {
            "label_" + re.sub(r"[^A-Za-z0-9_]", "_", label): row.obj.labels[label]
            for label in self._label_allowlist
            if label in row.obj.labels
        }
        if user_labels:  # `_` is for characters that Prometheus refuses
            yield _USER_LABELS, Labels({**row.labels, **user_labels}), 1


def _pairs_of(pairs: Callable[[], Mapping[str, Pairs]], name: str) -> Pairs:
    return pairs().get(name, [])


def _by_name(series: _Series) -> Mapping[str, Pairs]:
    pairs_by_name: dict[str, Pairs] = defaultdict(list)
    for name, labels, value in series:
        pairs_by_name[name].append((labels, value))
    return pairs_by_name


def _desired(row: Row, profiles: Mapping[str, StoredProfile]) -> _Series:
    """Yield the desired state."""
    at = row.labels
    obj = row.obj
    spec = row.spec
    yield "paddock_sandbox_info", _info(row, profiles), 1
    yield "paddock_sandbox_created_timestamp_seconds", at, obj.created_at
    if obj.deleted_at is not None:
        yield "paddock_sandbox_deletion_timestamp_seconds", at, obj.deleted_at
    yield "paddock_sandbox_metadata_generation", at, obj.generation
    if spec:
        yield "paddock_sandbox_spec_running", at, int(spec.run_state == "Running")
    if cpu := _limit(row, "cpu", "cpu_millicores"):
        yield "paddock_sandbox_spec_cpu_limit_cores", at, cpu / 1000
    idle = idle_timeout_seconds(spec)
    if idle is not None:
        yield "paddock_sandbox_spec_idle_timeout_seconds", at, idle
    for name, limit_name, reserved in (
        ("paddock_sandbox_spec_memory_limit_bytes", "memory", "memory_bytes"),
        ("paddock_sandbox_spec_pids_limit", "pids", "pids"),
        ("paddock_sandbox_spec_fs_limit_bytes", "disk", "disk_bytes"),
        ("paddock_sandbox_spec_gpus", "gpus", "gpus"),
    ):
        if limit := _limit(row, limit_name, reserved):
            yield name, at, limit


def _info(row: Row, profiles: Mapping[str, StoredProfile]) -> Labels:
    """Return the info family of specs."""
    sandbox = row.sandbox
    template = at_own_level(sandbox.spec, sandbox.template) if sandbox.template else None
    facts = {
        "uid": row.obj.uid,
        "image": template.image if template else "",
        "security_level": template.security_level if template else "",
        "network": network_of(template, profiles.values()) if template else "",
        "pool": row.pool,
    }
    return Labels({**row.labels, **facts})


def _limit(row: Row, limit_name: str, reserved: str) -> int | None:
    """Return a requested limit; without one, the amount reserved by the security level."""
    value: int | None = getattr(row.spec.resources.limits, limit_name) if row.spec else None
    if value is None and row.instance is not None:
        value = getattr(row.instance.reserves, reserved)
    return value


def _status(row: Row) -> _Series:
    """Yield the status."""
    at, obj = row.labels, row.obj
    state = sandbox_state(obj, row.containers)
    for known_state in _STATES:
        if known_state == HIBERNATED != state:
            continue  # a series less for each of the many that never are
        yield "paddock_sandbox_status_state", at.plus("state", known_state), int(known_state == state)
    if is_hibernated(row.containers):
        memories = [memory for container in row.containers if (memory := container.frozen_memory) is not None]
        yield "paddock_sandbox_hibernated", at, 1
        yield "paddock_sandbox_hibernated_resident_bytes", at, sum(memory.resident_bytes for memory in memories)
        yield "paddock_sandbox_hibernated_swapped_bytes", at, sum(memory.swapped_bytes for memory in memories)
    generation = obj.status.get("observedGeneration")
    if generation is not None:
        yield "paddock_sandbox_status_observed_generation", at, generation
    conditions = dict(known_conditions(obj))
    yield "paddock_sandbox_status_ready", at, int(conditions.get("Ready", False))
    for type_, true in conditions.items():
        yield "paddock_sandbox_status_condition", at.plus("condition", type_), int(true)
    if reason := waiting_reason(obj):
        yield "paddock_sandbox_status_waiting_reason", at.plus("reason", reason), 1


def _past(row: Row) -> _Series:
    """Yield stored instance state, which survives restarts of the daemon and new containers."""
    if row.instance is None:
        return
    at, memory = row.labels, row.instance.state
    yield "paddock_sandbox_status_restarts_total", at, memory.runs.restarts
    if end := memory.runs.last_end:
        reason = end.reason if end.reason in END_REASONS else OTHER
        yield "paddock_sandbox_status_last_termination_reason", at.plus("reason", reason), 1
        yield "paddock_sandbox_status_last_termination_exit_code", at, end.exit_code


def _last_use(row: Row, snapshot: Snapshot) -> float:
    """Return the time of the last use: 0 if unknown, now while a stream is open."""
    stored_use, activity = (
        row.instance.state.lifecycle.use if row.instance else None,
        snapshot.measured.activity.get(row.obj.uid),
    )
    if activity is not None and activity.open:
        return snapshot.now
    return max(stored_use.at if stored_use else 0.0, activity.last_at if activity else 0.0)
