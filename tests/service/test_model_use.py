"""Use of models: budgets as the gateway counts them, and sums of each sandbox of today."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.access.audit import AuditEntry
from controller.kinds.observed.observed import Observation
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.sandbox import SandboxSpec
from controller.service.models.use import ModelUse, as_json
from tests.helpers_api import QUICKSTART, World, make_world
from tests.snapshots import snapshot_with

PROVIDER = """\
apiVersion: paddock/v1alpha1
kind: Provider
metadata: {name: anthropic}
spec:
  type: Anthropic
  url: https://api.example.com
  limits: {requestsPerMinute: 60, tokensPerDay: 1000}
---
apiVersion: paddock/v1alpha1
kind: ModelServer
metadata: {name: smol}
spec: {template: {image: "paddock/base:1"}}
"""
DAY = 86_400


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    created = make_world(tmp_path)
    created.apply(PROVIDER)
    yield created
    created.store.close()


@pytest.fixture
def use(world: World) -> ModelUse:
    return ModelUse(world.services.objects, lambda: snapshot_of(world))


def snapshot_of(world: World) -> Snapshot:
    objects, _ = world.store.list("Sandbox")
    sandboxes = {stored.uid: Sandbox(stored, SandboxSpec.model_validate(stored.spec)) for stored in objects}
    return snapshot_with(world.clock.now(), "an-instance", sandboxes, Observation(blind=""))


def entry(world: World, name: str, provider: str = "anthropic", **detail: Any) -> AuditEntry:
    sums = {"requests": {"ok": 3, "rejected": 1}, "tokensIn": 100, "tokensOut": 20}
    return AuditEntry(
        world.clock.now(), "paddock", "", "models", "Sandbox", "default", name, detail={"provider": provider, **sums}
    )


def test_users_of_today_are_summed(world: World, use: ModelUse) -> None:
    audit = use.counted(world.store.audit)
    audit.append([entry(world, "agent"), entry(world, "other"), entry(world, "agent", "smol")])
    audit.append([entry(world, "agent")])
    anthropic, smol = map(as_json, use.every("default"))
    sums = {"namesIt": False, "reachable": "", "requests": 8, "failed": 2, "tokensIn": 200, "tokensOut": 40}
    assert anthropic["users"][0] == {"kind": "Sandbox", "name": "agent", **sums}
    assert [user["name"] for user in anthropic["users"]] == ["agent", "other"]
    assert [user["requests"] for user in smol["users"]] == [4]
    assert len(world.store.audit.entries()) >= 4  # they are in the log as well


def test_tokens_on_the_host_are_users(world: World, use: ModelUse) -> None:
    by_token = AuditEntry(world.clock.now(), "ci", "", "models", "Provider", "default", "anthropic")
    detail = {"provider": "anthropic", "requests": {"ok": 1}, "tokensIn": 5, "tokensOut": 6}
    use.counted(world.store.audit).append([AuditEntry(**{**_fields(by_token), "detail": detail})])
    assert as_json(use.every("default")[0])["users"][0]["kind"] == "Token"
    assert as_json(use.every("default")[0])["users"][0]["name"] == "ci"


def test_agent_stages_are_users_apart_from_a_sandbox_of_their_runs_name(world: World, use: ModelUse) -> None:
    of_run = AuditEntry(**{**_fields(entry(world, "agent")), "kind": "WorkflowRun"})
    use.counted(world.store.audit).append([entry(world, "agent"), of_run])
    users = as_json(use.every("default")[0])["users"]
    assert sorted((user["kind"], user["name"], user["requests"]) for user in users) == [
        ("Sandbox", "agent", 4),
        ("WorkflowRun", "agent", 4),
    ]


def _fields(made: AuditEntry) -> dict[str, Any]:
    return {slot: getattr(made, slot) for slot in AuditEntry.__slots__}


def test_budgets_are_of_this_minute_and_day(world: World, use: ModelUse) -> None:
    now = int(world.clock.now())
    uid = use.every("default")[0].obj.uid
    seconds = {str(now - 100): 50, str(now - 59): 1, str(now): 2, str(now + 1): 4, str(now + 60): 100}
    use.budgets = lambda: {uid: {"seconds": seconds, "day": now // DAY, "tokens": 700}}
    json = as_json(use.every(None)[0])
    assert (json["requestsLastMinute"], json["requestsPerMinute"]) == (7, 60)
    assert (json["tokensToday"], json["tokensPerDay"]) == (700, 1000)
    assert json["resetTime"] == "2023-11-15T00:00:00Z"


def test_midnight_begins_anew(world: World, use: ModelUse) -> None:
    uid, day = use.every("default")[0].obj.uid, int(world.clock.now() // DAY)
    use.budgets = lambda: {uid: {"seconds": {}, "day": day, "tokens": 700}}
    use.counted(world.store.audit).append([entry(world, "agent")])
    world.clock.advance((day + 1) * DAY - world.clock.now())
    source_use = use.every("default")[0]
    assert (source_use.tokens_today, dict(source_use.users), source_use.since) == (0, {}, world.clock.now())


def test_other_namespaces_are_not_listed(world: World, use: ModelUse) -> None:
    use.counted(world.store.audit).append([entry(world, "agent")])
    assert use.every("elsewhere") == []
    assert [source_use.obj.name for source_use in use.every(None)] == ["anthropic", "smol"]


def test_sandboxes_that_name_a_source_are_users(world: World, use: ModelUse) -> None:
    world.apply(QUICKSTART + "  models: [{providerRef: {name: anthropic}}]\n")
    condition = {"type": "ModelsReachable", "status": "False", "reason": "GatewayDown", "message": ""}
    world.change("quickstart", status={"conditions": [condition]})
    anthropic, smol = map(as_json, use.every("default"))
    assert [(user["name"], user["namesIt"], user["reachable"]) for user in anthropic["users"]] == [
        ("quickstart", True, "GatewayDown")
    ]
    assert (smol["users"], smol["models"], anthropic["models"]) == ([], ["smol"], ["*"])
