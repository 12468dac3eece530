"""MCP servers and the sandboxes of their sessions. Paddock itself makes and removes these, whoever asked for them."""

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from pydantic import ValidationError

from controller.kinds.mcpserver import KIND, SESSION_LABEL, MCPServerSpec, ready_condition
from controller.kinds.meta import Condition, Event, StoredObject, stored_condition
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.kinds.runtime.secret import SecretRef
from controller.kinds.sandbox import KIND as SANDBOX
from controller.plan.base.status_json import dated
from controller.policy.mcpserver import not_installed, runnable, runs_image, session_sandbox
from controller.ports import Clock, Engine, ImageError, Images, Store, StoreError
from controller.ports.fleet import SINGLE, Fleet
from controller.service import errors
from controller.service.access import access
from controller.service.exec.activity import TrackedStream
from controller.service.exec.streams import SandboxStreams
from controller.service.mcp.pools import WarmPools
from controller.service.mcp.server import Server
from controller.service.objects.objects import Objects
from controller.service.objects.write import Write

_WRITTEN_BY = "mcp"
_NAME_LETTERS = 36  # of the server's name in that of a sandbox
_INSTALL_LOOK_SECONDS = 0.2
_log = structlog.get_logger("paddock.mcp")


class McpServers:
    """The use-cases. Every method may raise ServiceError."""

    def __init__(
        self,
        *,
        objects: Objects,
        write: Write,
        store: Store,
        clock: Clock,
        engine: Engine,
        sandbox_streams: SandboxStreams,
        pools: WarmPools,
        images: Images,
        place: Fleet = SINGLE,
    ) -> None:
        self._pools, self._images, self._place = pools, images, place
        self._objects, self._write, self._store, self._clock = objects, write, store, clock
        self._engine, self._streams = engine, sandbox_streams
        self._managed: tuple[int, Sequence[Server]] | None = None  # a revision of the store, and the servers then

    def get(self, namespace: str, name: str) -> Server:
        """Return a server. Raises NotFound; Conflict if its stored spec can't be read."""
        obj = self._objects.get(KIND, namespace, name)
        parsed = _parse(obj)
        if parsed is None:
            raise errors.Conflict(f"mcpserver `{name}`: this version can't read its spec; apply it again")
        return parsed

    def list(self, namespace: str | None = None) -> Sequence[Server]:
        """Return the servers of a namespace (None: of all) that are not being deleted."""
        servers = (_parse(obj) for obj in self._objects.list(KIND, namespace).objects if obj.deleted_at is None)
        return [server for server in servers if server is not None]

    def managed_servers(self) -> Sequence[Server]:
        """Return the servers of all namespaces that this daemon keeps: all, or none if another host's does."""
        if not self.are_kept():
            return ()
        revision = self._objects.revision()  # asked each second; on a daemon at rest nothing was written since
        if self._managed is None or self._managed[0] != revision:
            self._managed = revision, self.list()
        return self._managed[1]

    def are_kept(self) -> bool:
        """Return True if this daemon keeps the servers of all namespaces: one daemon of all hosts does."""
        return self._place.leads()

    def is_here(self, sandbox: StoredObject) -> bool:
        """Return True if the sandbox is on this host."""
        return self._place.is_own(sandbox)

    def unavailable(self) -> str:
        """Return why no server can be started here now; "" if one can."""
        if not self._place.leads():
            return f"MCP servers run on the leading host, and `{self._place.host}` is not; try again in a few seconds"
        return self._engine.observe().blind

    def await_install(self, server: Server) -> Server:
        """Return the server once its package is installed. Blocks for as long as a start may take.

        Raises ServiceUnavailable.
        """
        until = time.monotonic() + server.spec.startup_seconds
        while missing := not_installed(server.spec):
            ready = ready_condition(server.obj)
            if ready.get("reason") == "InstallFailed" and ready.get("observedGeneration") == server.obj.generation:
                raise errors.ServiceUnavailable(f"{server}: InstallFailed: {ready.get('message')}")
            if time.monotonic() >= until:
                raise errors.ServiceUnavailable(f"{server}: Installing: {missing}")
            time.sleep(_INSTALL_LOOK_SECONDS)
            with access.acting(None):
                server = self.get(server.obj.namespace, server.obj.name)
        return server

    def create_sandbox(self, server: Server) -> StoredObject:
        """Create the sandbox of a new session."""
        session = secrets.token_hex(6)
        name = f"{server.obj.name[:_NAME_LETTERS].rstrip('-')}-{session}"
        with access.acting(None):
            pooled = self._pools.is_usable(server)
            document = session_sandbox(server.obj.name, server.spec, name=name, session=session, pooled=pooled)
            body = json.dumps(document)
            return self._write.create(SANDBOX, server.obj.namespace, body, written_by=_WRITTEN_BY)

    def keep_pool(self, server: Server) -> None:
        """Make the pool of the server's warm sandboxes as its spec asks, or remove it. Raises ServiceError."""
        self._pools.keep(server)

    def is_waiting_for_quota(self, sandbox: StoredObject) -> bool:
        """Return True if the sandbox waits for a quota's or the host's memory."""
        with access.acting(None):
            try:
                stored = self._objects.get(SANDBOX, sandbox.namespace, sandbox.name)
            except errors.NotFound:
                return False
        return stored_condition(stored, "Scheduled").get("reason") == "QuotaExceeded"

    def sessions_left(self, sandboxes: Iterable[StoredObject]) -> int:
        """Return how many of these are still stored: their containers may be there."""
        stored_sandboxes = self._objects.list(SANDBOX, None, labels=SESSION_LABEL).objects
        return len({stored.uid for stored in stored_sandboxes} & {sandbox.uid for sandbox in sandboxes})

    def secret_values(self, server: Server) -> Sequence[str]:
        """Return the values of the server's secrets. Raises BadRequest for an unusable one."""
        references = {secret.env: SecretRef(secret.name) for secret in server.spec.secrets}
        return list(self._streams.environment(server.obj.namespace, references).values())

    def start(self, server: Server, sandbox: StoredObject, stdin: Iterable[bytes]) -> TrackedStream:
        """Run the server's program in the sandbox, once that runs. Blocks. Raises StreamError, too."""
        spec = server.spec
        env: dict[str, str | SecretRef] = {variable.name: variable.value for variable in spec.env}
        env |= {secret.env: SecretRef(secret.name) for secret in spec.secrets}
        with access.acting(None):
            command, folder = self._program(spec)
            options: dict[str, Any] = {"env": env, "stdin": stdin, "timeout_seconds": 0, "working_dir": folder}
            return self._streams.exec(SANDBOX, sandbox.namespace, sandbox.name, command, **options)()

    def _program(self, spec: MCPServerSpec) -> tuple[Sequence[str], str]:
        """Return the server's command line, and the folder to start it in; "": the sandbox's."""
        if not runs_image(spec):
            return (spec.command, *spec.args), ""
        try:
            image = self._images.find(spec.image or "")
        except ImageError as error:
            raise errors.ServiceUnavailable(str(error)) from error
        if image is None:
            raise errors.ServiceUnavailable(f"image {spec.image}: it is no longer on this host; pull or build it")
        program = image.program(spec.args)
        if not program:
            raise errors.Conflict(f"image {spec.image}: it names no program; write `command:`")
        return program, spec.working_dir or image.working_dir

    def remove_sandbox(self, sandbox: StoredObject) -> None:
        """Delete the sandbox of a session; no error if it is gone."""
        with access.acting(None):
            try:
                self._objects.delete(SANDBOX, sandbox.namespace, sandbox.name, deleted_by=_WRITTEN_BY)
            except errors.NotFound:
                return

    def remove_sessions(self) -> int:
        """Delete the sandboxes of all sessions; no session outlives its daemon. Return their number."""
        with errors.translate_store_errors(), self._store.transaction() as transaction:
            owned_objects = transaction.owned()  # by its index: few of thousands of sandboxes are a session's
        sessions = [obj for obj in owned_objects if obj.deleted_at is None and _is_session(obj) and self.is_here(obj)]
        for sandbox in sessions:
            self.remove_sandbox(sandbox)
        return len(sessions)

    def stored(self, server: Server) -> StoredObject:
        """Return the server as it is stored now; as it was known, if it is gone."""
        with errors.translate_store_errors():
            current = self._store.get(KIND.name, server.obj.namespace, server.obj.name)
        return server.obj if current is None or current.uid != server.obj.uid else current

    def report(
        self, server: Server, condition: Condition, fields: Mapping[str, Any] | None = None, *, quiet: bool = False
    ) -> None:
        """Store a condition of a server, with an event if its reason is new, and a warning in the log if not `quiet`.

        A failing store is only logged.
        """
        try:
            current = self._store.get(KIND.name, server.obj.namespace, server.obj.name)
            if current is None or current.uid != server.obj.uid:
                return
            prior, now = stored_condition(current, condition.type), self._clock.now()
            dated_condition = dated(condition, prior or None, server.obj.generation, now)
            other_conditions = [
                stored for stored in current.status.get("conditions", ()) if stored.get("type") != condition.type
            ]
            both = sorted(
                [*other_conditions, dated_condition], key=lambda entry: str(entry.get("type"))
            )  # Ready is the first
            status = {**current.status, **(fields or {}), "conditions": both}
            events: tuple[Event, ...] = ()
            if condition.status == "False" and (prior.get("reason"), prior.get("message")) != (
                condition.reason,
                condition.message,
            ):
                is_asked = condition.reason in ("Disabled", "Installing")
                event = Event(
                    current.ref, "Normal" if is_asked else "Warning", condition.reason, condition.message, now
                )
                events = (event,)
                if not quiet and not is_asked:
                    _log.warning("mcp server not ready", object=str(current.ref), reason=condition.reason)
            elif condition.status == "True" and prior.get("reason", condition.reason) != condition.reason:
                events = (Event(current.ref, "Normal", condition.reason, condition.message, now),)
            self._store.record(Writes(statuses=(StatusWrite(current.ref, status),), events=events))
        except StoreError as error:
            _log.warning("status write failed", object=str(server.obj.ref), error=str(error))


def _parse(obj: StoredObject) -> Server | None:
    try:
        return Server(obj, runnable(MCPServerSpec.model_validate(obj.spec), obj.status))
    except ValidationError:
        return None


def _is_session(obj: StoredObject) -> bool:
    if obj.kind != SANDBOX.name or SESSION_LABEL not in obj.labels:
        return False
    return any(reference.get("kind") == KIND.name for reference in obj.owner_references)
