"""Access control data: roles, the grants of a caller, and one request for access. Frozen."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from controller.kinds.base import Flag, Form, Model, Text, Whole
from controller.kinds.sandbox import ResourceLimits

Role = Literal["viewer", "user", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "user", "operator", "admin")
Verb = Literal["get", "list", "create", "update", "delete", "use", "apply", "admin", "self"]
VERBS: tuple[Verb, ...] = ("get", "list", "create", "update", "delete", "use")
EVERYWHERE = "*"

NamespacePattern = Annotated[
    Text,
    Field(min_length=1, max_length=52, pattern=r"^(\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?|[a-z0-9][a-z0-9-]*-\*)$"),
    Form("a namespace, or a beginning with `-*` at its end (team-*), or * for all and the host's own kinds"),
]
ImagePattern = Annotated[
    Text,
    Field(min_length=1, max_length=512, pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._/:@-]*([/:@]\*)?)$"),
    Form("an image as specs name it; a `*` at the end, after `/`, `:` or `@`, stands for any rest"),
]
Subject = Annotated[
    Text,
    Field(max_length=128, pattern=r"^((user|group):[^\s:]+|(uid|gid):[0-9]{1,10})$"),
    Form("user:NAME, uid:NUMBER, group:NAME or gid:NUMBER"),
]


ToolPattern = Annotated[
    Text,
    Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.*/-]+$"),
    Form(
        "the name of an MCP tool, such as docker.container.exec, or SERVER.TOOL of an MCPServer; `*` stands for any"
        " part of a name, but for none of a server's"
    ),
]


class Grant(Model):
    """A role in some namespaces, and bounds on what its holder may ask for there. None: no bound.

    `limits`, `cpuShares` and `priority` are maxima for one sandbox. A grant with any bound that leaves out `cpuShares`
    or `priority` allows at most 1024 (the default weight) and 0. Templates stored in the namespace are open to everyone
    who may use them, whatever the bounds on images and levels say.

    A grant with `tools` holds for calls of these MCP tools only, and for no other request. Tools of an MCPServer are
    `SERVER.TOOL`: a `*` never stands for the server.
    """

    role: Role
    namespaces: Annotated[tuple[NamespacePattern, ...], Field(min_length=1, max_length=100)] = (EVERYWHERE,)
    levels: Annotated[tuple[Text, ...] | None, Field(max_length=100)] = None
    images: Annotated[tuple[ImagePattern, ...] | None, Field(max_length=1000)] = None
    require_digest: Flag = False
    limits: ResourceLimits = ResourceLimits()
    cpu_shares: Annotated[Whole | None, Field(ge=2, le=262144)] = None
    priority: Annotated[Whole | None, Field(ge=-1_000_000, le=1_000_000)] = None
    tools: Annotated[tuple[ToolPattern, ...] | None, Field(max_length=100)] = None

    @property
    def bounded(self) -> bool:
        """Return True if the grant has any bound."""
        bounds = (
            self.levels,
            self.images,
            self.cpu_shares,
            self.priority,
            *(getattr(self.limits, name) for name in ResourceLimits.model_fields),
        )
        return self.require_digest or any(bound is not None for bound in bounds)


class PeerGrant(Grant):
    """A grant to a user or a group of this host that connects over the Unix socket."""

    subject: Subject


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller: name (`root (uid 0)`, `token ci`), source address, and grants.

    For a token: its id, and when it expires (Unix seconds; None: never). `tool`: the MCP tool that acts for the caller.
    `uid`: that of a user of this host.
    """

    name: str
    source: str = ""
    grants: tuple[Grant, ...] = ()
    token_id: str = ""
    expires_at: float | None = None
    tool: str = ""
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One request to authorize. `namespace` None: every namespace; "": host-scoped.

    `sub` is a subresource, such as `logs` or `exec`. `name` is empty for a whole collection.
    """

    verb: Verb
    kind: str = ""
    namespace: str | None = ""
    name: str = ""
    sub: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of an authorization.

    `hidden`: answer 404, because the caller may not know what exists. `reason` says which role is missing.
    """

    allowed: bool
    reason: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as stored: the hash of its secret, never the secret. Times are Unix seconds."""

    id: str
    name: str
    digest: str = field(repr=False)
    grant: Grant
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        """Return the state of the token now."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or now < self.expires_at else "expired"
