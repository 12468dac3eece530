"""Admission of an MCPServer, and the sandbox that a session of it gets."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from controller.kinds.common.quantity import format_bytes, format_cpu, parse_bytes, parse_cpu
from controller.kinds.mcpserver import POOL_LABEL, SESSION_LABEL, MCPServerSpec
from controller.kinds.runtime.images import PACKAGES
from controller.kinds.runtime.package_hosts import Registries
from controller.policy import images
from controller.policy.exec_paths import folder_refused
from controller.policy.levels.levels import FULL_ISOLATION, Policy
from controller.policy.packages.install import InstallPlan, installed, plan_install
from controller.policy.packages.launch import Launch, LaunchError, package_of, packaged, parse_launch
from controller.policy.refusal import Refusal
from controller.version import API_VERSION

_IMAGES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("node", "npm", "npx"), "paddock/node:1"),
        **dict.fromkeys(("python", "python3", "uv", "uvx", "pipx"), "paddock/python:1"),
        **dict.fromkeys(("bun", "bunx"), "paddock/bun:1"),
        "deno": "paddock/deno:1",
    }
)
_COMMANDS = ", ".join(sorted(_IMAGES))
_MOST_LETTERS = 500
_UNSAFE_ENV = re.compile(r"LD_.*|PATH|HOME|NODE_OPTIONS|PYTHONSTARTUP|BASH_ENV")
_POOL_LETTERS = 48  # of the server's name in that of its pool
_TMP_BYTES, _HOME_BYTES, _SHM_BYTES, _PAGE_BYTES = 100 << 20, 64 << 20, 16 << 20, 1 << 12
_LEVEL_WITH_HOSTS, _LEVEL_OF_ALL_HOSTS = "development", "production"


@dataclass(frozen=True, slots=True)
class TrustLimits:
    """Limits of the sandboxes of one trust level."""

    memory: str
    cpu: str
    pids: int


LIMITS: Mapping[str, TrustLimits] = MappingProxyType(
    {"user_added": TrustLimits("512Mi", "500m", 50), "verified": TrustLimits("1Gi", "1", 100)}
)


def admit(spec: MCPServerSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a server."""
    return (*_command(spec, policy), *_folder(spec), *_variables(spec), *_limits(spec), *_isolation(spec, policy))


def image_of(spec: MCPServerSpec) -> str:
    """Return the image of its sandboxes; "" if the command has none."""
    return spec.image or _IMAGES.get(spec.command, "")


def runs_image(spec: MCPServerSpec) -> bool:
    """Return True for a server that is the program of its image."""
    return spec.image is not None and not spec.command and spec.package is None


def launch_of(spec: MCPServerSpec) -> Launch | None:
    """Return the launch of the server's packages; None if none has to be installed. Raises LaunchError."""
    if spec.package is not None:
        package = spec.package
        return packaged(package_of(package.registry, package.name, package.version), spec.command, spec.args)
    if spec.image is not None:
        return None
    launch = parse_launch(spec.command, spec.args)
    return launch if launch.packages else None


def install_plan(spec: MCPServerSpec, registries: Registries = Registries()) -> InstallPlan | None:
    """Return the install that the server needs, on its image if it names one. Raises LaunchError."""
    launch = launch_of(spec)
    return plan_install(launch, registries, image=spec.image or "") if launch else None


def install_of(spec: MCPServerSpec) -> InstallPlan | None:
    """Return the install that the server needs; None if it needs none, or its stored spec is refused by now."""
    try:
        return install_plan(spec)
    except LaunchError:
        return None


def runnable(spec: MCPServerSpec, status: Mapping[str, Any]) -> MCPServerSpec:
    """Return the spec with the image and the command of its installed package; as it is, if none is installed."""
    plan = install_of(spec)
    install = installed(plan, status) if plan else None
    launch = launch_of(spec) if install else None
    if install is None or launch is None:
        return spec
    program = [*map(str, install["program"]), *launch.arguments]
    update = {"image": install["image"], "package": None, "command": program[0], "args": tuple(program[1:])}
    return spec.model_copy(update=update)


def not_installed(spec: MCPServerSpec) -> str:
    """Return why the server can't be run yet, with what to do; "" if nothing has to be installed.

    The spec is a `runnable` one.
    """
    try:
        launch = launch_of(spec)
    except LaunchError as error:
        return f"its stored spec is refused by this version: {error}; apply it again"
    return f"`{launch.packages[0]}` is not installed yet; wait, and try again" if launch else ""


def session_sandbox(
    server: str, spec: MCPServerSpec, *, name: str, session: str, pooled: bool = False
) -> dict[str, Any]:
    """Return the document of the sandbox of a session, owned by its server. `pooled`: of the pool's template.

    The server's program is not its main process: it is started in it, and no log holds what it says.
    """
    body: dict[str, Any] = {
        "restartPolicy": "Never",
        # A dead one goes even if its session does not hear of it.
        "lifecycle": {
            "shutdownGracePeriodSeconds": 0,
            "idleTimeoutSeconds": 60,
            "onIdle": "Delete",
            "ttlSecondsAfterFinished": 0,
        },
    }
    if pooled:
        body["templateRef"] = {"name": pool_name(server)}
    else:
        body["template"] = session_template(spec)
    hosts = [] if spec.network.is_open else list(spec.network.allowed_hosts)
    body |= {"network": {"allowedHosts": hosts}} if hosts else {}
    return _with_owner("Sandbox", server, name, {SESSION_LABEL: session}, body)


def pool_name(server: str) -> str:
    """Return the name of the SandboxPool and the SandboxTemplate of a server's warm sandboxes."""
    if len(server) <= _POOL_LETTERS:
        return f"mcp-{server}"
    return f"mcp-{server[: _POOL_LETTERS - 9].rstrip('-')}-{hashlib.sha256(server.encode()).hexdigest()[:8]}"


def pool_documents(server: str, spec: MCPServerSpec) -> tuple[dict[str, Any], ...]:
    """Return the template and the pool of a server's warm sandboxes, owned by it; empty if it wants none now."""
    if not spec.warm_replicas or not spec.enabled or not_installed(spec):
        return ()
    name = pool_name(server)
    body = {"templateRef": {"name": name}, "warmReplicas": spec.warm_replicas, "shutdownGracePeriodSeconds": 0}
    return (
        _with_owner("SandboxTemplate", server, name, {POOL_LABEL: server}, session_template(spec)),
        _with_owner("SandboxPool", server, name, {POOL_LABEL: server}, body),
    )


def limits_of(spec: MCPServerSpec) -> TrustLimits:
    """Return the limits of a session: its own where they are given, else those of its trust."""
    most, requested = LIMITS[spec.trust], spec.limits
    return TrustLimits(
        most.memory if requested.memory is None else format_bytes(requested.memory),
        most.cpu if requested.cpu is None else format_cpu(requested.cpu),
        most.pids if requested.pids is None else requested.pids,
    )


def _in_memory(memory: int) -> tuple[int, int]:
    """Return the sizes of /tmp and the workspace: at most half of the memory with the shared memory, in whole pages."""
    room = max(0, memory - _SHM_BYTES) // 2
    folder = min(_TMP_BYTES, room * _TMP_BYTES // (_TMP_BYTES + _HOME_BYTES))
    home = min(_HOME_BYTES, room - folder)
    return folder // _PAGE_BYTES * _PAGE_BYTES, home // _PAGE_BYTES * _PAGE_BYTES


def session_template(spec: MCPServerSpec) -> dict[str, Any]:
    """Return the template of the sandboxes of a server's sessions."""
    limits = limits_of(spec)
    folder, home = _in_memory(parse_bytes(limits.memory))
    template: dict[str, Any] = {
        "image": image_of(spec),
        # Its main process only waits. An image that is the server may have no other program: the agent is in any.
        **({"agent": {}} if runs_image(spec) else {"command": ["sleep", "infinity"]}),
        **({"workingDir": spec.working_dir} if spec.working_dir else {}),
        "securityLevel": FULL_ISOLATION.name,
        "tmpfs": [{"mountPath": "/tmp", "size": format_bytes(folder)}],  # noqa: S108 - inside the sandbox
        "workspace": {} if home == _HOME_BYTES else {"size": format_bytes(home)},
        "resources": {"limits": {"memory": limits.memory, "cpu": limits.cpu, "pids": limits.pids}},
    }
    if spec.network.allowed_hosts:
        template["securityLevel"] = _LEVEL_OF_ALL_HOSTS if spec.network.is_open else _LEVEL_WITH_HOSTS
        template["env"] = [{"name": "HOME", "value": "/workspace"}]
        template["security"] = {
            "capabilities": [],
            "noNewPrivileges": True,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "seccompProfile": "minimal",
        }
    return template


def _with_owner(
    kind: str, server: str, name: str, labels: Mapping[str, str], spec: Mapping[str, Any]
) -> dict[str, Any]:
    owners = [{"kind": "MCPServer", "name": server}]
    metadata = {"name": name, "labels": dict(labels), "ownerReferences": owners}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _command(spec: MCPServerSpec, policy: Policy) -> Iterator[Refusal]:
    command, at = spec.command, "spec.command"
    if spec.package is not None:
        yield from _package(spec, "spec.package", policy)
        for why in images.image_refusals(spec.image, policy.images) if spec.image else ():
            yield Refusal("spec.image", why)
        return
    if spec.image is not None:
        return
    if not command:
        yield Refusal(at, f"names no program; write one ({_COMMANDS}), or `image:` or `package:` for another")
        return
    image = _IMAGES.get(command)
    if image is None:
        word = re.sub(r"\.(cmd|exe|bat)\Z", "", re.split(r"[/\\]", command)[-1], flags=re.IGNORECASE)
        if word in _IMAGES:
            yield Refusal(at, f"`{command[:200]}` is not a program's bare name; write `{word}`")
        else:
            message = (
                f"`{command[:200]}` is not one of {_COMMANDS}; choose one, or set `image:` to the image that has it"
            )
            yield Refusal(at, message)
    else:
        yield from _package(spec, "spec.args", policy)


def _package(spec: MCPServerSpec, at: str, policy: Policy) -> Iterator[Refusal]:
    """Yield every reason to refuse the packages that the command line or `package` names."""
    try:
        plan = install_plan(spec)
    except LaunchError as error:
        yield Refusal(at, str(error)[:_MOST_LETTERS])
        return
    if plan is not None:
        for why in images.image_refusals(f"{PACKAGES}{plan.slug}:{plan.key}", policy.images):
            yield Refusal(at, f"its package would be installed into an image that can't be used: {why}")


def _folder(spec: MCPServerSpec) -> Iterator[Refusal]:
    if reason := folder_refused(spec.working_dir or ""):
        yield Refusal("spec.workingDir", reason)


def _variables(spec: MCPServerSpec) -> Iterator[Refusal]:
    names: set[str] = set()
    variables = [(f"spec.env[{place}].name", variable.name) for place, variable in enumerate(spec.env)]
    variables += [(f"spec.secrets[{place}].env", secret.env) for place, secret in enumerate(spec.secrets)]
    for at, name in variables:
        if name in names:
            yield Refusal(at, f"`{name}` is set twice; keep one")
        elif _UNSAFE_ENV.fullmatch(name):
            yield Refusal(at, f"`{name}` changes how programs are loaded; remove it, or build it into an image")
        names.add(name)


def _limits(spec: MCPServerSpec) -> Iterator[Refusal]:
    most, requested = LIMITS[spec.trust], spec.limits
    for name, amount, bound, format_amount in (
        ("memory", requested.memory, parse_bytes(most.memory), format_bytes),
        ("cpu", requested.cpu, parse_cpu(most.cpu), format_cpu),
        ("pids", requested.pids, most.pids, str),
    ):
        if amount is not None and amount > bound:
            message = (
                f"{format_amount(amount)} is more than {spec.trust} servers may have; at most {format_amount(bound)}"
            )
            yield Refusal(f"spec.limits.{name}", message)


def _isolation(spec: MCPServerSpec, policy: Policy) -> Iterator[Refusal]:
    if spec.sandbox == "Preferred" and spec.trust == "user_added":
        message = "a user_added server never runs without a sandbox; remove it, or let an admin verify the server"
        yield Refusal("spec.sandbox", message)
    if spec.network.allowed_hosts and policy.unguarded:
        yield Refusal("spec.network.allowedHosts", policy.unguarded)
    if spec.network.is_open and spec.trust != "verified":
        message = "`*` is for verified servers; list the hosts that it needs, or let an admin verify the server"
        yield Refusal("spec.network.allowedHosts", message)
    if spec.network.is_open and len(spec.network.allowed_hosts) > 1:
        yield Refusal("spec.network.allowedHosts", "`*` stands for all hosts; leave out the others, or `*`")
    if spec.network.allowed_hosts and spec.warm_replicas:
        message = "warm sandboxes have no network of their own; leave out warmReplicas, or network.allowedHosts"
        yield Refusal("spec.warmReplicas", message)
