"""A spec narrows its level by `security:`, field by field, and is refused in words where it would widen it."""

from typing import Any

import pytest

from controller.kinds.runtime.container import ContainerConfig, Tmpfs
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels import seccomp
from controller.policy.levels.levels import FULL_ISOLATION, Policy
from controller.policy.sandbox import admit, render


def spec(level: str, security: dict[str, Any] | None = None, **fields: Any) -> SandboxSpec:
    template = {"image": "a:1", "securityLevel": level, **({"security": security} if security is not None else {})}
    return SandboxSpec.model_validate({"template": template | fields.pop("template", {}), **fields})


def rendered(sandbox_spec: SandboxSpec) -> ContainerConfig:
    assert sandbox_spec.template is not None
    assert admit(sandbox_spec, Policy()) == ()
    return render(sandbox_spec, sandbox_spec.template, name="box", uid="0123456789ab", policy=Policy()).config


def test_every_field_narrows() -> None:
    security = {
        "capabilities": ["SETUID", "CHOWN"],
        "noNewPrivileges": True,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": "minimal",
        "network": {"mode": "none"},
    }
    config = rendered(spec("development", security))
    assert config.capabilities == ("CHOWN", "SETUID")
    assert config.read_only_root
    assert config.tmpfs == (Tmpfs("/tmp", 64 << 20), Tmpfs("/workspace", 64 << 20, noexec=False))
    assert dict(config.env)["HOME"] == "/workspace"
    assert config.user == FULL_ISOLATION.default_user
    assert config.seccomp == seccomp.MINIMAL
    assert (config.network_mode, config.dns) == ("none", ("127.0.0.1",))


def test_an_empty_security_changes_nothing() -> None:
    assert rendered(spec("development", {})) == rendered(spec("development"))
    assert rendered(spec("full-isolation", {"readOnlyRootFilesystem": True})) == rendered(spec("full-isolation"))


@pytest.mark.parametrize(
    ("level", "security", "field", "message"),
    [
        (
            "full-isolation",
            {"capabilities": ["CHOWN"]},
            "capabilities[0]",
            "`CHOWN` is more than full-isolation has: none",
        ),
        ("development", {"capabilities": ["CHOWN", "NET_RAW"]}, "capabilities[1]", "has: CHOWN, SETGID, SETUID"),
        ("development", {"noNewPrivileges": False}, "noNewPrivileges", "allows no new privileges"),
        ("full-isolation", {"readOnlyRootFilesystem": False}, "readOnlyRootFilesystem", "is read-only"),
        ("full-isolation", {"runAsNonRoot": False}, "runAsNonRoot", "allows no root"),
        ("full-isolation", {"seccompProfile": "standard"}, "seccompProfile", "than full-isolation's: minimal"),
        ("development", {"network": {"mode": "public"}}, "network.mode", "network of development: sealed"),
    ],
)
def test_widening_is_refused(level: str, security: dict[str, Any], field: str, message: str) -> None:
    (refusal,) = admit(spec(level, security), Policy())
    assert refusal.field == f"spec.template.security.{field}"
    assert message in refusal.message
    assert refusal.message.endswith("a spec can only narrow its level")


def test_every_widening_is_reported_at_once() -> None:
    sandbox_spec = spec(
        "full-isolation", {"capabilities": ["CHOWN"], "seccompProfile": "log-only", "noNewPrivileges": False}
    )
    assert len(admit(sandbox_spec, Policy())) == 3
    assert sandbox_spec.template is not None
    config, plain = (
        render(entry, entry.template, name="a", uid="a", policy=Policy()).config
        for entry in (sandbox_spec, spec("full-isolation"))
        if entry.template is not None
    )
    assert config == plain


def test_other_rules_use_the_narrowed_level() -> None:
    (user,) = admit(spec("development", {"runAsNonRoot": True}, template={"user": "0:0"}), Policy())[:1]
    assert "user 0 is refused" in user.message
    offline = spec("development", {"network": {"mode": "none"}}, network={"allowedHosts": ["git.example.org"]})
    assert [refusal.field for refusal in admit(offline, Policy())] == ["spec.network.allowedHosts"]
    assert admit(spec("development", {"network": {"mode": "none"}}), Policy(unguarded="no guard")) == ()


def test_the_ports_below_1024_stay_closed_without_the_capability_for_them() -> None:
    config = rendered(spec("build", {"capabilities": ["CHOWN"]}))
    assert config.sysctls == (("net.ipv4.ip_unprivileged_port_start", "1024"),)


def test_a_level_with_the_internet_can_be_narrowed_to_listed_names() -> None:
    sandbox_spec = spec("production", {"network": {"mode": "sealed"}}, network={"allowedHosts": ["git.example.org"]})
    assert rendered(sandbox_spec).network_mode.startswith("pdx")
    assert rendered(spec("production", {"network": {"mode": "none"}})).network_mode == "none"
