"""Model servers: the sandbox that each owns."""

from typing import Any

import pytest

from controller.kinds.modelserver import ModelServerSpec
from controller.kinds.sandbox import SandboxSpec
from controller.policy import sandbox
from controller.policy.levels.levels import Policy
from controller.policy.modelserver import admit, owned_sandbox, sandbox_name


def spec_of(**fields: Any) -> ModelServerSpec:
    return ModelServerSpec.model_validate({"template": {"image": "paddock/model-tiny:1"}, **fields})


def test_the_sandbox_is_isolated_and_idles() -> None:
    spec = spec_of(
        port=9000, healthPath="/ready", resources={"limits": {"gpus": 1, "memory": "8Gi"}},
        lifecycle={"idleTimeoutSeconds": 60, "startupDeadlineSeconds": 90},
    )  # fmt: skip
    document = owned_sandbox("smol", spec)
    assert document["metadata"]["ownerReferences"] == [{"kind": "ModelServer", "name": "smol", "controller": True}]
    sandbox_spec = SandboxSpec.model_validate(document["spec"])
    assert sandbox_spec.template is not None
    assert (sandbox_spec.template.security_level, sandbox_spec.lifecycle.on_idle) == ("full-isolation", "Suspend")
    assert sandbox_spec.template.readiness is not None
    assert sandbox_spec.template.readiness.http_get is not None
    assert (sandbox_spec.template.readiness.http_get.port, sandbox_spec.template.readiness.http_get.path) == (
        9000,
        "/ready",
    )
    assert (sandbox_spec.lifecycle.idle_timeout_seconds, sandbox_spec.lifecycle.startup_deadline_seconds) == (60, 90)
    rendered = sandbox.render(sandbox_spec, sandbox_spec.template, name="model-smol", uid="u", policy=Policy())
    assert (rendered.config.network_mode, rendered.config.gpus, rendered.config.read_only_root) == ("none", 1, True)


def test_refusals_are_those_of_its_sandbox() -> None:
    refusals = admit(spec_of(template={"image": "x", "env": [{"name": "A"}, {"name": "A"}]}), Policy())
    assert [refusal.field for refusal in refusals] == ["spec.template.env[1].name"]
    assert [refusal.field for refusal in admit(spec_of(resources={"limits": {"cpu": "999"}}), Policy(host_cpus=2))] == [
        "spec.resources.limits.cpu"
    ]


def test_named_gpus_are_those_of_its_sandbox() -> None:
    spec, policy = spec_of(resources={"gpuDeviceIds": ["1", "0"]}), Policy(gpu_devices=("0", "1"))
    assert admit(spec, policy) == ()
    sandbox_spec = SandboxSpec.model_validate(owned_sandbox("smol", spec)["spec"])
    assert sandbox_spec.template is not None
    config = sandbox.render(sandbox_spec, sandbox_spec.template, name="model-smol", uid="u", policy=policy).config
    assert (config.gpus, config.limits.gpus, config.gpus_named) == (2, 2, ("0", "1"))


@pytest.mark.parametrize(
    ("resources", "listed", "field", "message"),
    [
        ({"gpuDeviceIds": ["0"]}, (), "spec.resources.gpuDeviceIds", "no GPU of this host is listed"),
        ({"gpuDeviceIds": ["7"]}, ("0",), "spec.resources.gpuDeviceIds[0]", "`7` is not one of the listed GPUs"),
        ({"gpuDeviceIds": ["0", "0"]}, ("0",), "spec.resources.gpuDeviceIds[1]", "`0` is named twice"),
        (
            {"gpuDeviceIds": ["0"], "limits": {"gpus": 2}},
            ("0",),
            "spec.resources.limits.gpus",
            "2 GPUs are asked for, and 1 named",
        ),
    ],
)
def test_gpus_that_no_sandbox_can_have_are_refused(
    resources: dict[str, Any], listed: tuple[str, ...], field: str, message: str
) -> None:
    [refusal] = admit(spec_of(resources=resources), Policy(gpu_devices=listed))
    assert (refusal.field, message in refusal.message) == (field, True)


def test_sandbox_names_are_valid_and_differ() -> None:
    names = {sandbox_name("a" * 46), sandbox_name("a" * 51 + "b"), sandbox_name("a" * 51 + "c")}
    assert len(names) == 3
    assert all(len(name) <= 52 for name in names)
