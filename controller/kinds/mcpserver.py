"""MCPServer: somebody else's MCP server over stdin and stdout, which runs only in sandboxes, one for each session."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from controller.kinds.base import Flag, Form, Model, Name, Text, Whole
from controller.kinds.common.quantity import BytesQuantity, CpuQuantity
from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import (
    CPU_MIN_MILLICORES,
    HOST_NAME_PATTERN,
    AbsolutePath,
    Argument,
    EnvName,
    EnvVar,
    ImageName,
    age,
)

SESSION_LABEL = "paddock/mcp-session"
"""On the sandbox of a session: the id of the session."""
INSTALL_LABEL = "paddock/mcp-install"
"""On the sandbox that fetches packages."""
POOL_LABEL = "paddock/mcp-server"
"""On the pool and template of warm sandboxes: the name of their server."""
INSTALLED = "install"
"""Part of the status: the packages, their image by digest, and the lock."""
EVERY_HOST = "*"
"""In the list of a verified server: every public host."""
_MEMORY_MIN_BYTES = 32 << 20  # with room for a program beside the sandbox's folders in memory
READY, SANDBOXED = "Ready", "Sandboxed"
_TOOL_PATTERN = r"^[A-Za-z0-9_.*/-]+$"

ToolPattern = Annotated[
    Text,
    Field(min_length=1, max_length=128, pattern=_TOOL_PATTERN),
    Form("the name of a tool; `*` stands for any characters"),
]
UriPattern = Annotated[
    Text,
    Field(min_length=1, max_length=1024, pattern=r"^[!-~]+$"),
    Form("the URI of a resource; `*` stands for any characters"),
]
Digest = Annotated[Text, Field(pattern=r"^(sha256:[0-9a-f]{64})?$"), Form("sha256: and 64 hexadecimal digits")]


AnyHost = Annotated[
    Text,
    Field(min_length=1, max_length=253, pattern=rf"^(\*|{HOST_NAME_PATTERN})$"),
    Form("a whole host name in lower case, such as git.example.org; `*.` may stand in front; or `*` alone, for all"),
]


class ServerPackage(Model):
    """An exact version of a registry's package. It is installed once, into an image of its own."""

    registry: Literal["npm", "pypi"]
    """Registry that has it, as the operator configured it."""
    name: Annotated[Text, Field(min_length=1, max_length=214)]
    """Name of the package, such as @scope/server; with extras for pypi, such as server[cli]."""
    version: Annotated[Text, Field(min_length=1, max_length=64)]
    """Its version, exactly."""


class SecretEnv(Model):
    """An operator's secret for this namespace, as a variable of the server's process alone."""

    name: Name
    """Name of the secret, among those for this namespace."""
    env: EnvName
    """Name of the variable."""


class ServerNetwork(Model):
    """Network access of the server, by host name."""

    allowed_hosts: Annotated[tuple[AnyHost, ...], Field(max_length=128)] = ()
    """Whole host names that it may reach through its proxy. Empty: no network at all. `*` alone: all, if verified."""

    @property
    def is_open(self) -> bool:
        """True: it reaches every public host, without a proxy."""
        return EVERY_HOST in self.allowed_hosts


class ServerTools(Model):
    """Tools of the server that clients get, and the definitions that were approved."""

    allow: Annotated[tuple[ToolPattern, ...], Field(max_length=256)] = ("*",)
    """Tools that clients may call."""
    deny: Annotated[tuple[ToolPattern, ...], Field(max_length=256)] = ()
    """Tools that they may not; it wins."""
    digest: Digest = ""
    """Digest of the approved definitions of its tools. Empty: those of its first start are pinned."""


class ServerPrompts(Model):
    """Prompts of the server that clients get."""

    allow: Annotated[tuple[ToolPattern, ...], Field(max_length=256)] = ("*",)
    """Prompts that clients may use."""
    deny: Annotated[tuple[ToolPattern, ...], Field(max_length=256)] = ()
    """Prompts that they may not; it wins."""


class ServerResources(Model):
    """Resources of the server that clients get, by their URIs."""

    allow: Annotated[tuple[UriPattern, ...], Field(max_length=256)] = ("*",)
    """URIs of resources that clients may read and follow."""
    deny: Annotated[tuple[UriPattern, ...], Field(max_length=256)] = ()
    """URIs of those that they may not; it wins."""


class ServerLimits(Model):
    """Lower limits for the sandboxes of the server than those of its trust."""

    cpu: Annotated[CpuQuantity | None, Field(ge=CPU_MIN_MILLICORES, le=1_024_000)] = None
    """CPU time of a session. Default: half a processor, verified one."""
    memory: Annotated[BytesQuantity | None, Field(ge=_MEMORY_MIN_BYTES, le=1 << 46)] = None
    """Memory of a session. Default: 512Mi, verified 1Gi."""
    pids: Annotated[Whole | None, Field(ge=1, le=1 << 22)] = None
    """Processes and threads of a session. Default: 50, verified 100."""


class MCPServerSpec(Model):
    """A server of MCP that speaks over stdin and stdout. Each session of a client runs it in a sandbox of its own."""

    enabled: Flag = True
    """False: its sessions end, and none begins."""
    trust: Literal["user_added", "verified"] = "user_added"
    """user_added: 512Mi, half a processor, 50 processes. verified, which an admin writes: 1Gi, one processor, 100."""
    image: ImageName | None = None
    """Image to run it in, or that is the server. Left out: by the command, such as paddock/python:1 for python3.

    With `package`: the image that it is installed on, such as paddock/toolchain:1 for a server that needs git.
    """
    package: ServerPackage | None = None
    """Package that has the server: the same as npx and uvx in `command`, which name one."""
    command: Annotated[Argument, Field(max_length=4096)] = ""
    """Program to run, by its name: node, python, python3, npx, uvx or pipx.

    With `package`: one of the package's programs; left out, the one with its name. With `image` alone: any in it,
    beside `sleep`; left out, the image's own, and it needs nothing else.
    """
    args: Annotated[tuple[Argument, ...], Field(max_length=256)] = ()
    """Arguments of the program; of an image's own those in place of the image's.

    Clients and the sandbox's processes can read them: put no secrets here.
    """
    working_dir: AbsolutePath | None = None
    """Folder of its sandbox to start it in: an empty one that it can't write to if its image has none there."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=128)] = ()
    """Variables of the program. Whoever may read this object can read them: use `secrets` for secrets."""
    secrets: Annotated[tuple[SecretEnv, ...], Field(max_length=32)] = ()
    """Secrets as variables of the program."""
    limits: ServerLimits = ServerLimits()
    """Limits of a session's sandbox, at most those of its trust."""
    network: ServerNetwork = ServerNetwork()
    """Network access. None by default."""
    tools: ServerTools = ServerTools()
    """Its tools that clients get."""
    prompts: ServerPrompts = ServerPrompts()
    """Its prompts that clients get."""
    resources: ServerResources = ServerResources()
    """Its resources that clients get."""
    startup_seconds: Annotated[Whole, Field(ge=1, le=600)] = 30
    """Seconds for its sandbox to start and for it to answer."""
    call_seconds: Annotated[Whole, Field(ge=1, le=86_400)] = 300
    """Maximum of seconds for a call."""
    idle_seconds: Annotated[Whole, Field(ge=1, le=86_400)] = 600
    """Seconds without a call after which a session ends."""
    warm_replicas: Annotated[Whole, Field(ge=0, le=100)] = 0
    """Number of sandboxes kept ready for new sessions, by a SandboxPool of the server's own."""
    sandbox: Literal["Required", "Preferred"] = "Required"
    """Preferred: `paddock mcp connect --allow-unsandboxed` may run it as the user's own process, for verified ones."""


STATES = (
    "Answering",
    "Unused",
    "Disabled",
    "Installing",
    "InstallFailed",
    "ToolsChanged",
    "StartFailed",
    "CrashLoopBackOff",
    "QuotaExceeded",
    "DockerUnavailable",
)
"""States of a server, as `state_word` returns them."""
TRUST_LEVELS: tuple[Literal["user_added", "verified"], ...] = ("user_added", "verified")
"""Values of `trust`."""


def ready_condition(obj: StoredObject) -> Mapping[str, Any]:
    """Return the stored condition Ready; empty if there is none yet."""
    return stored_condition(obj, READY)


def is_sandboxed(obj: StoredObject) -> bool:
    """Return False while a session of the server runs without a sandbox, as a user's own process."""
    return stored_condition(obj, SANDBOXED).get("status") != "False"


def state_word(obj: StoredObject) -> str:
    """Return the STATUS column: one word for people."""
    if not obj.spec.get("enabled", True):
        return "Disabled"
    return str(ready_condition(obj).get("reason", "Unused"))


def _command(obj: StoredObject, _now: float) -> str:
    package_spec = obj.spec.get("package") or {}
    package = (
        f"{package_spec.get('registry')}:{package_spec.get('name')}@{package_spec.get('version')}"
        if package_spec
        else ""
    )
    return " ".join(filter(None, (package, str(obj.spec.get("command", "")), *map(str, obj.spec.get("args", ())))))


def _image(obj: StoredObject, _now: float) -> str:
    return str(obj.spec.get("image") or obj.status.get(INSTALLED, {}).get("image", "-"))


KIND = Kind(
    name="MCPServer",
    plural="mcpservers",
    short_names=("mcps",),
    spec=MCPServerSpec,
    built_in=("docker", "sandbox", "mcp", "paddock"),  # prefixes of Paddock's own tools
    columns=(
        Column("STATUS", lambda obj, _now: state_word(obj)),
        Column("TRUST", lambda obj, _now: str(obj.spec.get("trust", "user_added"))),
        Column("TOOLS", lambda obj, _now: str(obj.status.get("tools", {}).get("count", "-"))),
        Column("SANDBOXED", lambda obj, _now: "Yes" if is_sandboxed(obj) else "No"),
        Column("SANDBOX", lambda obj, _now: str(obj.spec.get("sandbox", "Required")), wide=True),
        Column("COMMAND", _command, wide=True),
        Column("IMAGE", _image, wide=True),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
