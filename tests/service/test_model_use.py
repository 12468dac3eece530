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
from tests.helpers_api import QUICKSTART, ApiStack, make_api
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
def api(tmp_path: Path) -> Iterator[ApiStack]:
    created = make_api(tmp_path)
    created.apply(PROVIDER)
    yield created
    created.store.close()


@pytest.fixture
def use(api: ApiStack) -> ModelUse:
    return ModelUse(api.services.objects, lambda: snapshot_of(api))


def snapshot_of(api: ApiStack) -> Snapshot:
    objects, _ = api.store.list("Sandbox")
    sandboxes = {stored.uid: Sandbox(stored, SandboxSpec.model_validate(stored.spec)) for stored in objects}
    return snapshot_with(api.clock.now(), "an-instance", sandboxes, Observation(blind=""))


def entry(api: ApiStack, name: str, provider: str = "anthropic", **detail: Any) -> AuditEntry:
    sums = {"requests": {"ok": 3, "rejected": 1}, "tokensIn": 100, "tokensOut": 20}
    return AuditEntry(
        api.clock.now(), "paddock", "", "models", "Sandbox", "default", name, detail={"provider": provider, **sums}
    )


def test_users_of_today_are_summed(api: ApiStack, use: ModelUse) -> None:
    audit = use.counted(api.store.audit)
    audit.append([entry(api, "agent"), entry(api, "other"), entry(api, "agent", "smol")])
    audit.append([entry(api, "agent")])
    anthropic, smol = map(as_json, use.every("default"))
    sums = {"namesIt": False, "reachable": "", "requests": 8, "failed": 2, "tokensIn": 200, "tokensOut": 40}
    assert anthropic["users"][0] == {"kind": "Sandbox", "name": "agent", **sums}
    assert [user["name"] for user in anthropic["users"]] == ["agent", "other"]
    assert [user["requests"] for user in smol["users"]] == [4]
    assert len(api.store.audit.entries()) >= 4  # they are in the log as well


def test_tokens_on_the_host_are_users(api: ApiStack, use: ModelUse) -> None:
    by_token = AuditEntry(api.clock.now(), "ci", "", "models", "Provider", "default", "anthropic")
    detail = {"provider": "anthropic", "requests": {"ok": 1}, "tokensIn": 5, "tokensOut": 6}
    use.counted(api.store.audit).append([AuditEntry(**{**_fields(by_token), "detail": detail})])
    assert as_json(use.every("default")[0])["users"][0]["kind"] == "Token"
    assert as_json(use.every("default")[0])["users"][0]["name"] == "ci"


def test_agent_stages_are_users_apart_from_a_sandbox_of_their_runs_name(api: ApiStack, use: ModelUse) -> None:
    of_run = AuditEntry(**{**_fields(entry(api, "agent")), "kind": "WorkflowRun"})
    use.counted(api.store.audit).append([entry(api, "agent"), of_run])
    users = as_json(use.every("default")[0])["users"]
    assert sorted((user["kind"], user["name"], user["requests"]) for user in users) == [
        ("Sandbox", "agent", 4),
        ("WorkflowRun", "agent", 4),
    ]


def _fields(made: AuditEntry) -> dict[str, Any]:
    return {slot: getattr(made, slot) for slot in AuditEntry.__slots__}


def test_budgets_are_of_this_minute_and_day(api: ApiStack, use: ModelUse) -> None:
    now = int(api.clock.now())
    uid = use.every("default")[0].obj.uid
    seconds = {str(now - 100): 50, str(now - 59): 1, str(now): 2, str(now + 1): 4, str(now + 60): 100}
    use.budgets = lambda: {uid: {"seconds": seconds, "day": now // DAY, "tokens": 700}}
    json = as_json(use.every(None)[0])
    assert (json["requestsLastMinute"], json["requestsPerMinute"]) == (7, 60)
    assert (json["tokensToday"], json["tokensPerDay"]) == (700, 1000)
    assert json["resetTime"] == "2023-11-15T00:00:00Z"


def test_midnight_begins_anew(api: ApiStack, use: ModelUse) -> None:
    uid, day = use.every("default")[0].obj.uid, int(api.clock.now() // DAY)
    use.budgets = lambda: {uid: {"seconds": {}, "day": day, "tokens": 700}}
    use.counted(api.store.audit).append([entry(api, "agent")])
    api.clock.advance((day + 1) * DAY - api.clock.now())
    source_use = use.every("default")[0]
    assert (source_use.tokens_today, dict(source_use.users), source_use.since) == (0, {}, api.clock.now())


def test_other_namespaces_are_not_listed(api: ApiStack, use: ModelUse) -> None:
    use.counted(api.store.audit).append([entry(api, "agent")])
    assert use.every("elsewhere") == []
    assert [source_use.obj.name for source_use in use.every(None)] == ["anthropic", "smol"]


def test_sandboxes_that_name_a_source_are_users(api: ApiStack, use: ModelUse) -> None:
    api.apply(QUICKSTART + "  models: [{providerRef: {name: anthropic}}]\n")
    condition = {"type": "ModelsReachable", "status": "False", "reason": "GatewayDown", "message": ""}
    api.change("quickstart", status={"conditions": [condition]})
    anthropic, smol = map(as_json, use.every("default"))
    assert [(user["name"], user["namesIt"], user["reachable"]) for user in anthropic["users"]] == [
        ("quickstart", True, "GatewayDown")
    ]
    assert (smol["users"], smol["models"], anthropic["models"]) == ([], ["smol"], ["*"])
