"""The time of a command in one sandbox, by its own template or the one that it names."""

import pytest

from controller.kinds.registry import Kind, discover
from controller.service import errors
from tests.helpers_api import ApiStack

INLINE = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: quickstart}
spec: {template: {image: paddock/python:1, execDeadlineSeconds: 60}}
"""
NAMED = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: python}
spec: {image: paddock/python:1, execDeadlineSeconds: %d}
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: quickstart}
spec: {templateRef: {name: python}}
"""


@pytest.fixture
def kind() -> Kind:
    word = discover().by_word("sandbox")
    assert word is not None
    return word


def given(api: ApiStack, kind: Kind, asked: float | None) -> float | None:
    """The time that a command is begun with."""
    list(api.services.sandbox_streams.exec(kind, "default", "quickstart", ["true"], timeout_seconds=asked)())
    timeout_seconds: float | None = api.streams.asked[-1][1]["timeout_seconds"]
    return timeout_seconds


def test_a_template_bounds_the_commands_of_its_sandbox(api: ApiStack, kind: Kind) -> None:
    api.apply(INLINE)
    api.view.show(api.sandbox())
    assert (given(api, kind, None), given(api, kind, 5)) == (60, 5)
    for further in (61, 0):
        with pytest.raises(errors.BadRequest, match="a command in sandbox `quickstart` may run for 60 s at most"):
            given(api, kind, further)


def test_a_named_template_holds_as_it_is_now(api: ApiStack, kind: Kind) -> None:
    for seconds in (60, 90):
        api.apply(NAMED % seconds)
        api.view.show(api.sandbox())
        assert given(api, kind, None) == seconds


PROFILED = """
apiVersion: paddock/v1alpha1
kind: SecurityProfile
metadata: {name: short}
spec: {base: full-isolation, execDeadlineSeconds: 20, maxExecDeadlineSeconds: %d}
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: quickstart}
spec: {securityLevel: short, template: {image: paddock/python:1}}
"""


def test_the_sandboxs_own_profile_bounds_its_commands_as_it_is_now(api: ApiStack, kind: Kind) -> None:
    for most in (60, 90):
        api.apply(PROFILED % most)
        api.view.show(api.sandbox())
        assert (given(api, kind, None), given(api, kind, most)) == (20, most)
        for further in (most + 1, 0):
            with pytest.raises(
                errors.BadRequest, match=f"{most} s at most .maxExecDeadlineSeconds of its security pro"
            ):
                given(api, kind, further)
