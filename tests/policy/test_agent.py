"""A sandbox with an agent: what is rendered for it, what is refused beside it, and its runtime attested."""

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.runtime.agent import FOLDER, IMAGE, is_runtime
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.sandbox import SandboxSpec
from controller.policy.attest.attest import differing, facts
from controller.policy.container.agent import START
from controller.policy.levels.abilities import Abilities
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import admit, render
from tests.fakes.inside import inside_of

ID = "sha256:" + "0123456789ab" * 5 + "cdef"
POLICY = Policy(host=Abilities(agent=ID))


def spec(limits: dict[str, Any] | None = None, **template: Any) -> SandboxSpec:
    document = {"image": "a:1", "agent": {}, **template}
    return SandboxSpec.model_validate({"template": document, "resources": {"limits": limits or {}}})


def rendered(policy: Policy = POLICY, namespace: str = "team", **template: Any) -> ContainerConfig:
    sandbox_spec = spec(**template)
    assert sandbox_spec.template is not None
    assert admit(sandbox_spec, policy) == ()
    return render(sandbox_spec, sandbox_spec.template, name="box", uid="u", policy=policy, namespace=namespace).config


def test_the_command_is_the_agents_child() -> None:
    config = rendered(command=["npm", "start"], agent={"build": ["make", "ü"], "git": "None"}, securityLevel="build")
    assert config.command is not None
    start, settings, child = config.command[: len(START)], config.command[len(START) :][:2], config.command[-3:]
    assert (start, settings[0], child) == (START, "--settings", ("--", "npm", "start"))
    assert json.loads(settings[1]) == {
        "build": ["make", "ü"],
        "test": [],
        "root": "/workspace",
        "git": "None",
        "callers": "Paddock",
        "project": "team",
        "level": "build",
    }
    own_document = {name: value for name, value in config.env if name.startswith("MCP_")}
    assert own_document == {
        "MCP_MODE": "sandbox",
        "MCP_PROJECT_ID": "team",
        "MCP_SECURITY_LEVEL": "build",
        "MCP_ENABLED": "true",
    }


def test_a_project_has_its_variables() -> None:
    config = rendered(agent={"project": "shop"}, env=[{"name": "PROJECT_NAME", "value": "Shop"}])
    document = dict(config.env)
    assert (document["MCP_PROJECT_ID"], document["PROJECT_ID"], document["PROJECT_NAME"]) == ("shop", "shop", "Shop")
    assert document["SECURITY_LEVEL"] == document["MCP_SECURITY_LEVEL"]
    assert not {"PROJECT_ID", "PROJECT_NAME", "SECURITY_LEVEL"} & set(dict(rendered().env))


def test_without_a_command_the_agent_runs_alone() -> None:
    config = rendered()
    assert config.command is not None
    assert config.command[:-1] == (*START, "--settings")


def test_a_newer_agent_image_leaves_the_hash() -> None:
    unknown, newer = rendered(Policy()), rendered(replace(POLICY, host=Abilities(agent=ID[::-1])))
    assert (unknown.agent, rendered().agent) == (IMAGE, ID)
    assert {unknown.hash(), newer.hash()} == {rendered().hash()}
    assert rendered(agent={"callers": "Anyone"}).hash() != rendered().hash()


def test_contexts_reach_the_agent_and_unset_leave_the_hash() -> None:
    config = rendered(agent={"contexts": [{"language": "python", "imports": ["numpy", "matplotlib.pyplot"]}]})
    assert config.command is not None
    settings = json.loads(config.command[-1])
    assert settings["contexts"] == [{"language": "python", "imports": ["numpy", "matplotlib.pyplot"]}]
    plain = rendered(agent={"contexts": []})
    assert plain.command is not None
    assert "contexts" not in plain.command[-1]
    assert plain.hash() == rendered().hash()


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"agent": {"contexts": [{"language": "bash"}, {"language": "bash"}]}},
            "agent.contexts[1].language",
            "one of bash already",
        ),
        ({"agent": {"contexts": [{"language": "bash", "imports": ["a"]}]}}, "agent.contexts[0].imports", "no modules"),
        (
            {"agent": {"contexts": [{"language": "python", "imports": ["a-b"]}]}},
            "agent.contexts[0].imports[0]",
            "not the name of a Python module",
        ),
        ({"env": [{"name": "LD_PRELOAD", "value": "/x.so"}]}, "env[0].name", "can't be set beside an agent"),
        ({"env": [{"name": "LD_AUDIT", "value": "/x.so"}]}, "env[0].name", "set it in `command`"),
        ({"env": [{"name": "A"}, {"name": "MCP_PROJECT_ID"}]}, "env[1].name", "set by Paddock for the agent"),
        ({"tmpfs": [{"mountPath": "/.paddock", "size": "1Mi"}]}, "tmpfs[0].mountPath", "belongs to the agent"),
        ({"workspace": {"mountPath": "/.paddock/w"}}, "workspace.mountPath", "belongs to the agent"),
        ({"secrets": [{"name": "s", "mountPath": "/.paddock/lib/ld.so"}]}, "secrets[0].mountPath", "to the agent"),
        (
            {"volumes": [{"name": "v", "mountPath": "/.paddock", "size": "8Mi"}]},
            "volumes[0].mountPath",
            "to the agent",
        ),
        (
            {"volumeClaimTemplates": [{"name": "v", "mountPath": "/.paddock/x", "size": "8Mi"}]},
            "volumeClaimTemplates[0].mountPath",
            "to the agent",
        ),
        ({"limits": {"pids": 4}}, "resources.limits.pids", "at least 5"),
        ({"limits": {"memory": "15Mi"}}, "resources.limits.memory", "at least 16Mi"),
        ({"agent": {"build": ["x" * 60_000, "y" * 60_000, "z" * 60_000]}}, "agent", "less than 131072 bytes"),
    ],
)
def test_unusable_beside_an_agent_is_refused(fields: dict[str, Any], field: str, message: str) -> None:
    limits = fields.get("limits", {})
    template = {key: value for key, value in fields.items() if key != "limits"}
    [refusal] = admit(spec(limits, **template), POLICY)
    assert (refusal.field, message in refusal.message) == (f"spec.template.{field}", True)
    if "agent" not in fields:
        assert admit(spec(limits, **{**template, "agent": None}), POLICY) == ()


@pytest.mark.parametrize("runtime", ["runsc", "kata-runtime"])
def test_a_runtime_with_a_network_of_its_own_is_refused(runtime: str) -> None:
    host = replace(POLICY, host=Abilities(default_runtime=runtime, runtimes=(runtime,)))
    [refusal] = admit(spec(), host)
    assert (refusal.field, f"the runtime `{runtime}` keeps" in refusal.message) == ("spec.template.agent", True)
    assert admit(spec(agent=None), host) == ()


def test_an_emptied_loader_variable_is_admitted() -> None:
    """The remedy for an image that sets one itself."""
    assert dict(rendered(env=[{"name": "LD_PRELOAD", "value": ""}]).env)["LD_PRELOAD"] == ""


def differences(**changes: Any) -> str:
    config = rendered()
    inside = inside_of(config, ("none",), {})
    mounts = tuple(replace(mount, **changes) if mount.path == FOLDER else mount for mount in inside.mounts)
    return differing(facts(config, replace(inside, mounts=mounts)))


def test_the_runtime_is_attested() -> None:
    assert differences() == ""
    assert differences(origin="8:1 /var/lib/docker/volumes/paddock-agent-ba9876543210/_data") == ""
    assert "found the agent's runtime read-write" in differences(writable=True)
    assert "wanted the agent's runtime read-only" in differences(origin="8:1 /home/eve/_data")
    assert "/.paddock: found no mount" in differences(path="/elsewhere")


@pytest.mark.parametrize("origin", ["", "8:1 /", "8:1 /paddock-agent-1/x", "8:1 /v/mine/_data", "8:1 /v/_data"])
def test_other_folders_are_no_runtime(origin: str) -> None:
    assert not is_runtime(origin)
