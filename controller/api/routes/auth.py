"""whoami, can-i and bearer tokens."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.parsing import BoundedRoute
from controller.kinds.access.access import VERBS, AccessRequest, Grant, Token, Verb
from controller.kinds.base import Name
from controller.kinds.registry import Registry
from controller.service import errors
from controller.service.access import access
from controller.service.access.token_admin import LONGEST_SECONDS
from controller.service.listing import serialize
from controller.version import API_VERSION


class CanI(BaseModel):
    """One request to check. `namespace` null means every namespace, or a cluster-scoped kind."""

    model_config = ConfigDict(extra="forbid")

    verb: Annotated[str, Field(max_length=64, description=f"one of {', '.join(VERBS)}")]
    kind: Annotated[str, Field(max_length=64, description="a kind, by any of its names")]
    namespace: Annotated[str | None, Field(max_length=253)] = None
    name: Annotated[str, Field(max_length=253)] = ""
    subresource: Annotated[str, Field(max_length=64)] = ""


class TokenRequest(BaseModel):
    """A token to create. With `expirationSeconds` null it is valid until revoked."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    grant: Grant
    expirationSeconds: Annotated[int | None, Field(ge=1, le=int(LONGEST_SECONDS))] = 30 * 86400


class WhoAmI(models.Shape):
    """The caller: name, source (peer credentials or a token) and grants."""

    apiVersion: models.Version
    kind: Literal["WhoAmI"]
    name: str
    source: str
    grants: list[Grant]


class Decision(models.Shape):
    """Answer to one request to check; `reason` names a missing grant."""

    apiVersion: models.Version
    kind: Literal["CanI"]
    allowed: bool
    reason: str


class TokenMeta(models.Shape):
    """Metadata of a token. The time is RFC 3339 in UTC."""

    name: str
    uid: str
    creationTimestamp: str


class TokenInfo(models.Shape):
    """A token without its text. `expires` and `revoked` are there if they have a time."""

    apiVersion: models.Version
    kind: Literal["Token"]
    metadata: TokenMeta
    grant: Grant
    createdBy: str
    state: str
    expires: str = ""
    revoked: str = ""


class CreatedToken(TokenInfo):
    """A new token with its text, which is never shown again."""

    token: str


class TokenList(models.Shape):
    """Every token."""

    apiVersion: models.Version
    kind: Literal["TokenList"]
    items: list[TokenInfo]


routes = APIRouter(prefix=PREFIX, tags=["access"], route_class=BoundedRoute)
_FAILURES: dict[int | str, dict[str, Any]] = models.failures(errors.BadRequest, errors.ServiceUnavailable)


@routes.get("/auth/whoami", operation_id="whoAmI", responses={200: {"model": WhoAmI}, **_FAILURES})
def whoami() -> JSONResponse:
    """The caller's name, source and grants."""
    caller = access.caller()
    grants = [_grant(grant) for grant in caller.grants] if caller else [_grant(Grant(role="admin"))]
    name, source = (caller.name, caller.source) if caller else ("paddock", "")
    body = {"apiVersion": API_VERSION, "kind": "WhoAmI", "name": name, "source": source, "grants": grants}
    return JSONResponse(body)


@routes.post("/auth/can-i", operation_id="canI", responses={200: {"model": Decision}, **_FAILURES})
def can_i(services: UseCases, question: CanI) -> JSONResponse:
    """Check if the caller may do this; if not, the reason names the missing grant."""
    decision = access.decision(_ask(services.registry, question))
    body = {"apiVersion": API_VERSION, "kind": "CanI", "allowed": decision.allowed, "reason": decision.reason}
    return JSONResponse(body)


@routes.post(
    "/tokens",
    operation_id="createToken",
    status_code=201,
    responses={201: {"model": CreatedToken}, 409: {}, **_FAILURES},
)
def create(services: UseCases, request: TokenRequest) -> JSONResponse:
    """Create a token. Only this response contains its text."""
    created = services.tokens.create(request.name, request.grant, seconds=request.expirationSeconds)
    return JSONResponse({**_token(created.token, services.tokens.now()), "token": created.text}, 201)


@routes.get("/tokens", operation_id="listTokens", responses={200: {"model": TokenList}, **_FAILURES})
def list_(services: UseCases) -> JSONResponse:
    """Every token, without its text."""
    items = [_token(token, services.tokens.now()) for token in services.tokens.list()]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "TokenList", "items": items})


@routes.delete(
    "/tokens/{name}", operation_id="revokeToken", responses={200: {"model": TokenInfo}, 404: {}, **_FAILURES}
)
def revoke(services: UseCases, name: Annotated[str, Path(description="the token's name")]) -> JSONResponse:
    """Revoke a token now. Its open requests end: watches, commands, logs, transfers, ports."""
    return JSONResponse(_token(services.tokens.revoke(name), services.tokens.now()))


def _ask(registry: Registry, question: CanI) -> AccessRequest:
    kind = registry.by_word(question.kind)
    if kind is None:
        raise errors.BadRequest(f"there is no kind `{question.kind}`; `paddock explain` lists the kinds")
    verb: Verb | None = next((known_verb for known_verb in VERBS if known_verb == question.verb), None)
    if verb is None:
        raise errors.BadRequest(f"`{question.verb}` is not a verb; use one of {', '.join(VERBS)}")
    namespace = question.namespace if kind.namespaced else ""
    return AccessRequest(verb, kind.name, namespace, question.name, question.subresource)


def _grant(grant: Grant) -> serialize.Json:
    bounds: serialize.Json = grant.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"role": grant.role, "namespaces": list(grant.namespaces), **bounds}


def _token(token: Token, now: float) -> serialize.Json:
    times = {"expires": token.expires_at, "revoked": token.revoked_at}
    return {
        "apiVersion": API_VERSION,
        "kind": "Token",
        "metadata": {"name": token.name, "uid": token.id, "creationTimestamp": serialize.timestamp(token.created_at)},
        "grant": _grant(token.grant),
        "createdBy": token.created_by,
        "state": token.state(now),
        **{name: serialize.timestamp(at) for name, at in times.items() if at is not None},
    }
