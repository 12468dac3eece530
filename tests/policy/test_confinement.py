"""AppArmor, SELinux, runtimes: refused where the host lacks them or nobody allows them, applied where it has them."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.inside import SECCOMP_FILTER, InsideState
from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.sandbox import SandboxSpec
from controller.policy.attest.attest import differing, facts
from controller.policy.host.host import fitted
from controller.policy.levels.abilities import Confinements
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import admit, render

BARE = HostFacts(cpus=2, security_options=("name=seccomp,profile=default",), default_runtime="runc", runtimes=("runc",))
APPARMOR = replace(BARE, security_options=(*BARE.security_options, "name=apparmor"))
SELINUX = replace(BARE, security_options=(*BARE.security_options, "name=selinux"))
GVISOR = replace(BARE, runtimes=("runc", "runsc"))
GRANTED = Policy(confinements=Confinements(("runsc",), ("tighter",), ("container_t",)))
LABEL = {"seLinuxOptions": {"level": "s0:c1,c2", "type": "container_t"}}


def spec(**template: Any) -> SandboxSpec:
    return SandboxSpec.model_validate({"template": {"image": "a:1", **template}})


def config(host: HostFacts, policy: Policy = GRANTED, **template: Any) -> ContainerConfig:
    sandbox_spec = spec(**template)
    assert sandbox_spec.template is not None
    return render(sandbox_spec, sandbox_spec.template, name="a", uid="0123456789ab", policy=fitted(policy, host)).config


@pytest.mark.parametrize(
    ("host", "confinement", "message_part"),
    [
        (BARE, {"runtime": "runsc"}, "has no runtime `runsc`; it has runc"),
        (GVISOR, {"runtime": "kata"}, "operator does not allow `kata` (setting `runtimes`: runc, runsc)"),
        (BARE, {"appArmorProfile": "docker-default"}, "this host has no AppArmor"),
        (SELINUX, {"appArmorProfile": "tighter"}, "this host has no AppArmor"),
        (APPARMOR, {"appArmorProfile": "unconfined"}, "operator does not allow `unconfined`"),
        (APPARMOR, {"appArmorProfile": "other"}, "choose one of docker-default, tighter"),
        (APPARMOR, LABEL, "has no SELinux"),
        (SELINUX, {"seLinuxOptions": {"type": "spc_t"}}, "operator does not allow `spc_t`"),
    ],
)
def test_missing_or_forbidden_confinement_is_refused(
    host: HostFacts, confinement: dict[str, Any], message_part: str
) -> None:
    (refusal,) = admit(spec(**confinement), fitted(GRANTED, host))
    assert message_part in refusal.message
    assert refusal.field.startswith(f"spec.template.{next(iter(confinement))}")


@pytest.mark.parametrize("confinement", [{"runtime": "runsc"}, {"appArmorProfile": "tighter"}, LABEL])
def test_only_the_engines_defaults_are_allowed_by_default(confinement: dict[str, Any]) -> None:
    everything = replace(GVISOR, security_options=("name=apparmor", "name=selinux"))
    assert admit(spec(**confinement), fitted(GRANTED, everything)) == ()
    assert admit(spec(**confinement), fitted(Policy(), everything)) != ()
    assert admit(spec(runtime="runc"), fitted(Policy(), everything)) == ()


def test_an_unknown_engine_is_checked_later() -> None:
    assert admit(spec(runtime="runsc", appArmorProfile="tighter", **LABEL), fitted(GRANTED, HostFacts())) == ()


def test_allowed_confinement_reaches_the_container() -> None:
    assert config(GVISOR, runtime="runsc").runtime == "runsc"
    assert "apparmor=tighter" in config(APPARMOR, appArmorProfile="tighter").security_options
    options = config(SELINUX, **LABEL).security_options
    assert options == ("no-new-privileges:true", "label=level:s0:c1,c2", "label=type:container_t")


def test_every_container_is_confined_where_the_host_has_apparmor() -> None:
    assert "apparmor=docker-default" in config(APPARMOR).security_options
    assert config(BARE).hash() == config(SELINUX).hash() != config(APPARMOR).hash()


@pytest.mark.parametrize(
    ("host", "confinement", "label", "difference"),
    [
        (APPARMOR, {}, "docker-default (enforce)", ""),
        (APPARMOR, {}, "crun (unconfined)//&docker-default (enforce)", ""),
        (APPARMOR, {}, "crun (unconfined)//&docker-default (complain)", "mandatory access"),
        (APPARMOR, {}, "not-docker-default (enforce)", "mandatory access"),
        (
            APPARMOR,
            {},
            "crun//&docker-default (mixed)",
            "mandatory access: found crun//&docker-default (mixed), wanted docker-default (enforce)",
        ),
        (APPARMOR, {}, "unconfined", "mandatory access: found unconfined, wanted docker-default (enforce)"),
        (APPARMOR, {}, "docker-default (complain)", "mandatory access"),
        (SELINUX, LABEL, "system_u:system_r:container_t:s0:c1,c2", ""),
        (SELINUX, LABEL, "system_u:system_r:spc_t:s0:c1,c2", "mandatory access"),
        (BARE, {}, "", ""),
    ],
)
def test_the_kernels_label_is_compared(
    host: HostFacts, confinement: dict[str, Any], label: str, difference: str
) -> None:
    inside = InsideState(uid=20000, gid=20000, no_new_privileges=True, seccomp=SECCOMP_FILTER, label=label)
    message = [fact for fact in facts(config(host, **confinement), inside) if fact.name == "mandatory access"]
    assert differing(message).startswith(difference)
    assert bool(differing(message)) == bool(difference)
