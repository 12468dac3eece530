"""Volumes for the workspaces of new sandboxes: who gets one, and whose spec stays as it is."""

from typing import Any

import pytest

from controller.policy.container.mounts import with_workspace_volume
from controller.policy.levels.levels import Policy

GIB = 1 << 30
VOLUME = {"name": "workspace", "mountPath": "/workspace", "size": GIB, "reclaimPolicy": "Delete"}


def template(**fields: Any) -> dict[str, Any]:
    return {"image": "paddock/python:1", "securityLevel": "development", **fields}


def test_new_sandboxes_and_templates_get_a_volume() -> None:
    data = {"name": "data", "mountPath": "/data", "size": GIB}
    sandbox = {"template": template(volumeClaimTemplates=[data])}
    workspace_volume = with_workspace_volume("Sandbox", sandbox, Policy(), GIB)
    assert workspace_volume["template"]["volumeClaimTemplates"] == [data, VOLUME]
    assert sandbox["template"]["volumeClaimTemplates"] == [data], "what was sent stays"
    assert with_workspace_volume("SandboxTemplate", template(), Policy(), GIB)["volumeClaimTemplates"] == [VOLUME]
    raised = {"securityLevel": "build", "template": template(securityLevel="full-isolation")}
    assert with_workspace_volume("Sandbox", raised, Policy(), GIB)["template"]["volumeClaimTemplates"] == [VOLUME]


@pytest.mark.parametrize(
    "spec",
    [
        {"template": template(securityLevel="full-isolation")},
        {"template": {"image": "paddock/python:1"}},
        {"template": template(securityLevel="unknown")},
        {"template": template(image="example.org/app:1")},
        {"template": template(), "workspace": {"hostPath": "/srv/x"}},
        {"template": template(workspace={})},
        {"template": template(tmpfs=[{"mountPath": "/workspace/cache", "size": GIB}])},
        {"template": template(volumes=[{"name": "workspace", "mountPath": "/data", "size": GIB}])},
        {"templateRef": {"name": "python"}},
        {"template": "no mapping"},
    ],
)
def test_other_specs_stay_as_they_are(spec: dict[str, Any]) -> None:
    assert with_workspace_volume("Sandbox", spec, Policy(), GIB) is spec


def test_without_the_setting_nothing_gets_one() -> None:
    spec = {"template": template()}
    assert with_workspace_volume("Sandbox", spec, Policy(), 0) is spec
    assert with_workspace_volume("Quota", spec, Policy(), GIB) is spec
