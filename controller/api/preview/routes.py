"""Links to a port of a sandbox: made and voided over the API."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.fleet.identity import identity_of
from controller.api.preview.address import PreviewAddress
from controller.kinds.runtime.preview import DEFAULT_SECONDS, MOST_SECONDS, PreviewTarget
from controller.service.errors import BadRequest, Conflict, Forbidden, NotFound, ServiceUnavailable
from controller.service.front.previews import Previews

_PATH = "/namespaces/{namespace}/sandboxes/{name}/previews"
_ANSWERS = models.failures(BadRequest, Forbidden, NotFound, Conflict, ServiceUnavailable)
routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])


class PreviewRequestBody(BaseModel):
    """A port of the sandbox, and for how long the link holds: a week at most."""

    model_config = ConfigDict(extra="forbid")

    port: Annotated[int, Field(ge=1, le=65535)]
    expiresSeconds: Annotated[int, Field(ge=1, le=MOST_SECONDS)] = DEFAULT_SECONDS


class PreviewLinkInfo(models.Shape):
    """A link. Whoever has it has the port until `expires` (Unix seconds). Programs send `token` in a header."""

    url: str
    token: str
    expires: int


class PreviewsVoided(models.Shape):
    """All links of the sandbox have ended."""

    status: Literal["Success"]


class PreviewLinks:
    """Links, and the address under which they are served. `address` is known once the listener is open."""

    def __init__(self, previews: Previews, address: "AddressHolder") -> None:
        self.previews, self.address = previews, address


class AddressHolder:
    """Holder of the public address. Raises ServiceUnavailable while there is no listener."""

    address: PreviewAddress | None = None
    is_public = False
    """True if other machines reach the address (setting preview_domain)."""
    refusal: str = "previews are served by daemons that keep a host"

    def get(self) -> PreviewAddress:
        """Return the address."""
        if self.address is None:
            raise ServiceUnavailable(self.refusal)
        return self.address


async def links_of(connection: HTTPConnection) -> PreviewLinks:
    """Return the links of the request's application. Raises NotFound."""
    links: PreviewLinks | None = connection.app.state.previews
    if links is None:
        raise NotFound(AddressHolder.refusal)
    return links


Links = Annotated[PreviewLinks, Depends(links_of)]


@routes.post(_PATH, operation_id="createSandboxPreview", responses=_ANSWERS, status_code=201)
def create(
    services: UseCases, links: Links, connection: HTTPConnection, namespace: str, name: str, body: PreviewRequestBody
) -> PreviewLinkInfo:
    """Make a link to a port of the sandbox, for a browser. It needs no login: whoever has it has the port."""
    del services
    if identity_of(connection.scope) is not None and not links.address.is_public:
        raise Conflict(
            f"sandbox `{name}` is on another host, which serves previews on its own machine alone; set preview_domain"
            " there, or use `paddock port-forward NAME PORT --open`"
        )
    target = PreviewTarget(namespace, name, body.port)
    link = links.previews.create(target, body.expiresSeconds)
    return PreviewLinkInfo(url=links.address.get().url(link), token=link.token, expires=link.expires)


@routes.delete(_PATH, operation_id="voidSandboxPreviews", responses=_ANSWERS)
def void(links: Links, namespace: str, name: str) -> PreviewsVoided:
    """End all links of the sandbox, and what is open through them."""
    links.previews.void(namespace, name)
    return PreviewsVoided(status="Success")
