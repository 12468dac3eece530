"""Choice of the runtime for sandboxes that name none, and what a spec, a hash and a GPU make of it."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.runtime_choice import DefaultRuntime, RuntimeChoice
from controller.kinds.sandbox import SandboxSpec
from controller.policy.host.host import fitted
from controller.policy.host.runtime import chosen_runtime, needs_trial
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import render

RUNC = HostFacts(cpus=2, default_runtime="runc", runtimes=("runc",))
BOTH = replace(RUNC, runtimes=("crun", "runc"))
GVISOR = replace(BOTH, default_runtime="runsc", runtimes=("crun", "runc", "runsc"))


@pytest.mark.parametrize(
    ("setting", "host", "error", "runtime", "reason", "fell_back"),
    [
        ("auto", RUNC, "", "", "NotRegistered", False),
        ("auto", BOTH, "", "crun", "TrialPassed", False),
        ("auto", BOTH, "hybrid", "", "TrialFailed", False),
        ("auto", GVISOR, "", "", "EngineDefault", False),
        ("runc", BOTH, "", "", "EngineDefault", False),
        ("runc", GVISOR, "", "runc", "Configured", False),
        ("runc", replace(GVISOR, runtimes=("runsc",)), "", "", "NotRegistered", True),
        ("crun", RUNC, "", "", "NotRegistered", True),
        ("crun", BOTH, "", "crun", "TrialPassed", False),
        ("crun", BOTH, "hybrid", "", "TrialFailed", True),
        ("crun", GVISOR, "", "crun", "TrialPassed", False),
        ("crun", replace(BOTH, default_runtime="crun"), "", "", "EngineDefault", False),
    ],
)
def test_runtime_follows_setting_engine_and_trial(
    setting: DefaultRuntime, host: HostFacts, error: str, runtime: str, reason: str, fell_back: bool
) -> None:
    choice = chosen_runtime(setting, host, error)
    assert (choice.runtime, choice.reason, choice.fell_back) == (runtime, reason, fell_back)
    assert choice.message.partition(":")[0] == (runtime or host.default_runtime)
    assert needs_trial(setting, host) == (reason in ("TrialPassed", "TrialFailed"))


def config(host: HostFacts, **template: Any) -> ContainerConfig:
    spec = SandboxSpec.model_validate({"template": {"image": "a:1", **template}})
    assert spec.template is not None
    policy = fitted(Policy(), host)
    return render(spec, spec.template, name="a", uid="0123456789ab", policy=policy).config


def test_the_choice_moves_no_hash_and_a_spec_overrides_it() -> None:
    chosen = replace(BOTH, runtime_choice=RuntimeChoice("crun", "TrialPassed", ""))
    assert (config(BOTH).host_runtime, config(chosen).host_runtime) == ("", "crun")
    assert config(BOTH).hash() == config(chosen).hash()
    by_name = config(chosen, runtime="runc")
    assert (by_name.runtime, by_name.host_runtime) == ("runc", "")
    assert config(chosen, resources={"limits": {"gpus": 1}}).host_runtime == "", "the engine's own gives devices"


def test_mount_points_get_the_engines_own_runtime() -> None:
    chosen = replace(BOTH, runtime_choice=RuntimeChoice("crun", "TrialPassed", ""))
    assert config(chosen, workspace={"size": "16Mi"}).host_runtime == ""
    spec = SandboxSpec.model_validate({"template": {"image": "a:1"}})
    assert spec.template is not None
    policy = replace(fitted(Policy(), chosen), holds_memory=True)
    rendered = render(spec, spec.template, name="a", uid="0123456789ab", policy=policy).config
    assert rendered.memory_mounts
    assert rendered.host_runtime == ""
