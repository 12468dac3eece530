"""Secrets of this host: GET lists them with what uses them, PUT sets one. No answer has a value."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.service import errors
from controller.service.listing import serialize
from controller.service.objects.secret_admin import UsedSecret
from controller.version import API_VERSION

_MOST_CHARACTERS = 1 << 20


class SecretUse(models.Shape):
    """An object that names the secret."""

    kind: str
    name: str


class Secret(models.Shape):
    """A secret of this host, without its value. `changedTime` is null for one that is named, and not set.

    `for` is providers, sandboxes, or a host's name; `hosts` are those that a provider's key may be sent to.
    """

    model_config = ConfigDict(populate_by_name=True)

    namespace: str
    name: str
    use: str = Field(alias="for")
    changedTime: str | None
    hosts: list[str]
    usedBy: list[SecretUse]


class SecretList(models.Shape):
    """The secrets, by namespace, use and name."""

    apiVersion: models.Version
    kind: str
    items: list[Secret]


class SecretResult(models.Shape):
    """Outcome: `result` is created or changed."""

    apiVersion: models.Version
    kind: str
    result: str


class SecretValue(BaseModel):
    """A value to set. Of a provider's key without hosts those it has stay."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    value: Annotated[str, Field(min_length=1, max_length=_MOST_CHARACTERS, repr=False)]
    use: Annotated[str, Field(alias="for", min_length=1, max_length=253)]
    hosts: Annotated[list[str], Field(max_length=64)] = []


routes = APIRouter(prefix=PREFIX, tags=["secrets"])
_FAILURES: dict[int | str, dict[str, Any]] = models.failures(errors.BadRequest, errors.ServiceUnavailable)


@routes.get("/secrets", operation_id="listSecrets", responses={200: {"model": SecretList}, **_FAILURES})
def list_(services: UseCases) -> JSONResponse:
    """The secrets of the host that is asked, without their values, and the objects that name them."""
    items = [_secret(secret) for secret in services.secrets.list()]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "SecretList", "items": items})


@routes.put(
    "/namespaces/{namespace}/secrets/{name}",
    operation_id="setSecret",
    responses={200: {"model": SecretResult}, **_FAILURES},
)
def set_(
    services: UseCases,
    secret: SecretValue,
    namespace: Annotated[str, Path(description="namespace of the secret")],
    name: Annotated[str, Path(description="name of the secret")],
) -> JSONResponse:
    """Set a secret on the host that is asked. Its value is never returned, logged or stored elsewhere."""
    is_new = services.secrets.write(namespace, name, secret.value.encode(), secret.use, secret.hosts)
    return JSONResponse(
        {"apiVersion": API_VERSION, "kind": "SecretResult", "result": "created" if is_new else "changed"}
    )


def _secret(secret: UsedSecret) -> dict[str, Any]:
    return {
        "namespace": secret.namespace,
        "name": secret.name,
        "for": secret.use,
        "changedTime": None if secret.changed_at is None else serialize.timestamp(secret.changed_at),
        "hosts": list(secret.hosts),
        "usedBy": [{"kind": user.kind, "name": user.name} for user in secret.users],
    }
