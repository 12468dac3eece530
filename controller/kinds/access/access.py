"""Who may do what: roles, what a caller was granted, and one thing that is asked for. Frozen data."""

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


class Grant(Model):
    """A role in some namespaces, and the bounds of what its holder may ask for there. None: no bound of its own.

    `limits` is the most that one sandbox may ask for, as are `cpuShares` and `priority`: a grant with any bound that
    does not name these lets nobody ask for more than 1024 (the ordinary weight) and 0. A template that is stored in the
    namespace is the word of those who may write it: what it names is open to everyone who may use it, whatever the
    bounds say of images and levels.
    """

    role: Role
    namespaces: Annotated[tuple[NamespacePattern, ...], Field(min_length=1, max_length=100)] = (EVERYWHERE,)
    levels: Annotated[tuple[Text, ...] | None, Field(max_length=100)] = None
    images: Annotated[tuple[ImagePattern, ...] | None, Field(max_length=1000)] = None
    require_digest: Flag = False
    limits: ResourceLimits = ResourceLimits()
    cpu_shares: Annotated[Whole | None, Field(ge=2, le=262144)] = None
    priority: Annotated[Whole | None, Field(ge=-1_000_000, le=1_000_000)] = None

    @property
    def bounded(self) -> bool:
        """Whether it bounds what may be asked for."""
        bounds = (
            self.levels,
            self.images,
            self.cpu_shares,
            self.priority,
            *(getattr(self.limits, name) for name in ResourceLimits.model_fields),
        )
        return self.require_digest or any(each is not None for each in bounds)


class PeerGrant(Grant):
    """A grant to a user or a group of this host who comes over the Unix socket."""

    subject: Subject


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a name (`root (uid 0)`, `token ci`), where from, and what was granted.

    By a token: its id, and when it expires (Unix seconds; None: never).
    """

    name: str
    source: str = ""
    grants: tuple[Grant, ...] = ()
    token_id: str = ""
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing that is asked for. `namespace` None: every namespace; "": the host's own.

    `sub` is a part of the object, such as `logs` or `exec`; `name` is empty for a whole collection.
    """

    verb: Verb
    kind: str = ""
    namespace: str | None = ""
    name: str = ""
    sub: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """`hidden`: whoever asks may not even know what is there. `reason` says what it would take."""

    allowed: bool
    reason: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is kept: the hash of its secret, never the secret. Times are Unix seconds."""

    id: str
    name: str
    digest: str = field(repr=False)
    grant: Grant
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        """Whether it opens anything now."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or now < self.expires_at else "expired"
