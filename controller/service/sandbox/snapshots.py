"""Use-cases of snapshots: forks of a sandbox, its rollback, and snapshots as archives.

Every sandbox and snapshot is written as its caller would write it: each right and quota counts.
"""

import hashlib
import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from controller.kinds.access.access import AccessRequest
from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.quota import KIND as QUOTA
from controller.kinds.quota import QuotaSpec, amount_of
from controller.kinds.registry import Kind
from controller.kinds.runtime.snapshot import SnapshotContent
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import SandboxSpec, Template, at_own_level
from controller.kinds.sandboxsnapshot import CAPTURED
from controller.kinds.sandboxsnapshot import KIND as SNAPSHOT
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.policy.profiles import default_limits
from controller.policy.sandbox import NO_LIMITS, reserved
from controller.ports.snapshots import SnapshotError, Snapshots
from controller.service import errors
from controller.service.access import access
from controller.service.admission import profiles_in
from controller.service.objects.objects import Objects
from controller.service.objects.patch import Patch
from controller.service.objects.pipeline import Pipeline
from controller.service.objects.quota import rooms
from controller.service.objects.write import Write
from controller.version import API_VERSION

COUNT_MAX = 100
_NAME_LETTERS = 52
_WAIT_SECONDS, _POLL_SECONDS = 180.0, 0.02
_IMPORT_BYTES = 64 << 30
_WAITS = 16  # threads of the API that wait for captures and imports: it has 40
_REASONS = {"TooLarge": errors.TooLarge, "Damaged": errors.BadRequest, "Foreign": errors.BadRequest}


@dataclass(frozen=True, slots=True)
class Forks:
    """Result of a fork: its snapshot, the new sandboxes, and why there are no more of them."""

    snapshot: StoredObject
    sandboxes: tuple[StoredObject, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollback:
    """Result of a rollback: the sandbox as it is to be, and the snapshot of what it was (None: not requested)."""

    sandbox: StoredObject
    backup: StoredObject | None


class NoSnapshots:
    """ports.Snapshots without any."""

    def recover(self) -> Collection[str]:
        return ()

    def importing(self) -> Collection[str]:
        return ()

    def capture(self, request: CaptureRequest) -> SnapshotContent:
        raise SnapshotError("Unsupported", f"{request.source_name}: this daemon takes no snapshots")

    def contents(self) -> Mapping[str, SnapshotContent]:
        return {}

    def remove(self, uid: str) -> None:
        """Remove nothing."""

    def sweep(self, uids: Collection[str]) -> None:
        """Forget nothing."""

    def export(self, uid: str, image: bool) -> Iterator[bytes]:
        raise SnapshotError("Unsupported", f"{uid}: this daemon takes no snapshots{' or images' if image else ''}")

    def take_in(
        self,
        uid: str,  # noqa: ARG002 - the port's signature
        namespace: str,
        name: str,
        pieces: Iterator[bytes],  # noqa: ARG002
        bytes_max: int,  # noqa: ARG002
        *,
        may_load_image: bool,  # noqa: ARG002
    ) -> SnapshotContent:
        raise SnapshotError("Unsupported", f"{namespace}/{name}: this daemon takes no snapshots")


class SandboxSnapshots:
    """The use-cases. `snapshots` are the files on this host."""

    def __init__(self, pipeline: Pipeline, objects: Objects, snapshots: Snapshots) -> None:
        self._pipeline, self._objects, self._snapshots = pipeline, objects, snapshots
        self._write, self._patch = Write(pipeline), Patch(pipeline)
        self._waits = threading.BoundedSemaphore(_WAITS)

    def fork(
        self,
        namespace: str,
        name: str,
        *,
        count: int = 1,
        prefix: str = "",
        snapshot: str = "",
        partial: bool = False,
        written_by: str = "",
    ) -> Forks:
        """Create sandboxes that begin as this one is now, or as its `snapshot` has it: all of them, or none.

        `partial`: as many as quotas have room for. Raises NotFound, Conflict, Invalid, Forbidden, ServiceUnavailable.
        """
        source = self._objects.get(SANDBOX, namespace, name)
        fitting, reasons = self._fitting(source, count)
        if not fitting or (fitting < count and not partial):
            raise errors.Conflict(
                f"sandbox `{name}`: {fitting} of {count} forks fit ({'; '.join(reasons)}); "
                "lower the count, allow a part of them, or raise the quota"
            )
        captured = self._captured(namespace, snapshot) if snapshot else self._take(source, "fork", written_by)
        forks: list[StoredObject] = []
        try:
            for new in self._names(namespace, prefix or name, fitting):
                text = json.dumps(_fork_document(source, new, captured.name))
                forks.append(self._write.create(SANDBOX, namespace, text, written_by=written_by))
        except errors.ServiceError as error:
            if forks and partial:
                return Forks(captured, tuple(forks), (*reasons, str(error)))
            for created in forks:
                self._delete(SANDBOX, created, written_by)
            if not snapshot:
                self._delete(SNAPSHOT, captured, written_by)
            raise
        return Forks(captured, tuple(forks), reasons)

    def rollback(self, namespace: str, name: str, to: str, *, backup: bool = True, written_by: str = "") -> Rollback:
        """Give a sandbox the files of a snapshot, in a new container. `backup`: take a snapshot of it first.

        Raises NotFound, Conflict, Invalid, Forbidden, ServiceUnavailable.
        """
        source = self._objects.get(SANDBOX, namespace, name)
        captured = self._captured(namespace, to)
        saved = self._take(source, "before", written_by) if backup else None
        now = datetime.fromtimestamp(self._pipeline.clock.now(), UTC).isoformat().replace("+00:00", "Z")
        change = {"spec": {"restoreFrom": {"snapshotRef": {"name": captured.name}, "at": now}}}
        return Rollback(self._patch.patch(SANDBOX, namespace, name, change, patched_by=written_by), saved)

    def export(self, namespace: str, name: str, *, image: bool = False) -> Iterator[bytes]:
        """Return a captured snapshot as an archive. Raises NotFound, Conflict, ServiceUnavailable."""
        obj = self._captured(namespace, name)
        pieces = self._snapshots.export(obj.uid, image)
        try:
            first = next(pieces, b"")
        except SnapshotError as error:
            raise _service_error(error) from error
        return _chain(first, pieces)

    def take_in(self, namespace: str, name: str, pieces: Iterator[bytes], *, written_by: str = "") -> StoredObject:
        """Create a snapshot from an archive. Raises AlreadyExists, BadRequest, TooLarge, Forbidden ..."""
        document = {
            "apiVersion": API_VERSION,
            "kind": SNAPSHOT.name,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"imported": True},
        }
        room = self._room(namespace)
        obj = self._write.create(SNAPSHOT, namespace, json.dumps(document), written_by=written_by)
        try:
            with self._waiting():
                self._snapshots.take_in(
                    *(obj.uid, namespace, name, pieces, min(_IMPORT_BYTES, room)),
                    may_load_image=access.decision(AccessRequest("admin", sub="images/build")).allowed,
                )
        except SnapshotError as error:
            self._delete(SNAPSHOT, obj, written_by)
            raise _service_error(error) from error
        except BaseException:
            self._delete(SNAPSHOT, obj, written_by)
            raise
        self._pipeline.wake()
        return self._wait(obj)

    def _room(self, namespace: str) -> int:
        """Return the bytes that the quotas of a namespace leave for a snapshot. Raises Conflict for none."""
        with self._pipeline.transaction() as writing:
            quotas = writing.transaction.list(QUOTA.name, namespace)
        specs = [QuotaSpec.model_validate(quota.spec).hard.snapshot_storage for quota in quotas]
        limits = [int(limit) for limit in specs if limit is not None]
        if not limits:
            return _IMPORT_BYTES
        stored = self._snapshots.contents().values()
        room = min(limits) - sum(content.total_bytes for content in stored if content.namespace == namespace)
        if room <= 0:
            raise errors.Conflict("the snapshots of its namespace have all the size that a Quota allows; delete some")
        return room

    def _take(self, source: StoredObject, why: str, written_by: str) -> StoredObject:
        name = f"{why}-{source.name[:30]}-{time.time_ns() // 1_000_000:x}"
        return self.take(source.namespace, source.name, name, written_by=written_by)

    def take(self, namespace: str, sandbox: str, name: str, *, written_by: str = "") -> StoredObject:
        """Create a snapshot of a sandbox, and wait for it. Raises Conflict if it fails: then none stays.

        Raises ServiceUnavailable if it is late, TooManyRequests with too many that wait.
        """
        document = {
            "apiVersion": API_VERSION,
            "kind": SNAPSHOT.name,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"sandboxRef": {"name": sandbox}},
        }
        obj = self._write.create(SNAPSHOT, namespace, json.dumps(document), written_by=written_by)
        try:
            return self.wait(obj)
        except errors.ServiceError:
            self._delete(SNAPSHOT, obj, written_by)
            raise

    def wait(self, obj: StoredObject) -> StoredObject:
        """Return a snapshot once it is captured.

        Raises Conflict if it can't be, ServiceUnavailable if it is late, TooManyRequests with too many that wait.
        """
        with self._waiting():
            return self._wait(obj)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Count the block among those that may hold their thread for long: the others are for short requests."""
        if not self._waits.acquire(blocking=False):
            raise errors.TooManyRequests(f"{_WAITS} captures and imports are waited for; try again in a moment")
        try:
            yield
        finally:
            self._waits.release()

    def _wait(self, obj: StoredObject) -> StoredObject:
        deadline, pause = time.monotonic() + _WAIT_SECONDS, threading.Event()
        while True:
            current = self._objects.get(SNAPSHOT, obj.namespace, obj.name)
            condition = stored_condition(current, CAPTURED)
            if condition.get("status") == "True":
                return current
            state_text = f"{condition.get('reason', 'Pending')}: {condition.get('message', '')}"
            if condition.get("status") == "False":
                raise errors.Conflict(f"snapshot `{obj.name}` can't be taken: {state_text}")
            if time.monotonic() > deadline:
                raise errors.ServiceUnavailable(
                    f"snapshot `{obj.name}` is not ready within {_WAIT_SECONDS:g} s: {state_text}"
                )
            pause.wait(_POLL_SECONDS)

    def _captured(self, namespace: str, name: str) -> StoredObject:
        obj = self._objects.get(SNAPSHOT, namespace, name)
        if obj.deleted_at is not None or stored_condition(obj, CAPTURED).get("status") != "True":
            reason = stored_condition(obj, CAPTURED).get("reason", "Pending")
            raise errors.Conflict(f"snapshot `{name}` is not captured ({reason}); wait for it, or take another one")
        return obj

    def _fitting(self, source: StoredObject, count: int) -> tuple[int, tuple[str, ...]]:
        """Return how many forks the quotas have room for now, and why no more."""
        if source.deleted_at is not None:
            raise errors.Conflict(f"sandbox `{source.name}` is being deleted; fork another one")
        with self._pipeline.transaction() as writing:
            transaction = writing.transaction
            try:
                spec = SandboxSpec.model_validate(source.spec)
                template = spec.template or _template(transaction.get("SandboxTemplate", source.namespace, _ref(spec)))
            except ValidationError as error:
                raise errors.Conflict(f"sandbox `{source.name}`: this version can't read its spec") from error
            if template is None:
                raise errors.Conflict(f"sandbox `{source.name}`: its template is gone; fork from a snapshot by a file")
            level = at_own_level(spec, template).security_level
            limits = default_limits(level, profiles_in(transaction)) or NO_LIMITS
            amount = amount_of(reserved(spec, template, limits), 1)
            host = self._pipeline.place.host
            return rooms(transaction, source.namespace, self._pipeline.facts(), total=amount, count=count, host=host)

    def _names(self, namespace: str, prefix: str, count: int) -> Iterator[str]:
        """Yield names that no sandbox has: PREFIX-1, PREFIX-2 ..."""
        used_names = {obj.name for obj in self._objects.list(SANDBOX, namespace).objects}
        number = 0
        while count:
            number += 1
            ending = f"-{number}"
            name = prefix[: _NAME_LETTERS - len(ending)].rstrip("-") + ending
            if name not in used_names:
                count -= 1
                yield name

    def _delete(self, kind: Kind, obj: StoredObject, written_by: str) -> None:
        try:
            self._objects.delete(kind, obj.namespace, obj.name, deleted_by=written_by)
        except errors.NotFound:
            return


def _fork_document(source: StoredObject, name: str, snapshot: str) -> Mapping[str, Any]:
    """Return the document of a fork: the source's spec, with volumes of its own, and the snapshot to begin from."""
    spec: dict[str, Any] = {**source.spec, "restoreFrom": {"snapshotRef": {"name": snapshot}}, "runState": "Running"}
    if spec.get("templateRef") is not None:
        spec["poolPolicy"] = "Never"
    if template := spec.get("template"):
        volumes = [_own_volume(volume, name) for volume in template.get("volumes", ())]
        spec["template"] = {**template, **({"volumes": volumes} if volumes else {})}
        spec["template"].pop("restoreFrom", None)
    workspace = spec.get("workspace") or {}
    if volume := workspace.get("volume"):
        spec["workspace"] = {**workspace, "volume": _own_volume(volume, name)}
    lifecycle = spec.get("lifecycle") or {}
    if "snapshots" in lifecycle:
        spec["lifecycle"] = {key: value for key, value in lifecycle.items() if key != "snapshots"}
    metadata = {"name": name, "namespace": source.namespace, "labels": dict(source.labels)}
    return {"apiVersion": API_VERSION, "kind": SANDBOX.name, "metadata": metadata, "spec": spec}


def _own_volume(volume: Mapping[str, Any], sandbox: str) -> dict[str, Any]:
    """Return a volume of the fork's own instead of a writable one of the source."""
    if volume.get("readOnly"):
        return dict(volume)
    name = f"{volume['name']}-{sandbox}"
    if len(name) > _NAME_LETTERS:
        name = name[: _NAME_LETTERS - 9].rstrip("-") + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return {**volume, "name": name}


def _template(obj: StoredObject | None) -> Template | None:
    return SandboxTemplateSpec.model_validate(obj.spec) if obj is not None else None


def _ref(spec: SandboxSpec) -> str:
    return spec.template_ref.name if spec.template_ref else ""


def _chain(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from pieces


def _service_error(error: SnapshotError) -> errors.ServiceError:
    if error.retry:
        return errors.ServiceUnavailable(str(error))
    return _REASONS.get(error.reason, errors.Conflict)(str(error))
