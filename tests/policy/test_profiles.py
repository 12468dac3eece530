"""An operator's own profiles: tighter than their base in anything, wider only where policy grants it."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.meta import StoredObject
from controller.kinds.runtime.package_hosts import PackageHosts
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.securityprofile import BUILT_IN_NAMES, ProfileGrants, SecurityProfileSpec, stored_profile
from controller.policy.levels.levels import BUILT_IN, Level, Policy
from controller.policy.levels.order import wider
from controller.policy.levels.package_hosts import with_packages
from controller.policy.profiles import default_limits, loosened, refusals, with_profiles
from controller.policy.sandbox import admit, render
from tests.policy.test_order import LIMITS, NETWORKS, OFFERED, TEMPLATES, some, widest


def policy(grants: ProfileGrants | None = None, **specs: dict[str, Any]) -> Policy:
    """A policy with profiles of these specs."""
    stored = [StoredObject("SecurityProfile", "", name, f"uid-{name}", spec) for name, spec in specs.items()]
    return with_profiles(Policy(levels=OFFERED, grants=grants or ProfileGrants()), map(stored_profile, stored))


@st.composite
def merged(draw: st.DrawFn, *parts: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for search_strategy in parts for key, value in draw(search_strategy).items()}


NAMES = st.lists(st.sampled_from(["CHOWN", "SETUID", "NET_BIND_SERVICE", "NET_RAW", "SYS_ADMIN"]), unique=True)
MODES = ("none", "sealed", "public")
NARROWING = (
    st.one_of(st.just({}), NAMES.map(lambda found: {"capabilities": found})),
    some("noNewPrivileges", True, False),
    some("readOnlyRootFilesystem", True, False),
    some("seccompProfile", "minimal", "standard", "log-only"),
    some("network", *({"mode": mode} for mode in MODES)),
)
PEERS = some("network", *({"mode": mode, "peers": peers} for mode in MODES for peers in (True, False)))
FOLDERS = st.lists(
    st.builds(
        lambda path, size, noexec: {"mountPath": path, "size": size, "noexec": noexec},
        st.sampled_from(["/tmp", "/workspace", "/data", "/proc/x"]),
        st.sampled_from(["8Mi", "300Mi"]),
        st.booleans(),
    ),
    max_size=3,
)
PROFILES = merged(
    some("base", *BUILT_IN_NAMES).map(lambda found: {"base": "full-isolation", **found}),
    *NARROWING,
    PEERS,
    some("lowestUserID", 0, 1, 1000, 10_000, 30_000),
    some("readOnlyHostFolders", True, False),
    some("defaultUser", "", "0:0", "1000:1000", "20000", "20000:20000", "40000:40000"),
    FOLDERS.map(lambda found: {"tmpfs": found}),
    LIMITS.map(lambda found: {"defaultLimits": found}),
    LIMITS.map(lambda found: {"maxLimits": found}),
)
GRANTS = merged(
    NAMES.map(lambda found: {"capabilities": found}),
    some("seccompProfile", "standard", "log-only"),
    some("network", "sealed", "public"),
    some("lowestUserID", 0, 1000, 20_000),
    some("writableRoot", True),
    some("newPrivileges", True),
    some("writableHostFolders", True),
    LIMITS.map(lambda found: {"limits": found}),
)
SECURITY = merged(*NARROWING, some("runAsNonRoot", True, False))


@given(PROFILES, GRANTS, TEMPLATES, SECURITY, LIMITS, NETWORKS)
def test_no_profile_exceeds_its_base_and_grants(
    profile: dict[str, Any],
    grants: dict[str, Any],
    template: dict[str, Any],
    security: dict[str, Any],
    limits: dict[str, Any],
    network: dict[str, Any],
) -> None:
    permitted = policy(ProfileGrants.model_validate(grants), own=profile)
    document = {"template": {**template, "securityLevel": "own", "security": security}, "resources": {"limits": limits}}
    spec = SandboxSpec.model_validate({**document, **network})
    if admit(spec, permitted):
        return
    assert spec.template is not None
    config = render(spec, spec.template, name="a", uid="a", policy=permitted).config
    bound = loosened(OFFERED[profile["base"]], permitted.grants)
    assert wider(config, widest(bound, Policy(levels={bound.name: bound}))) == ()


@pytest.mark.parametrize("level", OFFERED.values(), ids=lambda level: level.name)
def test_without_grants_nothing_is_loosened(level: Level) -> None:
    assert loosened(level, ProfileGrants()) == level


def test_the_names_that_are_built_in_are_those_of_the_levels() -> None:
    assert set(BUILT_IN_NAMES) == set(BUILT_IN)


def hosts(mode: str, *names: str) -> dict[str, Any]:
    return {"base": "build", "network": {"mode": mode, "allowedHosts": list(names)}}


def folder(path: str, size: str, **flags: bool) -> dict[str, Any]:
    return {"base": "full-isolation", "tmpfs": [{"mountPath": path, "size": size, **flags}]}


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"base": "own"}, "base", "`own` is not a built-in profile; choose one of build, development, full-isolation"),
        ({"base": "development", "capabilities": ["NET_RAW"]}, "capabilities[0]", "CHOWN, SETGID, SETUID; policy may"),
        ({"base": "development", "capabilities": ["CHOWN", "CHOWN"]}, "capabilities[1]", "listed twice"),
        ({"base": "development", "noNewPrivileges": False}, "noNewPrivileges", "profile_grants in the settings"),
        ({"base": "full-isolation", "readOnlyRootFilesystem": False}, "readOnlyRootFilesystem", "profile_grants"),
        ({"base": "full-isolation", "seccompProfile": "standard"}, "seccompProfile", "minimal; policy may grant it"),
        ({"base": "full-isolation", "network": {"mode": "sealed"}}, "network.mode", "none; policy may grant it"),
        ({"base": "full-isolation", "lowestUserID": 0}, "lowestUserID", "0 is lower than full-isolation allows"),
        ({"base": "full-isolation", "readOnlyHostFolders": False}, "readOnlyHostFolders", "policy may grant it"),
        ({"base": "development", "readOnlyHostFolders": True}, None, ""),
        ({"base": "full-isolation", "defaultUser": ""}, None, ""),
        ({"base": "full-isolation", "defaultUser": "20000"}, "defaultUser", "name a `defaultUser: uid:gid` from"),
        ({"base": "development", "lowestUserID": 30000}, "lowestUserID", "the default user is 20000:20000"),
        ({"base": "development", "maxLimits": {"memory": "9Gi"}}, "maxLimits.memory", "9Gi is more than"),
        ({"base": "development", "defaultLimits": {"memory": "9Gi"}}, "defaultLimits.memory", "the maximum, 8Gi"),
        (hosts("sealed", "other.example.org"), "network.allowedHosts[0]", "not among the hosts of build"),
        (hosts("sealed", "a.deb.example.org"), None, ""),
        ({"base": "development", "network": {"mode": "sealed", "peers": False}}, None, ""),
        ({"base": "build", "execDeadlineSeconds": 60, "maxExecDeadlineSeconds": 60}, None, ""),
        ({"base": "build", "execDeadlineSeconds": 61, "maxExecDeadlineSeconds": 60}, "execDeadlineSeconds", "60 s; lo"),
        ({"base": "development", "network": {"mode": "none", "peers": True}}, "network.peers", "can't join others"),
        ({"base": "production", "network": {"mode": "sealed", "peers": True}}, "network.peers", "remove it"),
        (hosts("none", "a.deb.example.org"), "network.allowedHosts", "only a sealed network can have a list"),
        (folder("/tmp", "1Mi", noexec=False), "tmpfs[0].noexec", "nothing in /tmp can be executed at full-isolation"),
        (folder("/sys", "1Mi"), "tmpfs[0].mountPath", "kernel"),
        (folder("/tmp", "1Gi"), "tmpfs", "count as memory"),
    ],
)
def test_invalid_profiles_are_refused(spec: dict[str, Any], field: str | None, message: str) -> None:
    policy = with_packages(Policy(), PackageHosts(("*.deb.example.org",), ()))
    observed = refusals(SecurityProfileSpec.model_validate(spec), policy)
    assert [refusal.field for refusal in observed] == ([] if field is None else [field])
    assert all(message in refusal.message for refusal in observed)


def test_a_built_in_profile_copied_under_another_name_is_the_same() -> None:
    for name, level in OFFERED.items():
        own_level = policy(own={"base": name}).levels["own"]
        assert replace(own_level, name=name, base="") == level


@pytest.mark.parametrize("level_limits", [{}, {"defaultLimits": {"memory": "64Mi"}}], ids=["none", "another"])
def test_lower_maxima_lower_the_defaults_that_are_not_named(level_limits: dict[str, Any]) -> None:
    level = policy(own={"base": "development", "maxLimits": {"memory": "1Gi", "pids": 9}, **level_limits}).levels["own"]
    assert level.offered
    assert (level.limits.memory_bytes, level.limits.pids) == ((64 << 20) if level_limits else 1 << 30, 9)


def test_default_limits_are_known_whatever_policy_grants() -> None:
    spec = {"base": "development", "capabilities": ["SYS_ADMIN"], "defaultLimits": {"pids": 7}}
    stored = [stored_profile(StoredObject("SecurityProfile", "", "own", "u", spec))]
    limits = default_limits("own", stored)
    assert limits is not None
    assert limits.pids == 7
    assert default_limits("full-isolation", stored) == BUILT_IN["full-isolation"].limits
    assert default_limits("other", stored) is None
