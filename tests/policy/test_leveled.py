"""A sandbox that names its security level itself: judged and rendered as if its template had named that."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.sandbox import SandboxSpec, Template
from controller.policy.levels.levels import BUILT_IN, Policy
from controller.policy.levels.order import wider
from controller.policy.sandbox import Rendered, admit, admit_with, render
from tests.policy.test_order import LIMITS, TEMPLATES, widest

LEVELS = sorted(BUILT_IN)


def spec(level: str | None, template: dict[str, Any]) -> SandboxSpec:
    document: dict[str, Any] = {"template": {"image": "a:1", **template}}
    return SandboxSpec.model_validate(document if level is None else {**document, "securityLevel": level})


def rendered_of(sandbox_spec: SandboxSpec) -> Rendered:
    assert sandbox_spec.template is not None
    return render(sandbox_spec, sandbox_spec.template, name="a", uid="a", policy=Policy())


@pytest.mark.parametrize("template_level", LEVELS)
@pytest.mark.parametrize("sandbox_level", LEVELS)
def test_the_sandboxs_level_overrides_its_templates(sandbox_level: str, template_level: str) -> None:
    rendered = rendered_of(spec(sandbox_level, {"securityLevel": template_level}))
    assert rendered.config == rendered_of(spec(None, {"securityLevel": sandbox_level})).config


@given(st.sampled_from(LEVELS), st.sampled_from(LEVELS), TEMPLATES, LIMITS)
def test_it_is_never_wider_than_its_level(
    sandbox_level: str, template_level: str, template: dict[str, Any], limits: dict[str, Any]
) -> None:
    sandbox_spec = spec(sandbox_level, {**template, "securityLevel": template_level, "resources": {"limits": limits}})
    if admit(sandbox_spec, Policy()):
        return
    assert wider(rendered_of(sandbox_spec).config, widest(BUILT_IN[sandbox_level], Policy())) == ()


def test_a_refusal_names_the_right_field() -> None:
    (refusal,) = admit(spec("full-isolation", {"securityLevel": "development", "user": "0:0"}), Policy())[:1]
    assert "refused at level full-isolation" in refusal.message
    (refusal,) = admit(spec("none-such", {"securityLevel": "development"}), Policy())
    assert refusal.field == "spec.securityLevel"
    by_name = SandboxSpec.model_validate({"templateRef": {"name": "t"}, "securityLevel": "none-such"})
    (refusal,) = admit(by_name, Policy())
    assert refusal.field == "spec.securityLevel"
    unguarded = replace(Policy(), unguarded="no nft")
    (refusal,) = admit_with(spec("build", {}), Template(image="a:1"), unguarded)
    assert (refusal.field, "no nft" in refusal.message) == ("spec.securityLevel", True)


def test_only_another_level_recreates_the_container() -> None:
    template = Template(image="a:1", security_level="development")

    def hashed(level: str | None) -> str:
        document = {"templateRef": {"name": "t"}} | ({} if level is None else {"securityLevel": level})
        sandbox_spec = SandboxSpec.model_validate(document)
        return render(sandbox_spec, template, name="a", uid="a", policy=Policy()).template_hash

    assert hashed(None) == hashed("development")
    assert hashed("build") != hashed("development")
