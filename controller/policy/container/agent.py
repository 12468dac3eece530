"""The agent in a sandbox: admission of its template, and the container config of a sandbox that has one. Pure."""

import json
from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.common.quantity import format_bytes
from controller.kinds.runtime.agent import FOLDER, IMAGE, Agent
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.sandbox import Template
from controller.policy.attest.attest import hides_processes
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal

# The runtime brings its own loader and C library: nothing of the sandbox's image is used.
_PYTHON = (f"{FOLDER}/lib/ld.so", "--library-path", f"{FOLDER}/lib", f"{FOLDER}/bin/python3.11")
START = (*_PYTHON, "-I", "-S", "-OO", "-X", "utf8", f"{FOLDER}/agent/agent.py")
# Variables by which any loader, the agent's too, loads other code, or loads nothing and ends.
LOADER = ("LD_AUDIT", "LD_PRELOAD", "LD_TRACE_LOADED_OBJECTS")
# Variables that the agent and its children get from Paddock, and the one that the agent takes settings from.
OWN = ("MCP_ENABLED", "MCP_MODE", "MCP_PROJECT_ID", "MCP_SECURITY_LEVEL", "PADDOCK_AGENT")
# The engine's init, the agent, the command, and for each exec a supervisor and its command.
_FEWEST_PIDS = 5
# Measured: with 6Mi the kernel kills it at its start.
_LEAST_MEMORY_BYTES = 16 << 20


def settings(agent: Agent, namespace: str, level: str) -> str:
    """Return the agent's settings as JSON. The namespace is the project of an agent that names none."""
    fields = {**agent.model_dump(mode="json"), "project": agent.project or namespace, "level": level}
    if not agent.contexts:  # the start line, and so the hash, of agents from before this field
        del fields["contexts"]
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def with_agent(config: ContainerConfig, template: Template, namespace: str, policy: Policy) -> ContainerConfig:
    """Return the config with the agent, if the template has one: its runtime, start line and variables.

    The command is the agent's child.
    """
    if template.agent is None:
        return config
    project, level = template.agent.project, template.security_level
    start = (*START, "--settings", settings(template.agent, namespace, level))
    values = ("true", "sandbox", project or namespace, level)
    of_project = {"PROJECT_ID": project, "PROJECT_NAME": project, "SECURITY_LEVEL": level} if project else {}
    env = {**of_project, **dict(config.env), **dict(zip(OWN, values, strict=False))}
    return replace(
        config,
        command=(*start, "--", *config.command) if config.command else start,
        args=(),
        env=tuple(sorted(env.items())),
        agent=(policy.host.agent if policy.host else "") or IMAGE,
    )


def refusals(template: Template, limits: Limits, policy: Policy) -> Iterator[Refusal]:
    """Yield every reason why an agent can't work in sandboxes of this template. `limits` are those in force."""
    if template.agent is None:
        return
    runtime = template.runtime or (policy.host.default_runtime if policy.host else "")
    if hides_processes(runtime):
        message = f"nobody could reach it: the runtime `{runtime}` keeps the sandbox's network to itself"
        yield Refusal("agent", f"{message}; remove it, or use another runtime")
    if template.args and not template.command:
        yield Refusal("args", "beside an agent they need a `command`: it starts no entrypoint of the image; write both")
    for index, variable in enumerate(template.env):
        if variable.name in LOADER and variable.value:
            message = "it would change the agent's own loading; set it in `command` (env NAME=VALUE PROGRAM)"
            yield Refusal(f"env[{index}].name", f"`{variable.name}` can't be set beside an agent: {message}")
        elif variable.name in OWN:
            yield Refusal(f"env[{index}].name", f"`{variable.name}` is set by Paddock for the agent; remove it")
    yield from _mounts(template)
    yield from _contexts(template.agent)
    if limits.pids < _FEWEST_PIDS:
        yield Refusal("resources.limits.pids", f"an agent and one command need at least {_FEWEST_PIDS}; raise it")
    if limits.memory_bytes < _LEAST_MEMORY_BYTES:
        message = f"a sandbox with an agent needs at least {format_bytes(_LEAST_MEMORY_BYTES)}; raise it"
        yield Refusal("resources.limits.memory", message)


def _contexts(agent: Agent) -> Iterator[Refusal]:
    for index, context in enumerate(agent.contexts):
        place = f"agent.contexts[{index}]"
        if context.language in [earlier.language for earlier in agent.contexts[:index]]:
            yield Refusal(f"{place}.language", f"there is one of {context.language} already; remove one of them")
        if context.language == "bash" and context.imports:
            yield Refusal(f"{place}.imports", "bash has no modules; remove it")
        for number, name in enumerate(context.imports if context.language == "python" else ()):
            if not all(word.isidentifier() for word in name.split(".")):
                yield Refusal(f"{place}.imports[{number}]", f"`{name}` is not the name of a Python module; correct it")


def _mounts(template: Template) -> Iterator[Refusal]:
    workspace = [("workspace.mountPath", template.workspace.mount_path)] if template.workspace else []
    fields = ("tmpfs", "secrets", "volumes", "volume_claim_templates")
    names = ("tmpfs", "secrets", "volumes", "volumeClaimTemplates")
    listed = [
        (f"{name}[{index}].mountPath", mount.mount_path)
        for field, name in zip(fields, names, strict=True)
        for index, mount in enumerate(getattr(template, field))
    ]
    for field, path in (*workspace, *listed):
        if path == FOLDER or path.startswith(f"{FOLDER}/"):
            yield Refusal(field, f"`{path}` belongs to the agent; mount somewhere else")
