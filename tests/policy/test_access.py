"""Authorization: the whole table by role, and the bounds of grants."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kinds.access.access import ROLES, AccessRequest, Caller, Grant
from controller.kinds.meta import StoredObject
from controller.kinds.registry import discover
from controller.kinds.sandbox import ResourceLimits
from controller.kinds.securityprofile import stored_profile
from controller.policy.access import decide, decide_server, decide_tool, refusals
from controller.policy.levels.levels import Policy
from controller.policy.profiles import with_profiles

PLACES = ("team-a", "team-b", "", None)
ASKS = [
    AccessRequest(verb, kind, place, name, sub)
    for verb in ("get", "list", "create", "update", "delete", "use")
    for kind in ("Sandbox", "SandboxTemplate", "Quota", "SecurityProfile", "Unheard")
    for place in PLACES
    for name in ("", "box")
    for sub in ("", "logs", "exec", "unheard")
]


def caller(*grants: Grant) -> Caller:
    return Caller("token t", "", grants)


def granted(role: str, *namespaces: str, **bounds: Any) -> Caller:
    return caller(Grant.model_validate({"role": role, "namespaces": namespaces or ("*",), **bounds}))


def may(who: Caller, verb: str, kind: str, namespace: str | None, sub: str = "") -> bool:
    return decide(who, AccessRequest(verb, kind, namespace, "box", sub)).allowed  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verb", "kind", "sub", "least"),
    [
        ("get", "Sandbox", "", "viewer"),
        ("list", "Event", "", "viewer"),
        ("get", "Sandbox", "logs", "viewer"),
        ("get", "Sandbox", "why", "viewer"),
        ("use", "Sandbox", "exec", "user"),
        ("get", "Sandbox", "files", "user"),
        ("create", "Sandbox", "", "user"),
        ("delete", "Sandbox", "", "user"),
        ("get", "SandboxSnapshot", "", "viewer"),
        ("get", "SandboxSnapshot", "archive", "user"),
        ("create", "SandboxSnapshot", "", "user"),
        ("create", "SandboxSnapshot", "archive", "user"),
        ("use", "Sandbox", "fork", "user"),
        ("use", "Sandbox", "rollback", "user"),
        ("update", "SandboxTemplate", "", "operator"),
        ("create", "SandboxPool", "", "operator"),
        ("create", "Unheard", "", "operator"),
        ("update", "Quota", "", "admin"),
    ],
)
def test_each_role_and_none_below_it(verb: str, kind: str, sub: str, least: str) -> None:
    for role in ROLES:
        is_allowed = ROLES.index(role) >= ROLES.index(least)  # type: ignore[arg-type]
        assert may(granted(role, "team-a"), verb, kind, "team-a", sub) is is_allowed
        assert not may(granted(role, "team-a"), verb, kind, "team-b", sub)


def test_host_objects_are_read_by_all_written_by_admins() -> None:
    assert may(granted("viewer", "team-a"), "get", "HostQuota", "")
    assert not may(granted("admin", "team-a"), "update", "HostQuota", "")
    assert not may(granted("operator"), "update", "HostQuota", "")
    assert may(granted("admin"), "update", "HostQuota", "")


def test_admin_requests_need_a_global_admin() -> None:
    assert not decide(granted("admin", "team-a", "team-*"), AccessRequest("admin")).allowed
    assert not decide(granted("operator"), AccessRequest("admin")).allowed
    assert decide(granted("admin"), AccessRequest("admin")).allowed


def test_all_namespaces_need_a_global_grant() -> None:
    decision = decide(granted("admin", "team-a"), AccessRequest("list", "Sandbox", None))
    assert not decision.allowed
    assert "name one that you may read" in decision.reason
    assert decide(granted("viewer"), AccessRequest("list", "Sandbox", None)).allowed


@pytest.mark.parametrize("place", ["team", "team-", "xteam-a", "TEAM-a", "team-a ", "other"])
def test_a_pattern_matches_whole_parts_of_a_name(place: str) -> None:
    assert may(granted("viewer", "team-*"), "get", "Sandbox", "team-a")
    assert may(granted("viewer", "team-*"), "get", "Sandbox", place) is (place in ("team-", "team-a "))
    assert not may(granted("viewer", "team-a"), "get", "Sandbox", place)


@pytest.mark.parametrize("pattern", ["team*", "*a", "**", "", "Team-a", "team-a,team-b", "../x", "a" * 53])
def test_a_misleading_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="namespaces"):
        granted("viewer", pattern)


@pytest.mark.parametrize("who", [caller(), granted("admin", "elsewhere")], ids=["none", "elsewhere"])
def test_without_a_grant_everything_is_hidden(who: Caller) -> None:
    for ask in ASKS:
        decision = decide(who, ask)
        host_read = bool(who.grants) and ask.namespace == "" and ask.verb in ("get", "list")
        host_read = host_read and ask.sub in ("", "logs")
        assert decision.allowed is host_read, ask
        assert decision.hidden is not host_read, ask


@given(st.sampled_from(ASKS), st.sampled_from(["team-a", "team-*", "*"]))
def test_a_higher_role_never_may_less(ask: AccessRequest, place: str) -> None:
    verdicts = [decide(granted(role, place), ask).allowed for role in ROLES]
    assert verdicts == sorted(verdicts)


@given(st.sampled_from(ASKS), st.sampled_from(ROLES), st.sampled_from(ROLES))
def test_a_second_grant_never_takes_away(ask: AccessRequest, first_role: str, second_role: str) -> None:
    first = Grant.model_validate({"role": first_role, "namespaces": ("team-a",)})
    second = Grant.model_validate({"role": second_role, "namespaces": ("team-b",)})
    either = decide(caller(first), ask).allowed or decide(caller(second), ask).allowed
    assert decide(caller(first, second), ask).allowed is either


def refused_fields(who: Caller, spec: dict[str, Any], kind: str = "Sandbox", namespace: str = "team-a") -> list[str]:
    kind_ = discover().by_name(kind)
    assert kind_ is not None
    return [refusal.field for refusal in refusals(who, kind_, kind_.spec.model_validate(spec), namespace, Policy())]


def sandbox(image: str = "paddock/python:1", **spec: Any) -> dict[str, Any]:
    return {"template": {"image": image}, **spec}


_PINNED = "paddock/python@sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("pattern", "image", "is_allowed"),
    [
        ("paddock/python:1", "paddock/python:1", True),
        ("paddock/python:1", "paddock/python:10", False),
        ("paddock/python:1", "evil/paddock/python:1", False),
        ("paddock/*", "paddock/python:1", True),
        ("paddock/*", "paddock/", False),
        ("paddock/*", "paddockevil/python", False),
        ("python:*", "python:3", True),
        ("python:*", "python:5000/evil:1", False),  # a registry called python
        ("python@*", "python@sha256:" + "0" * 64, True),
        ("r.example.org:5000/*", "r.example.org:5000/a/b:1", True),
        ("*", "anything:1", True),
    ],
)
def test_images_by_pattern(pattern: str, image: str, is_allowed: bool) -> None:
    who = granted("user", "team-a", images=(pattern,))
    assert refused_fields(who, sandbox(image)) == ([] if is_allowed else ["spec.template.image"])


@pytest.mark.parametrize("pattern", ["paddock*", "*python", "a/*/b", "pad dock/x"])
def test_an_image_pattern_that_ends_amid_a_word_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="images"):
        granted("user", images=(pattern,))


def test_a_digest_can_be_asked_for() -> None:
    who = granted("user", "team-a", requireDigest=True)
    assert refused_fields(who, sandbox()) == ["spec.template.image"]
    assert refused_fields(who, sandbox(_PINNED[:-1])) == ["spec.template.image"]
    assert refused_fields(who, sandbox(_PINNED)) == []


def test_levels_count_whether_they_are_written_or_the_default() -> None:
    who = granted("user", "team-a", levels=("development",))
    assert refused_fields(who, sandbox()) == ["spec.template.securityLevel"]
    assert refused_fields(who, {"template": {"image": "a", "securityLevel": "development"}}) == []


def test_bounds_apply_to_operator_profiles() -> None:
    spec = {"base": "development", "defaultLimits": {"memory": "2Gi", "pids": 16}}
    profile = stored_profile(StoredObject("SecurityProfile", "", "ci", "u", spec))
    policy, kind = with_profiles(Policy(), [profile]), discover().by_name("Sandbox")
    assert kind is not None
    request = kind.spec.model_validate({"template": {"image": "a", "securityLevel": "ci"}})
    for bounds, beyond in (
        ({"levels": ("development",)}, ["spec.template.securityLevel"]),
        ({"levels": ("ci",)}, []),
        ({"limits": {"memory": "1Gi", "pids": 16}}, ["spec.resources.limits.memory"]),
        ({"limits": {"memory": "2Gi"}}, []),
    ):
        who = granted("user", "team-a", **bounds)
        assert [refusal.field for refusal in refusals(who, kind, request, "team-a", policy)] == beyond
    assert refused_fields(who, spec, "SecurityProfile") == ["metadata.namespace"], (
        "profiles are the host's: an admin's to write"
    )


def test_limits_hold_for_defaults_too() -> None:
    who = granted("user", "team-a", limits={"cpu": "500m", "memory": "256Mi"})
    assert refused_fields(who, sandbox()) == ["spec.resources.limits.cpu", "spec.resources.limits.memory"]
    limits = {"limits": {"cpu": "500m", "memory": "256Mi"}}
    assert refused_fields(who, sandbox(resources=limits)) == []
    # What a stored template would fill in is not known here.
    assert len(refused_fields(who, {"templateRef": {"name": "python"}})) == 2
    assert refused_fields(who, {"templateRef": {"name": "python"}, "resources": limits}) == []


@pytest.mark.parametrize(
    ("bound", "within", "beyond"),
    [
        ({"cpu": "500m"}, "500m", "501m"),
        ({"memory": "256Mi"}, "256Mi", "257Mi"),
        ({"pids": 32}, 32, 33),
        ({"disk": "1Gi"}, "1Gi", "2Gi"),
        ({"gpus": 0}, 0, 1),
    ],
    ids=lambda value: str(value),
)
def test_each_limit_that_a_grant_can_name_is_kept(bound: dict[str, Any], within: Any, beyond: Any) -> None:
    who = granted("user", "team-a", limits=bound)
    (name,) = bound
    field = f"spec.resources.limits.{name}"
    assert refused_fields(who, sandbox(resources={"limits": {name: beyond}})) == [field]
    assert refused_fields(who, {"template": {"image": "a", "resources": {"limits": {name: beyond}}}}) == [field]
    assert refused_fields(who, sandbox(resources={"limits": {name: within}})) == []
    assert refused_fields(who, {"templateRef": {"name": "python"}}) == [field]
    assert refused_fields(who, {"templateRef": {"name": "python"}, "resources": {"limits": {name: within}}}) == []


def test_every_limit_of_a_sandbox_can_be_bounded() -> None:
    bounds: dict[str, Any] = {"cpu": 1, "memory": "1Gi", "pids": 1, "disk": 0, "gpus": 0}
    assert set(bounds) == set(ResourceLimits.model_fields)
    for name, most in bounds.items():
        assert Grant.model_validate({"role": "user", "limits": {name: most}}).bounded


def test_named_gpus_count_for_a_bound() -> None:
    grant = granted("user", "team-a", limits={"gpus": 1})
    with_devices = sandbox(resources={"gpuDeviceIds": ["0", "1"]})
    assert refused_fields(grant, with_devices) == ["spec.resources.limits.gpus"]


def test_no_disk_and_no_gpus_are_within_any_bound_of_them() -> None:
    assert refused_fields(granted("user", "team-a", limits={"disk": "1Gi", "gpus": 0}), sandbox()) == []


def pooled(**fields: Any) -> dict[str, Any]:
    return {"templateRef": {"name": "python"}, **fields}


@pytest.mark.parametrize(
    ("bounds", "shares", "priority"),
    [
        ({"limits": {"pids": 4096}}, 1024, 0),
        ({"images": ("*",)}, 1024, 0),
        ({"cpuShares": 2048}, 2048, 0),
        ({"priority": 10}, 1024, 10),
        ({"cpuShares": 2, "priority": -5}, 2, -5),
    ],
    ids=str,
)
def test_a_grant_with_bounds_bounds_weight_and_priority(bounds: dict[str, Any], shares: int, priority: int) -> None:
    who, place = granted("operator", "team-a", **bounds), {"priority": priority}
    assert refused_fields(who, sandbox(resources={"cpuShares": shares}, **place)) == []
    assert refused_fields(who, sandbox(resources={"cpuShares": shares + 1}, **place)) == ["spec.resources.cpuShares"]
    inline = {"template": {"image": "a:1", "resources": {"cpuShares": shares + 1}}, **place}
    assert refused_fields(who, inline) == ["spec.template.resources.cpuShares"]
    assert refused_fields(who, sandbox(priority=priority + 1)) == ["spec.priority"]
    template = {"image": "a:1", "resources": {"cpuShares": shares + 1}}
    assert refused_fields(who, template, "SandboxTemplate") == ["spec.resources.cpuShares"]
    assert refused_fields(who, pooled(priority=priority + 1), "SandboxPool") == ["spec.priority"]
    assert refused_fields(who, pooled(priority=priority), "SandboxPool") == []


def test_a_grant_without_bounds_bounds_neither() -> None:
    assert refused_fields(granted("user", "team-a"), sandbox(resources={"cpuShares": 262144}, priority=1_000_000)) == []


def test_one_grant_has_to_allow_all_of_it() -> None:
    images = Grant.model_validate({"role": "user", "namespaces": ("team-a",), "images": ("a:1",)})
    levels = Grant.model_validate({"role": "user", "namespaces": ("team-a",), "levels": ("development",)})
    assert refused_fields(caller(images, levels), sandbox("b:1")) != []
    assert refused_fields(caller(images, levels), sandbox("a:1")) == []


def test_grants_elsewhere_and_lower_roles_do_not_count() -> None:
    wide = Grant.model_validate({"role": "viewer", "namespaces": ("team-a",)})
    narrow = Grant.model_validate({"role": "user", "namespaces": ("team-a",), "images": ("a:1",)})
    second = Grant.model_validate({"role": "admin", "namespaces": ("team-b",)})
    assert refused_fields(caller(wide, narrow, second), sandbox("b:1")) == ["spec.template.image"]
    assert refused_fields(caller(wide, second), sandbox("b:1")) == ["metadata.namespace"]


def test_a_bounded_grant_writes_only_kinds_whose_bounds_are_known() -> None:
    who = granted("admin", images=("a:1",))
    assert refused_fields(who, {"hard": {"cpu": "1"}}, "Quota") == ["kind"]
    assert refused_fields(who, {"image": "b:1"}, "SandboxTemplate") == ["spec.image"]
    assert refused_fields(who, {"templateRef": {"name": "x"}}, "SandboxPool") == []


def test_a_grant_with_tools_counts_for_these_tools_only() -> None:
    limited = granted("admin", tools=["docker.file.*", "sandbox.get"])
    assert not any(decide(limited, ask).allowed for ask in ASKS)
    through = replace(limited, tool="docker.file.write")
    assert may(through, "use", "Sandbox", "team-a", "files")
    assert not may(replace(limited, tool="docker.container.exec"), "use", "Sandbox", "team-a", "exec")
    both = caller(*limited.grants, Grant(role="viewer"))
    assert may(both, "get", "Sandbox", "team-a")
    assert not may(both, "use", "Sandbox", "team-a", "files")
    assert decide(limited, AccessRequest("self")).allowed
    decision = decide(limited, AccessRequest("get", "Sandbox", "team-a", "box"))
    assert (decision.hidden, "may only call MCP tools (docker.file.*, sandbox.get)" in decision.reason) == (False, True)


@pytest.mark.parametrize(
    ("pattern", "tool", "is_allowed"),
    [
        ("docker.container.exec", "docker.container.exec", True),
        ("docker.container.exec", "docker.container.execs", False),
        ("docker.*", "docker.container.exec", True),
        ("*.list", "docker.volume.list", True),
        ("*.list", "docker.volume.list.all", False),
        ("docker.*.list", "docker.volume.list", True),
        ("docker.file", "docker.file.read", False),
        ("docker?file.*", "docker.file.read", False),
        ("docker.file*file.read", "docker.file.read", False),
        ("*.file.*.read", "docker.file.read", False),
        ("docker**read", "docker.file.read", True),
        ("*" * 200 + "Z", "docker.container.exec", False),
        ("*e" * 90 + "*Z", "e" * 100, False),
    ],
)
def test_patterns_of_tools_are_whole_names(pattern: str, tool: str, is_allowed: bool) -> None:
    grant = Grant.model_construct(role="user", namespaces=("*",), tools=(pattern,))
    assert decide_tool(caller(grant), tool, "user").allowed == is_allowed


@pytest.mark.parametrize(
    ("pattern", "tool", "is_allowed"),
    [
        ("files.read", "files.read", True),
        ("files.*", "files.a/b.c", True),
        ("files.read", "files.write", False),
        ("files*", "files.read", False),
        ("*.read", "files.read", False),
        ("*", "files.read", False),
        ("files.*", "files-2.read", False),
    ],
)
def test_patterns_of_server_tools_name_the_server(pattern: str, tool: str, is_allowed: bool) -> None:
    limited = granted("user", tools=[pattern])
    ask = AccessRequest("use", "MCPServer", "team-a", tool.partition(".")[0], "mcp")
    assert decide(replace(limited, tool=tool), ask).allowed == is_allowed
    assert not decide(limited, ask).allowed
    assert decide_server(limited, ask).allowed == (pattern.startswith("files.") and ask.name == "files")
    assert decide_server(granted("user"), ask).allowed
    assert not decide_server(granted("viewer", tools=[pattern]), ask).allowed


def test_a_tool_needs_its_role_in_some_grant() -> None:
    assert decide_tool(granted("viewer"), "sandbox.get", "viewer").allowed
    decision = decide_tool(granted("viewer"), "docker.container.exec", "user")
    assert (decision.allowed, "needs the role user" in decision.reason) == (False, True)
