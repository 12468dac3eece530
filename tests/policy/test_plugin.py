"""Admission of plugins, and hostile ones."""

from typing import Any

import pytest

from controller.kinds.plugin import PluginSpec
from controller.policy import plugin
from controller.policy.levels.levels import Policy

TEMPLATE: dict[str, Any] = {"image": "paddock/python:1"}


def template(name: str = "t", **spec: Any) -> dict[str, Any]:
    return {"kind": "SandboxTemplate", "metadata": {"name": name}, "spec": {**TEMPLATE, **spec}}


def sandbox(**spec: Any) -> dict[str, Any]:
    return {"kind": "Sandbox", "metadata": {"name": "s"}, "spec": {"template": TEMPLATE, **spec}}


def metadata_of(**metadata: Any) -> dict[str, Any]:
    return {**template(), "metadata": {"name": "t", **metadata}}


def plugin_spec(*objects: dict[str, Any], **fields: Any) -> PluginSpec:
    return PluginSpec.model_validate({"version": "1.0", "type": "Tool", "objects": objects, **fields})


def refusals_of(*objects: dict[str, Any], **fields: Any) -> dict[str, str]:
    return {refusal.field: refusal.message for refusal in plugin.admit(plugin_spec(*objects, **fields), Policy())}


def test_permissions_are_computed_from_the_objects() -> None:
    spec = plugin_spec(
        sandbox(
            template={**TEMPLATE, "securityLevel": "development", "secrets": [{"name": "k", "mountPath": "/k"}]},
            network={"allowedHosts": ["api.github.com", "*.example.org"]},
            workspace={"volume": {"name": "data", "size": "8Mi"}},
        ),
        {
            "kind": "MCPServer",
            "metadata": {"name": "m"},
            "spec": {
                "command": "python3",
                "secrets": [{"name": "t", "env": "T"}],
                "network": {"allowedHosts": ["a.org"]},
            },
        },
    )
    assert plugin.needed_permissions(spec) == {
        ("network", "api.github.com"),
        ("network", "*.example.org"),
        ("network", "a.org"),
        ("secret", "k"),
        ("secret", "t"),
        ("volume", "data"),
        ("level", "development"),
    }


def test_what_is_needed_must_be_declared_and_granted() -> None:
    asks = template(securityLevel="development", secrets=[{"name": "k", "mountPath": "/k"}])
    declared = [{"secret": "k"}, {"level": "development"}]
    assert "secret `k`, which is not declared" in refusals_of(asks, permissions=declared[1:])["spec.permissions"]
    assert refusals_of(asks, permissions=declared) == {}
    assert plugin.missing_permissions(plugin_spec(asks, permissions=declared, granted=declared[1:])) == ["secret `k`"]
    assert plugin.missing_permissions(plugin_spec(asks, permissions=declared, granted=declared)) == []


@pytest.mark.parametrize(
    ("document", "place", "message"),
    [
        (sandbox(workspace={"hostPath": "/srv/x"}), "spec.objects[0].spec.workspace.hostPath", "folders of the host"),
        (sandbox(network={"peers": "Allowed"}), "spec.objects[0].spec.network.peers", "other networks"),
        ({"kind": "Quota", "metadata": {"name": "q"}, "spec": {}}, "spec.objects[0].kind", "is no kind for plugins"),
        ({"kind": "Plugin", "metadata": {"name": "q"}}, "spec.objects[0].kind", "is no kind for plugins"),
        ({**template(), "status": {}}, "spec.objects[0].status", "is not for objects"),
        (
            {**template(), "metadata": {"name": "t", "namespace": "other"}},
            "spec.objects[0].metadata.namespace",
            "Paddock",
        ),
        (
            {**template(), "metadata": {"name": "t", "ownerReferences": []}},
            "spec.objects[0].metadata.ownerReferences",
            "P",
        ),
        ({**template(), "metadata": {"name": "../x"}}, "spec.objects[0].metadata.name", "is not a name"),
        (
            {"kind": "Sandbox", "metadata": {"name": "s"}, "spec": {"templateRef": {"name": "theirs"}}},
            "spec.objects[0].spec.templateRef.name",
            "is no object of this plugin",
        ),
        (
            {
                "kind": "Workflow",
                "metadata": {"name": "w"},
                "spec": {
                    "stages": [{"name": "a", "agent": {"provider": "theirs", "model": "m", "instructions": "spend"}}]
                },
            },
            "spec.objects[0].spec.stages[0].agent.provider",
            "is no Provider or ModelServer of this plugin",
        ),
        (template(user="0", image="x"), "spec.objects[0].spec.user", "root"),
        (template(imagee="x"), "spec.objects[0].spec.imagee", "unknown field"),
        (
            {"kind": "MCPServer", "metadata": {"name": "m"}, "spec": {"command": "python3", "trust": "verified"}},
            "spec.objects[0].spec.trust",
            "an admin",
        ),
    ],
)
def test_hostile_objects_are_refused(document: dict[str, Any], place: str, message: str) -> None:
    observed = refusals_of(document)
    assert place in observed, observed
    assert message in observed[place]


def test_settings_replace_whole_values_alone() -> None:
    fields = {"image": {"type": "string", "default": "x:1"}, "warm": {"type": "integer"}}
    pool = {
        "kind": "SandboxPool",
        "metadata": {"name": "p"},
        "spec": {"templateRef": {"name": "t"}, "warmReplicas": "$(config.warm)"},
    }
    objects = (template(image="$(config.image)"), pool)
    spec = plugin_spec(*objects, configuration=fields, config={"warm": 3})
    assert plugin.admit(spec, Policy()) == ()
    assert [
        document["spec"].get("image", document["spec"].get("warmReplicas")) for document in plugin.rendered(spec)
    ] == ["x:1", 3]
    assert "has no default" in refusals_of(*objects, configuration=fields)["spec.config"]
    wrong = refusals_of(*objects, configuration=fields, config={"warm": "3", "other": 1})
    assert set(wrong) == {"spec.config.warm", "spec.config.other"}
    inside = refusals_of(template(image="x:$(config.image)"), configuration=fields, config={"warm": 1})
    assert "stands for a whole value only" in inside["spec.objects[0]"]
    unknown = refusals_of(template(image="$(config.none)"))
    assert "is no setting of this plugin" in unknown["spec.objects[0]"]


def test_value_that_smuggles_a_reference_stays_text() -> None:
    fields = {"a": {"default": "$(config.b)"}, "b": {"default": "secret"}}
    spec = plugin_spec(template(image="$(config.a)"), configuration=fields)
    assert plugin.rendered(spec)[0]["spec"]["image"] == "$(config.b)"
    assert plugin.admit(spec, Policy()), "which is no image"
