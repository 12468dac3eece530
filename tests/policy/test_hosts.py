"""Network access by level: listed names, and the local network."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.runtime.package_hosts import PackageHosts
from controller.kinds.sandbox import NetworkSpec, SandboxSpec
from controller.policy.levels.allowed_hosts import is_covered, reachable
from controller.policy.levels.levels import BUILT_IN, Policy
from controller.policy.levels.package_hosts import with_packages
from controller.policy.sandbox import admit, render

FOUND = PackageHosts(("deb.example.org", "pip.example.org"), ("npm (/etc/npmrc): nothing",))
POLICY = with_packages(Policy(), FOUND, ["*.wheels.example.net"])
HOSTS = ("*.wheels.example.net", "deb.example.org", "pip.example.org")


def spec(level: str, **network: Any) -> SandboxSpec:
    return SandboxSpec.model_validate({"template": {"image": "a:1", "securityLevel": level}, "network": network})


def reached(sandbox_spec: SandboxSpec, policy: Policy = POLICY) -> tuple[str, ...]:
    assert admit(sandbox_spec, policy) == ()
    assert sandbox_spec.template is not None
    rendered = render(sandbox_spec, sandbox_spec.template, name="a", uid="a", policy=policy)
    assert rendered.sealed is not None
    return rendered.sealed.hosts


def test_build_reaches_the_package_hosts_and_a_spec_only_narrows_them() -> None:
    assert reached(spec("build")) == HOSTS
    assert reached(spec("build", allowedHosts=["pip.example.org", "a.wheels.example.net"])) == (
        "a.wheels.example.net",
        "pip.example.org",
    )
    assert reached(spec("build", allowedHosts=[])) == ()
    assert reached(spec("build"), Policy()) == ()
    assert reached(spec("development")) == ()


@pytest.mark.parametrize(
    ("level", "network", "field", "message"),
    [
        ("build", {"allowedHosts": ["git.example.org"]}, "allowedHosts[0]", "not among the hosts of level build"),
        ("build", {"allowedHosts": ["wheels.example.net"]}, "allowedHosts[0]", "not among the hosts"),
        ("build", {"allowedHosts": ["*.example.net"]}, "allowedHosts[0]", "not among the hosts"),
        ("build", {"allowedHosts": ["deb.example.org"] * 2}, "allowedHosts[1]", "listed twice"),
        ("full-isolation", {"allowedHosts": ["deb.example.org"]}, "allowedHosts", "no network at all"),
        ("production", {"allowedHosts": ["deb.example.org"]}, "allowedHosts", "the whole Internet"),
        ("production", {"localNetwork": "Allowed"}, "localNetwork", "setting local_network"),
        ("development", {"localNetwork": "Allowed"}, "localNetwork", "no access to the local network"),
        ("full-isolation", {"localNetwork": "Allowed"}, "localNetwork", "no access to the local network"),
        ("full-isolation", {"peers": "Allowed"}, "peers", "can't join other sandboxes"),
        ("production", {"peers": "Allowed"}, "peers", "can't join other sandboxes"),
    ],
)
def test_network_access_beyond_the_level_is_refused(
    level: str, network: dict[str, Any], field: str, message: str
) -> None:
    (refusal,) = admit(spec(level, **network), POLICY)
    assert refusal.field == f"spec.network.{field}"
    assert message in refusal.message


def test_removed_hosts_are_no_longer_reachable() -> None:
    level = POLICY.levels["build"]
    network_spec = NetworkSpec.model_validate({"allowedHosts": ["git.example.org", "pip.example.org"]})
    assert reachable(network_spec, level) == ("pip.example.org",)


@pytest.mark.parametrize("level", ["development", "build"])
def test_peers_need_level_spec_and_operator(level: str) -> None:
    sandbox_spec = spec(level, peers="Allowed")
    assert sandbox_spec.template is not None
    assert admit(sandbox_spec, POLICY) == ()
    assert render(sandbox_spec, sandbox_spec.template, name="a", uid="a", policy=POLICY).config.joins_peers
    assert not render(
        sandbox_spec, sandbox_spec.template, name="a", uid="a", policy=replace(POLICY, peers=False)
    ).config.joins_peers
    (refusal,) = admit(sandbox_spec, replace(POLICY, peers=False))
    assert refusal.field == "spec.network.peers"
    assert "setting peers" in refusal.message
    narrowed = sandbox_spec.model_dump(by_alias=True, exclude_none=True)
    narrowed["template"]["security"] = {"network": {"mode": "none"}}
    (refusal,) = admit(SandboxSpec.model_validate(narrowed), POLICY)
    assert refusal.field == "spec.network.peers"


def test_the_local_network_has_its_own_bridge() -> None:
    sandbox_spec, policy = spec("production", localNetwork="Allowed"), replace(POLICY, local_network=True)
    assert admit(sandbox_spec, policy) == ()
    for entry, name, local in ((sandbox_spec, "pdl-0123abcd", True), (spec("production"), "pdp-0123abcd", False)):
        assert entry.template is not None
        rendered = render(entry, entry.template, name="a", uid="0123abcd-0000", policy=policy)
        assert rendered.open is not None
        assert (rendered.open.network, rendered.open.local, rendered.config.network_mode, rendered.config.dns) == (
            name,
            local,
            name,
            (),
        )
        assert not rendered.open.bridge("10.213.4.16/28").sealed
        assert rendered.audited
    assert policy.version() != POLICY.version()


LABEL = st.sampled_from(["a", "b", "ab", "a-b"])
NAMES = st.lists(LABEL, min_size=2, max_size=4).map(".".join)
PATTERNS = st.tuples(st.booleans(), NAMES).map(lambda each: ("*." if each[0] else "") + each[1])


@given(PATTERNS, st.lists(PATTERNS, max_size=4), st.lists(LABEL, min_size=1, max_size=2).map(".".join))
def test_a_covered_pattern_stays_within_the_list(pattern: str, listed: list[str], label: str) -> None:
    if is_covered(pattern, listed):
        name = f"{label}.{pattern.removeprefix('*.')}" if pattern.startswith("*.") else pattern
        assert is_covered(name, listed)


def test_the_built_in_build_reaches_nothing_by_itself() -> None:
    assert BUILT_IN["build"].allowed_hosts == ()
