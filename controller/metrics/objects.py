"""Desired and actual state of each sandbox, from the last snapshot (section B of the catalogue)."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import Metric

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.sandbox import SandboxSpec, Template, at_own_level, idle_timeout_seconds
from controller.metrics.catalogue import OBJECTS
from controller.metrics.catalogue.family import OTHER
from controller.metrics.catalogue.objects import END_REASONS
from controller.metrics.families import empty, enum, filled
from controller.metrics.render import Labels
from controller.metrics.state import known_conditions, sandbox_state, waiting_reason
from controller.policy.levels.profiles import network_of


@dataclass(frozen=True, slots=True)
class Row:
    """One sandbox, with the labels that its samples share. `spec` is None if unreadable for this version."""

    labels: Labels
    obj: StoredObject
    spec: SandboxSpec | None
    template: Template | None
    instance: Instance | None
    containers: tuple[Container, ...]
    pool: str = ""
    network: str = ""


class ObjectCollector:
    """Collector of every sandbox of the last snapshot. Series vanish with their object.

    `label_allowlist` names the users' own labels that are exported; the rest never reach Prometheus. `detail` adds the
    families that are off by default.
    """

    def __init__(
        self, snapshot: Callable[[], Snapshot | None], *, label_allowlist: Sequence[str] = (), detail: bool = False
    ) -> None:
        self._snapshot, self._detail = snapshot, detail
        self._label_allowlist = tuple(label_allowlist)

    def describe(self) -> Iterable[Metric]:
        return [empty(each) for each in OBJECTS]

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        rows = [_row(snapshot, uid) for uid in snapshot.sandboxes]
        yield from _desired(rows)
        yield from _status(rows)
        yield from _past(rows)
        used = ((row.labels, _last_use(row, snapshot)) for row in rows)
        yield filled("paddock_sandbox_last_activity_timestamp_seconds", ((at, each) for at, each in used if each))
        if self._detail:
            drifted = ((row.labels, snapshot.drifted.get(row.obj.uid, 0)) for row in rows)
            yield filled("paddock_sandbox_status_drifted_fields", drifted)
        if self._label_allowlist:
            yield _user_labels(rows, self._label_allowlist)


def _row(snapshot: Snapshot, uid: str) -> Row:
    sandbox = snapshot.sandboxes[uid]
    labels = Labels({"namespace": sandbox.obj.namespace, "sandbox": sandbox.obj.name})
    seen = snapshot.observed.containers.get(uid, ())
    pool = snapshot.pool_of(uid)
    template = at_own_level(sandbox.spec, sandbox.template) if sandbox.template else None
    network = network_of(template, snapshot.profiles.values()) if template else ""
    return Row(labels, sandbox.obj, sandbox.spec, template, snapshot.instances.get(uid), seen, pool, network)


def _desired(rows: list[Row]) -> Iterator[Metric]:
    """Yield the desired state."""
    yield filled("paddock_sandbox_info", ((_info(row), 1) for row in rows))
    yield filled("paddock_sandbox_created_timestamp_seconds", ((row.labels, row.obj.created_at) for row in rows))
    yield filled(
        "paddock_sandbox_deletion_timestamp_seconds",
        ((row.labels, row.obj.deleted_at) for row in rows if row.obj.deleted_at is not None),
    )
    yield filled("paddock_sandbox_metadata_generation", ((row.labels, row.obj.generation) for row in rows))
    yield filled(
        "paddock_sandbox_spec_running",
        ((row.labels, int(row.spec.run_state == "Running")) for row in rows if row.spec),
    )
    cpu = ((row.labels, _limit(row, "cpu", "cpu_millicores")) for row in rows)
    yield filled("paddock_sandbox_spec_cpu_limit_cores", ((at, each / 1000) for at, each in cpu if each))
    memory = ((row.labels, _limit(row, "memory", "memory_bytes")) for row in rows)
    yield filled("paddock_sandbox_spec_memory_limit_bytes", ((at, each) for at, each in memory if each))
    idle = ((row.labels, idle_timeout_seconds(row.spec)) for row in rows)
    yield filled("paddock_sandbox_spec_idle_timeout_seconds", ((at, each) for at, each in idle if each is not None))
    for name, asked, reserved in (
        ("paddock_sandbox_spec_pids_limit", "pids", "pids"),
        ("paddock_sandbox_spec_fs_limit_bytes", "disk", "disk_bytes"),
        ("paddock_sandbox_spec_gpus", "gpus", "gpus"),
    ):
        wanted = [(row.labels, _limit(row, asked, reserved)) for row in rows]
        yield filled(name, ((at, each) for at, each in wanted if each))


def _info(row: Row) -> Labels:
    """Return the info family of specs."""
    template = row.template
    facts = {
        "uid": row.obj.uid,
        "image": template.image if template else "",
        "security_level": template.security_level if template else "",
        "network": row.network,
        "pool": row.pool,
    }
    return Labels({**row.labels, **facts})


def _limit(row: Row, asked: str, reserved: str) -> int | None:
    """Return a requested limit; without one, the amount reserved by the security level."""
    value: int | None = getattr(row.spec.resources.limits, asked) if row.spec else None
    if value is None and row.instance is not None:
        value = getattr(row.instance.reserves, reserved)
    return value


def _status(rows: list[Row]) -> Iterator[Metric]:
    """Yield the status."""
    states = [(row.labels, sandbox_state(row.obj, row.containers)) for row in rows]
    yield enum("paddock_sandbox_status_state", "state", states)
    seen = ((row.labels, row.obj.status.get("observedGeneration")) for row in rows)
    yield filled("paddock_sandbox_status_observed_generation", ((at, each) for at, each in seen if each is not None))
    conditions = [(row.labels, dict(known_conditions(row.obj))) for row in rows]
    ready = ((at, int(each.get("Ready", False))) for at, each in conditions)
    yield filled("paddock_sandbox_status_ready", ready)
    yield filled(
        "paddock_sandbox_status_condition",
        ((Labels({**at, "condition": type_}), int(true)) for at, each in conditions for type_, true in each.items()),
    )
    waiting = ((row.labels, waiting_reason(row.obj)) for row in rows)
    yield filled(
        "paddock_sandbox_status_waiting_reason",
        ((Labels({**at, "reason": reason}), 1) for at, reason in waiting if reason),
    )


def _past(rows: list[Row]) -> Iterator[Metric]:
    """Yield stored instance state, which survives restarts of the daemon and new containers."""
    kept = [(row.labels, row.instance.memory) for row in rows if row.instance]
    yield filled("paddock_sandbox_status_restarts_total", ((at, memory.restarts) for at, memory in kept))
    ends = [(at, memory.last_end) for at, memory in kept if memory.last_end]
    yield filled(
        "paddock_sandbox_status_last_termination_reason",
        ((Labels({**at, "reason": end.reason if end.reason in END_REASONS else OTHER}), 1) for at, end in ends),
    )
    yield filled("paddock_sandbox_status_last_termination_exit_code", ((at, end.exit_code) for at, end in ends))


def _last_use(row: Row, snapshot: Snapshot) -> float:
    """Return the time of the last use: 0 if unknown, now while a stream is open."""
    kept, seen = row.instance.memory.use if row.instance else None, snapshot.activity.get(row.obj.uid)
    if seen is not None and seen.open:
        return snapshot.now
    return max(kept.at if kept else 0.0, seen.last_at if seen else 0.0)


def _user_labels(rows: list[Row], allowed: tuple[str, ...]) -> Metric:
    """Return the allowed labels of sandboxes as `label_<name>`, with `_` for characters that Prometheus refuses."""
    names = {label: "label_" + re.sub(r"[^A-Za-z0-9_]", "_", label) for label in allowed}

    def samples() -> Iterator[tuple[Labels, float]]:
        for row in rows:
            shown = {names[label]: row.obj.labels[label] for label in allowed if label in row.obj.labels}
            if shown:
                yield Labels({**row.labels, **shown}), 1

    return filled("paddock_sandbox_labels", samples())
