"""Compose files and admission: whatever a file says, no sandbox of it is weaker than one of its level."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from controller.cli.text.yaml_text import dump
from controller.documents.compose.compose import Composed, Project, read_compose
from controller.documents.compose.refused import SERVICE
from controller.kinds.registry import discover
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels.levels import BUILT_IN, Policy
from controller.policy.levels.order import wider
from controller.policy.sandbox import admit, render
from tests.policy.test_order import widest

REGISTRY = discover()
_WORDS = st.sampled_from(
    (
        *("host", "none", "bridge", "private", "ALL", "SYS_ADMIN", "/", "/etc:/etc", "/srv/a:/a", "./b:/b:ro"),
        *("data:/data", "seccomp=unconfined", "no-new-privileges:true", "no-new-privileges:false", "0", "0:0"),
        *("root", "512m", "1", "-1", "always", "runc", "runsc", "/var/run/docker.sock:/s", "8080:80", "default"),
        *("127.0.0.1:1:2", "true", "", "$X"),
    )
)
_SCALARS = st.one_of(_WORDS, st.booleans(), st.integers(-2, 1 << 33), st.none())
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=3)),
    max_leaves=6,
)
_HANDLED = (
    *("command", "entrypoint", "environment", "working_dir", "user", "runtime", "labels", "volumes", "tmpfs", "ports"),
    *("read_only", "networks", "mem_limit", "memswap_limit", "cpus", "cpu_shares", "pids_limit", "deploy", "restart"),
    *("healthcheck", "cap_drop", "security_opt", "stop_grace_period", "secrets", "depends_on", "expose"),
)
_LEVELS = st.sampled_from((None, *sorted(BUILT_IN)))


def read(service: Any, level: str | None = None) -> Composed:
    file = {"name": "a", "services": {"web": service}, "volumes": {"data": {}}}
    if level is not None:
        file["x-paddock"] = {"securityLevel": level}
    return read_compose("f", dump(file), REGISTRY, Project(variables={"X": "host"}, folder="/srv/c"))


def check(composed: Composed, level: str | None) -> None:
    """Either it is refused in words, or what runs is within its level."""
    if composed.problems:
        assert not composed.documents or all(problem.message for problem in composed.problems)
        return
    policy = Policy()
    for document in composed.documents:
        spec = SandboxSpec.model_validate(document.spec)
        assert spec.template is not None
        assert spec.template.security_level == (level or "development")
        if not admit(spec, policy):
            rendered = render(spec, spec.template, name=document.name, uid="a", policy=policy)
            assert wider(rendered.config, widest(BUILT_IN[spec.template.security_level], policy)) == ()


@given(st.dictionaries(st.sampled_from(_HANDLED), _VALUES, max_size=6), _LEVELS)
def test_no_accepted_service_is_weaker_than_its_level(service: dict[str, Any], level: str | None) -> None:
    check(read({"image": "a:1", **service}, level), level)


@given(st.sampled_from(sorted(SERVICE)), _VALUES, _LEVELS)
def test_a_refused_key_is_refused_or_changes_nothing(key: str, value: Any, level: str | None) -> None:
    composed, plain = read({"image": "a:1", key: value}, level), read({"image": "a:1"}, level)
    check(composed, level)
    if not composed.problems and value != "none":
        assert [document.spec for document in composed.documents] == [document.spec for document in plain.documents]


@given(_VALUES)
def test_any_file_is_read_or_refused(value: Any) -> None:
    for text in (dump(value), dump({"services": value}), dump({"services": {"a": value}, "volumes": value})):
        compose = read_compose("f", text, REGISTRY, Project("a"))
        assert compose.documents or compose.problems


def test_hardening_keys_narrow_the_level() -> None:
    service = {"image": "a:1", "cap_drop": ["ALL"], "read_only": True, "network_mode": "none"}
    (document,) = read({**service, "security_opt": ["no-new-privileges:true"]}, "production").documents
    spec = SandboxSpec.model_validate(document.spec)
    assert spec.template is not None
    config = render(spec, spec.template, name="a", uid="a", policy=Policy()).config
    assert (config.capabilities, config.read_only_root, config.network_mode) == ((), True, "none")
