"""Authorization for every listener: a caller and a request in, a decision out.

viewer    reads the objects of the namespace, and logs
user      also writes sandboxes and workflow runs there, and works in them (exec ...); uses MCP servers, providers and
          model servers
operator  also writes every other kind of the namespace (templates, pools, providers, which use secrets of the host
          ...), and deletes its volumes
admin     also writes its quotas, and verifies its MCP servers; with namespace `*` host-scoped kinds, tokens, audit and
          backups

Anything else requires an admin: a new route is closed until it is named here. A grant with `tools` counts only for
calls of these MCP tools. Those of an MCP server are SERVER.TOOL.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from controller.kinds.access.access import EVERYWHERE, ROLES, AccessRequest, Caller, Decision, Grant, Role
from controller.kinds.base import Model
from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.mcpserver import KIND as MCP_SERVER
from controller.kinds.mcpserver import MCPServerSpec
from controller.kinds.registry import Kind
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import ResourceLimits, Resources, SandboxSpec, Template, at_own_level
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.policy.container import gpus
from controller.policy.levels.levels import FULL_ISOLATION, Policy
from controller.policy.refusal import Refusal

_READ = ("get", "list")
_SEEN = (
    "",
    "status",
    "logs",
    "why",
    "attest",
    "metrics",
    "metrics/history",
    "-/metrics",
    "-/usage",
)  # subresources that need no more than reading the object
_WRITERS: dict[str, Role] = {"Sandbox": "user", "SandboxSnapshot": "user", "WorkflowRun": "user", "Quota": "admin"}
_USED_BY_USERS = ("MCPServer", "Provider", "ModelServer")  # written by operators
_LEAST_WRITER: Role = "user"
_OWN_TOOLS = MCP_SERVER.built_in  # how the names of Paddock's own tools begin
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}\Z")
_ORDINARY_SHARES = 1024  # the default weight of a container
# The kinds whose every image, level and limit `bounded` finds. A grant with bounds writes no others.
_BOUNDED = ("Sandbox", "SandboxTemplate", "SandboxPool")


def decide(caller: Caller, ask: AccessRequest) -> Decision:
    """Decide if the caller may do this. `refusals` bounds the contents of a spec."""
    if ask.verb == "self":
        return Decision(True)
    if ask.verb == "apply":  # each document is authorized by itself after parsing
        message = f"{caller.name} may not apply anything; it needs at least the role {_LEAST_WRITER} in a namespace"
        writes = any(_at_least(grant, _LEAST_WRITER) for grant in _usable(caller))
        return Decision(True) if writes else Decision(False, message)
    return _decide(caller, ask, _usable(caller))


def decide_server(caller: Caller, ask: AccessRequest) -> Decision:
    """Decide if the caller may use any tool of an MCP server. `decide` then decides each call, by the tool's name."""
    return _decide(caller, ask, (grant for grant in caller.grants if _has_tool_of(grant, ask.name)))


def may_write(caller: Caller) -> bool:
    """Return True if the caller may change anything in any namespace, by whatever tool."""
    return any(_at_least(grant, _LEAST_WRITER) for grant in caller.grants)


def decide_tool(caller: Caller, tool: str, role: Role) -> Decision:
    """Decide if the caller may call this MCP tool at all. What the tool then does is decided by `decide`.

    `role` is the least one that any use of the tool needs.
    """
    granted = [grant for grant in caller.grants if _has_tool(grant, tool)]
    if not granted:
        patterns = sorted({name for grant in caller.grants for name in grant.tools or ()})
        message = f"{caller.name} may not call {tool}; its grants are for {_listed(patterns)}: ask an admin"
        return Decision(False, message, hidden=True)
    if any(_at_least(grant, role) for grant in granted):
        return Decision(True)
    return Decision(False, f"{caller.name} may not call {tool}; it needs the role {role} in a namespace", hidden=True)


def refusals(caller: Caller, kind: Kind, spec: Model, namespace: str, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason why none of the caller's grants allows this spec; empty: one does."""
    ask = AccessRequest("update", kind.name, namespace if kind.namespaced else "")
    role = _role(ask)
    granted = [grant for grant in _usable(caller) if _reaches(grant, ask) and _at_least(grant, role)]
    refusal_lists = [(*_beyond(grant, kind, spec, policy), *_verified_refusals(grant, spec)) for grant in granted]
    if not refusal_lists:
        return (Refusal("metadata.namespace", _refusal_message(caller, ask, role)),)
    return min(refusal_lists, key=len)


def may_use_image(caller: Caller, image: str, *, role: Role = "viewer") -> bool:
    """Return True if a grant of at least that role, in any namespace, allows this image."""
    granted = (grant for grant in _usable(caller) if _at_least(grant, role))
    return any(not tuple(_image(grant, image, "")) for grant in granted)


def is_work(ask: AccessRequest) -> bool:
    """Return True if it acts inside an object (exec, files ...) and changes nothing stored."""
    return ask.verb == "use" or (ask.verb in _READ and ask.sub not in _SEEN)


def _decide(caller: Caller, ask: AccessRequest, granted: Iterable[Grant]) -> Decision:
    """Decide by these of the caller's grants."""
    role = _role(ask)
    if any(_reaches(grant, ask) and _at_least(grant, role) for grant in granted):
        return Decision(True)
    sees = any(_reaches(grant, ask) for grant in caller.grants)
    return Decision(False, _refusal_message(caller, ask, role), hidden=not sees)


def _usable(caller: Caller) -> Iterator[Grant]:
    """Yield the grants that count for the caller's request."""
    return (grant for grant in caller.grants if _has_tool(grant, caller.tool))


def _has_tool(grant: Grant, tool: str) -> bool:
    if grant.tools is None:
        return True
    return bool(tool) and any(_is_of_tool(each, tool) for each in grant.tools)


def _has_tool_of(grant: Grant, server: str) -> bool:
    return grant.tools is None or any(tool.startswith(f"{server}.") for tool in grant.tools)


def _is_of_tool(pattern: str, tool: str) -> bool:
    """Return True if the pattern is of the tool. A server's name is written out: `*` is of Paddock's own tools."""
    server = tool.partition(".")[0]
    return (server in _OWN_TOOLS or pattern.startswith(f"{server}.")) and is_glob_of(pattern, tool)


def is_glob_of(pattern: str, name: str) -> bool:
    """Return True if the pattern, where `*` stands for any text, is of the whole name. No regex: those backtrack."""
    first, *later_pieces = pattern.split("*")
    if not later_pieces or not name.startswith(first):
        return name == pattern
    *middle, last = later_pieces
    at = len(first)
    for piece in middle:
        position = name.find(piece, at)
        if position < 0:
            return False
        at = position + len(piece)
    return name.endswith(last) and at + len(last) <= len(name)


def _role(ask: AccessRequest) -> Role:
    """Return the least role that may do it."""
    if ask.verb == "admin" or not ask.kind:
        return "admin"
    if ask.verb in _READ and ask.sub in _SEEN:
        return "viewer"
    if ask.namespace == "":
        return "admin"
    if ask.sub and ask.kind in _USED_BY_USERS:
        return "user"
    return _WRITERS.get(ask.kind, "operator")


def _at_least(grant: Grant, role: Role) -> bool:
    return ROLES.index(grant.role) >= ROLES.index(role)


def _reaches(grant: Grant, ask: AccessRequest) -> bool:
    """Return True if the grant applies to the namespace of the request. Everyone reads host-scoped objects."""
    if EVERYWHERE in grant.namespaces:
        return True
    if ask.namespace == "":
        return bool(ask.kind) and ask.verb in _READ and ask.sub in _SEEN
    return ask.namespace is not None and any(_matches(namespace, ask.namespace) for namespace in grant.namespaces)


def _matches(pattern: str, namespace: str) -> bool:
    if pattern.endswith("*"):
        return namespace.startswith(pattern[:-1])
    return namespace == pattern


def _refusal_message(caller: Caller, ask: AccessRequest, role: Role) -> str:
    if not any(_usable(caller)) and caller.grants:
        patterns = sorted({name for grant in caller.grants for name in grant.tools or ()})
        message = f"{caller.name} may only call MCP tools ({_listed(patterns)})"
        return f"{message}; use `POST /mcp` or `/mcp/servers`, or another token"
    what = " ".join(word for word in (ask.verb, ask.kind, ask.sub) if word)
    if ask.verb == "admin" or not ask.kind:
        return f"{caller.name} may not do this; it needs the role admin in every namespace (`*`)"
    if ask.namespace is None:
        return f"{caller.name} may not {what} in every namespace; name one that you may read (`-n NAME`)"
    # It names what is missing, and nothing of what there is.
    where = f"namespace `{ask.namespace}`" if ask.namespace else "every namespace (`*`)"
    return f"{caller.name} may not {what}; it needs the role {role} in {where}"


def _beyond(grant: Grant, kind: Kind, spec: Model, policy: Policy) -> Iterator[Refusal]:
    """Yield a refusal for each field of the spec beyond the bounds of one grant."""
    if not grant.bounded:
        return
    if kind.name == "WorkflowRun":  # judged with the sandbox that it creates (service/objects/run_start.py)
        return
    if kind.name == "SandboxSnapshot":  # names a sandbox, and no image, level or limit
        return
    if kind.name not in _BOUNDED:
        yield Refusal("kind", f"a grant with bounds (levels, images, limits) can't write a {kind.name}; ask an admin")
        return
    yield from _bound_refusals(grant, spec, "spec")
    yield from _weights(grant, spec)
    if isinstance(spec, SandboxSpec):
        template = at_own_level(spec, spec.template) if spec.template is not None else None
        yield from _limits(grant, spec.resources, template, policy)
    elif isinstance(spec, Template):
        yield from _limits(grant, Resources(), spec, policy)


def _verified_refusals(grant: Grant, spec: Model) -> Iterator[Refusal]:
    """Yield a refusal if the grant's holder calls an MCP server verified, and is no admin."""
    if isinstance(spec, MCPServerSpec) and spec.trust == "verified" and not _at_least(grant, "admin"):
        yield Refusal("spec.trust", "`verified` needs the role admin in the namespace; write user_added, or ask one")


def _bound_refusals(grant: Grant, part: Model, at: str) -> Iterator[Refusal]:
    """Yield refusals for images and levels, wherever the spec names any."""
    for name, info in type(part).model_fields.items():
        value, path = getattr(part, name), f"{at}.{info.alias or name}"
        if isinstance(value, Model):
            yield from _bound_refusals(grant, value, path)
        elif isinstance(value, tuple):
            for number, element in enumerate(value):
                if isinstance(element, Model):
                    yield from _bound_refusals(grant, element, f"{path}[{number}]")
        elif name == "image" and isinstance(value, str):
            yield from _image(grant, value, path)
        elif name == "security_level" and isinstance(value, str):
            yield from _level(grant, value, path)


def _weights(grant: Grant, spec: Model) -> Iterator[Refusal]:
    """Yield a refusal for each weight or priority above the grant's, but for those of stored templates."""
    requested: dict[str, tuple[int | None, int]] = {}
    shares = _ORDINARY_SHARES if grant.cpu_shares is None else grant.cpu_shares
    if isinstance(spec, SandboxSpec):
        requested["spec.resources.cpuShares"] = spec.resources.cpu_shares, shares
        if spec.template is not None:
            requested["spec.template.resources.cpuShares"] = spec.template.resources.cpu_shares, shares
    elif isinstance(spec, Template):
        requested["spec.resources.cpuShares"] = spec.resources.cpu_shares, shares
    if isinstance(spec, SandboxSpec | SandboxPoolSpec):
        requested["spec.priority"] = spec.priority, grant.priority or 0
    for path, (value, most) in requested.items():
        if value is not None and value > most:
            yield Refusal(path, f"{value} is more than you may request; at most {most} for each sandbox")


def _level(grant: Grant, level: str, path: str) -> Iterator[Refusal]:
    if grant.levels is not None and level not in grant.levels:
        yield Refusal(path, f"`{level}` is not one of your levels; choose from {_listed(grant.levels)}")


def _image(grant: Grant, image: str, path: str) -> Iterator[Refusal]:
    if grant.images is not None and not any(_is_image(each, image) for each in grant.images):
        yield Refusal(path, f"`{image}` is not one of your images; choose from {_listed(grant.images)}")
    if grant.require_digest and not _DIGEST.search(image):
        yield Refusal(path, f"`{image}` must be pinned; write it with its digest, NAME@sha256:...")


def _is_image(pattern: str, image: str) -> bool:
    if not pattern.endswith("*"):
        return image == pattern
    beginning = pattern[:-1]
    if not image.startswith(beginning) or len(image) == len(beginning):
        return False
    # A `/` ends a host's port, too: `python:*` must not let `python:5000/other` in.
    return beginning == "" or beginning.endswith("/") or "/" not in image[len(beginning) :]


def _limits(grant: Grant, resources: Resources, template: Template | None, policy: Policy) -> Iterator[Refusal]:
    """Yield a refusal for each limit above the grant's, defaults too. With a stored template, each must be named."""
    level = policy.levels.get(template.security_level, FULL_ISOLATION) if template else None
    requested = list(_effective(resources.limits, template, level.limits if level else None))
    if by_name := resources.gpu_device_ids if template is None else gpus.requested_devices(resources, template):
        requested[4] = len(by_name)
    bounds = grant.limits
    for name, most, value, format_amount in (
        ("cpu", bounds.cpu, requested[0], format_cpu),
        ("memory", bounds.memory, requested[1], format_bytes),
        ("pids", bounds.pids, requested[2], str),
        ("disk", bounds.disk, requested[3], format_bytes),
        ("gpus", bounds.gpus, requested[4], str),
    ):
        if most is None or (value is not None and value <= most):
            continue
        what = "must be set" if value is None else f"{format_amount(value)} is more than you may request"
        yield Refusal(f"spec.resources.limits.{name}", f"{what}; at most {format_amount(most)} for each sandbox")


def _effective(requested: ResourceLimits, template: Template | None, level: Limits | None) -> tuple[int | None, ...]:
    shared = template.resources.limits if template else ResourceLimits()

    def first(*values: int | None) -> int | None:
        return next((limit for limit in values if limit is not None), None)

    return (
        first(requested.cpu, shared.cpu, level.cpu_millicores if level else None),
        first(requested.memory, shared.memory, level.memory_bytes if level else None),
        first(requested.pids, shared.pids, level.pids if level else None),
        first(requested.disk, shared.disk, level.disk_bytes if level else None),
        first(requested.gpus, shared.gpus, level.gpus if level else None),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
