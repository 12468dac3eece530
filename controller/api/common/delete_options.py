"""What a DELETE asks for its dependents: in the query or, as Kubernetes' clients do, in a DeleteOptions body."""

from typing import Annotated

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict

from controller.kinds.common.owner_reference import Propagation
from controller.service import errors


class DeleteOptions(BaseModel):
    """Kubernetes' DeleteOptions, as far as they are served here: others are refused, not passed over."""

    model_config = ConfigDict(extra="forbid")

    kind: str = "DeleteOptions"
    apiVersion: str = "v1"
    propagationPolicy: Propagation | None = None


def propagation(
    policy: Annotated[
        Propagation | None,
        Query(alias="propagationPolicy", description="what becomes of the objects that it owns; default Background"),
    ] = None,
    options: Annotated[DeleteOptions | None, Body()] = None,
) -> Propagation | None:
    """The policy of the request. Raises BadRequest when query and body name two."""
    in_body = options.propagationPolicy if options else None
    if policy and in_body and policy != in_body:
        raise errors.BadRequest(f"propagationPolicy is {policy} in the query and {in_body} in the body; name one")
    return policy or in_body
