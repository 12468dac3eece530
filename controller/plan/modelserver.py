"""Statuses of model servers, taken from the sandbox that each owns."""

from collections.abc import Mapping
from typing import Any

from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.meta import Condition
from controller.kinds.modelserver import StoredModelServer
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.planning.snapshot import DesiredObjects, ModelView, Sandbox
from controller.kinds.provider import READY, condition_of
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.status_json import dated
from controller.plan.sandbox import idle
from controller.policy.modelserver import sandbox_name


def reconcile_model_servers(builder: PlanBuilder) -> None:
    """Add the status of every server whose stored status differs."""
    snapshot = builder.snapshot
    if not snapshot.models.servers:
        return
    owned = owned_sandboxes(snapshot.models, snapshot.desired, builder.memo.owned)
    builder.memo.owned = {uid: sandbox.obj.uid for uid, sandbox in owned.items()}
    for uid, server in snapshot.models.servers.items():
        new_status = _status(server, owned.get(uid), snapshot.models, snapshot.now)
        if new_status != server.obj.status:
            builder.statuses.append(StatusWrite(server.obj.ref, new_status))


def owned_sandboxes(
    models: ModelView, desired: DesiredObjects, known_sandboxes: Mapping[str, str] | None = None
) -> dict[str, Sandbox]:
    """Return the sandbox of each server, by the server's uid. `known_sandboxes` of earlier passes are looked at first.

    Servers without one are left out.
    """
    by_server = {
        server: desired.sandboxes[uid]
        for server, uid in (known_sandboxes or {}).items()
        if server in models.servers and uid in desired.sandboxes
    }
    missing = {
        (stored_server.obj.namespace, sandbox_name(stored_server.obj.name)): uid
        for uid, stored_server in models.servers.items()
        if uid not in by_server
    }
    if missing:
        for sandbox in desired.sandboxes.values():
            server = missing.get((sandbox.obj.namespace, sandbox.obj.name))
            if server is not None and server in owner_uids(sandbox.obj):
                by_server[server] = sandbox
    return by_server


def _status(server: StoredModelServer, sandbox: Sandbox | None, models: ModelView, now: float) -> dict[str, Any]:
    obj = server.obj
    fields = {"observedGeneration": obj.generation}
    ready = dated(_ready(server, sandbox, models), condition_of(obj) or None, obj.generation, now)
    return {**fields, **({"sandbox": sandbox.obj.name} if sandbox else {}), "conditions": [ready]}


def _ready(server: StoredModelServer, sandbox: Sandbox | None, models: ModelView) -> Condition:
    """Return the condition Ready of a server: its gateway's word first, then that of its sandbox."""
    if server.spec is None:
        return Condition(READY, "False", "Unreadable", "this version can't read its spec; apply it again")
    refusal = models.gateway.servers.get(server.obj.uid)
    if refusal is not None:
        return Condition(READY, "False", refusal.reason, refusal.message)
    if sandbox is None:
        return Condition(READY, "False", "Creating", "its sandbox is being created")
    ready = condition_of(sandbox.obj)
    if ready.get("status") == "True":
        return Condition(READY, "True", "Serving", f"in sandbox `{sandbox.obj.name}`")
    reason, message = str(ready.get("reason", "Creating")), str(ready.get("message", ""))
    if reason in idle.REASONS:
        return Condition(READY, "True", "Idle", "it was idle, and is started by the next request")
    return Condition(READY, "False", reason, f"sandbox `{sandbox.obj.name}`: {message}" if message else "")
