"""Model servers: the sandbox that each owns, and connections to it, which start it.

Of several hosts the leading one creates it, on itself. Only sandboxes of its host can use it.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.meta import StoredObject
from controller.kinds.modelserver import ModelServerSpec, StoredModelServer
from controller.kinds.observed.models import ModelsState
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.provider import condition_of
from controller.kinds.sandbox import KIND as SANDBOX
from controller.policy.modelserver import owned_sandbox, sandbox_name
from controller.ports import UseTracker
from controller.ports.fleet import SINGLE, Fleet
from controller.service import errors
from controller.service.access import access
from controller.service.exec.streams import SandboxStreams
from controller.service.objects.apply import Apply, Source
from controller.service.objects.objects import Objects
from controller.service.sandbox.port_forward import Forwarded, PortForward

_WRITTEN_BY = "models"
_RETRY_SECONDS = 5.0
_WAIT_SECONDS = 0.5
_log = structlog.get_logger("paddock.models")
_Key = tuple[int, str, int]  # generation of the server; uid and generation of its sandbox


@dataclass(frozen=True, slots=True)
class _Failure:
    generation: int
    retry_at: float
    state: ModelsState


class ModelServers:
    """The use-cases. One thread keeps the sandboxes; any thread may connect."""

    def __init__(
        self,
        objects: Objects,
        apply: Apply,
        sandbox_streams: SandboxStreams,
        forward: PortForward,
        in_use: UseTracker,
        place: Fleet = SINGLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._objects, self._apply, self._streams = objects, apply, sandbox_streams
        self._forward, self._in_use, self._clock = forward, in_use, clock
        self._kept: dict[str, _Key] = {}
        self._failed: dict[str, _Failure] = {}

    def keep(self, snapshot: Snapshot) -> Mapping[str, ModelsState]:
        """Create each server's sandbox, and put back what others changed. Return the reasons of failures, by uid."""
        if not snapshot.fleet.leads:
            self._kept.clear()
            self._failed.clear()
            return MappingProxyType({})
        servers = {
            (server_state.obj.namespace, sandbox_name(server_state.obj.name)): server_state
            for server_state in snapshot.models.servers.values()
            if server_state.spec is not None and server_state.obj.deleted_at is None
        }
        sandboxes: dict[str, StoredObject] = {}
        if servers:
            for sandbox in snapshot.desired.sandboxes.values():
                server = servers.get((sandbox.obj.namespace, sandbox.obj.name))
                if server is not None:
                    sandboxes[server.obj.uid] = sandbox.obj
        for by_uid in (self._kept, self._failed):
            for uid in by_uid.keys() - snapshot.models.servers.keys():
                by_uid.pop(uid)
        for server in servers.values():
            self._keep(server, sandboxes.get(server.obj.uid))
        return MappingProxyType({uid: failure.state for uid, failure in self._failed.items()})

    def _keep(self, server: StoredModelServer, sandbox: StoredObject | None) -> None:
        obj = server.obj
        if sandbox is not None and sandbox.deleted_at is not None:
            return  # it is created again once it is gone
        if sandbox is not None and self._kept.get(obj.uid) == (obj.generation, sandbox.uid, sandbox.generation):
            return
        failed = self._failed.get(obj.uid)
        if failed is not None and failed.generation == obj.generation and self._clock() < failed.retry_at:
            return
        if sandbox is not None and obj.uid not in owner_uids(sandbox):
            name = f"sandbox `{sandbox.name}`"
            self._fail(obj, ModelsState("NameTaken", f"{name} is not its own; delete that, or rename this server"))
            return
        assert server.spec is not None
        try:
            with access.acting(None):
                source = Source(str(obj.ref), json.dumps(owned_sandbox(obj.name, server.spec)))
                [applied] = self._apply.apply([source], namespace=obj.namespace, applied_by=_WRITTEN_BY)
        except errors.ServiceError as error:
            self._fail(obj, ModelsState("Refused", str(error)))
            return
        self._failed.pop(obj.uid, None)
        self._kept[obj.uid] = (obj.generation, applied.obj.uid, applied.obj.generation)

    def _fail(self, obj: StoredObject, state: ModelsState) -> None:
        failure = self._failed.get(obj.uid)
        if failure is None or failure.state != state:
            _log.warning("model server without a sandbox", object=str(obj.ref), reason=state.reason)
        else:
            state = failure.state
        self._failed[obj.uid] = _Failure(obj.generation, self._clock() + _RETRY_SECONDS, state)

    def open(self, namespace: str, name: str, spec: ModelServerSpec) -> Forwarded:
        """Connect to a server once it is ready; blocks while it starts. Raises ServiceError."""
        sandbox, deadline = sandbox_name(name), self._clock() + spec.lifecycle.startup_deadline_seconds
        with access.acting(None):
            _, end_use = self._awake(namespace, sandbox, deadline)
            try:
                self._ready(namespace, sandbox, deadline)
                return self._forward.open(SANDBOX, namespace, sandbox, spec.port)
            finally:
                end_use()  # the connection is a use of its own

    def _awake(self, namespace: str, sandbox: str, deadline: float) -> tuple[object, Callable[[], None]]:
        """Start its sandbox, and keep it in use until the second result is called."""
        while True:
            passes = self._in_use.passes
            try:
                return self._streams.enter(SANDBOX, namespace, sandbox, lambda container: container)
            except (errors.NotFound, errors.Conflict) as error:
                obj = self._get(namespace, sandbox)
                if obj is not None and self._place.is_elsewhere(obj):
                    host = self._place.host_of(obj)
                    message = f"sandbox `{sandbox}` is on host `{host}`: only sandboxes of that host can use its model"
                    raise errors.ServiceUnavailable(message) from error
                if self._clock() >= deadline or (obj is not None and _needs_someone(obj)):
                    raise errors.ServiceUnavailable(str(error)) from error
            self._in_use.wait(passes, _WAIT_SECONDS)

    def _ready(self, namespace: str, sandbox: str, deadline: float) -> None:
        """Wait until its sandbox is ready."""
        while True:
            passes = self._in_use.passes
            obj = self._objects.get(SANDBOX, namespace, sandbox)
            ready = condition_of(obj)
            if ready.get("status") == "True":
                return
            if self._clock() >= deadline or _needs_someone(obj):
                message = f"sandbox `{sandbox}` is not ready: {ready.get('reason', '')}: {ready.get('message', '')}"
                raise errors.ServiceUnavailable(message)
            self._in_use.wait(passes, _WAIT_SECONDS)

    def _get(self, namespace: str, sandbox: str) -> StoredObject | None:
        try:
            return self._objects.get(SANDBOX, namespace, sandbox)
        except errors.NotFound:
            return None


def _needs_someone(obj: StoredObject) -> bool:
    """Return True if the sandbox will not become ready by itself soon."""
    if obj.deleted_at is not None or obj.spec.get("runState", "Running") != "Running":
        return True
    accepted, degraded = condition_of(obj, "Accepted"), condition_of(obj, "Degraded")
    return accepted.get("status") == "False" or degraded.get("status") == "True"
