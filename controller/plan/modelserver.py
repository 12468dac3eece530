"""Statuses of model servers, taken from the sandbox that each owns."""

from collections.abc import Mapping
from typing import Any

from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.meta import Condition
from controller.kinds.modelserver import StoredModelServer
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.provider import READY, condition_of
from controller.plan.common.plan_builder import PlanBuilder
from controller.plan.common.status_json import dated
from controller.plan.sandbox import idle
from controller.policy.modelserver import sandbox_name


def reconcile_model_servers(builder: PlanBuilder) -> None:
    """Add the status of every server whose stored status differs."""
    snapshot = builder.snapshot
    if not snapshot.model_servers:
        return
    owned = owned_sandboxes(snapshot, builder.memo.owned)
    builder.memo.owned = {uid: each.obj.uid for uid, each in owned.items()}
    for uid, each in snapshot.model_servers.items():
        made = _status(each, owned.get(uid), snapshot)
        if made != each.obj.status:
            builder.statuses.append(StatusWrite(each.obj.ref, made))


def owned_sandboxes(snapshot: Snapshot, known: Mapping[str, str] | None = None) -> dict[str, Sandbox]:
    """Return the sandbox of each server, by the server's uid. `known` are those found before: they are looked at first.

    Servers without one are left out.
    """
    found = {
        server: snapshot.sandboxes[uid]
        for server, uid in (known or {}).items()
        if server in snapshot.model_servers and uid in snapshot.sandboxes
    }
    missing = {
        (each.obj.namespace, sandbox_name(each.obj.name)): uid
        for uid, each in snapshot.model_servers.items()
        if uid not in found
    }
    if missing:
        for each in snapshot.sandboxes.values():
            server = missing.get((each.obj.namespace, each.obj.name))
            if server is not None and server in owner_uids(each.obj):
                found[server] = each
    return found


def _status(server: StoredModelServer, box: Sandbox | None, snapshot: Snapshot) -> dict[str, Any]:
    obj = server.obj
    made = {"observedGeneration": obj.generation}
    ready = dated(_ready(server, box, snapshot), condition_of(obj) or None, obj.generation, snapshot.now)
    return {**made, **({"sandbox": box.obj.name} if box else {}), "conditions": [ready]}


def _ready(server: StoredModelServer, box: Sandbox | None, snapshot: Snapshot) -> Condition:
    if server.spec is None:
        return Condition(READY, "False", "Unreadable", "this version can't read its spec; apply it again")
    refused = snapshot.gateway.servers.get(server.obj.uid)
    if refused is not None:
        return Condition(READY, "False", refused.reason, refused.message)
    if box is None:
        return Condition(READY, "False", "Creating", "its sandbox is being created")
    ready = condition_of(box.obj)
    if ready.get("status") == "True":
        return Condition(READY, "True", "Serving", f"in sandbox `{box.obj.name}`")
    reason, message = str(ready.get("reason", "Creating")), str(ready.get("message", ""))
    if reason in idle.REASONS:
        return Condition(READY, "True", "Idle", "it was idle, and is started by the next request")
    return Condition(READY, "False", reason, f"sandbox `{box.obj.name}`: {message}" if message else "")
