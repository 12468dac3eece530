"""OpenAPI as kubectl reads it, and all other routes of this package."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from controller.api.common.dependencies import UseCases
from controller.api.common.paths import OPENAPI_V2, OPENAPI_V3, OPENAPI_V3_KINDS
from controller.api.common.query_names import ANY, takes_query
from controller.api.kubernetes import pods, protobuf, reviews
from controller.api.kubernetes.openapi import openapi_v2, openapi_v3

routes = APIRouter(include_in_schema=False)


@routes.get(OPENAPI_V2)
async def v2(services: UseCases, request: Request) -> Response:
    """Schemas and routes of the kinds; in protocol buffers for clients that ask for them."""
    document = await run_in_threadpool(openapi_v2, services.registry)
    if "protobuf" not in request.headers.get("accept", ""):
        return JSONResponse(document)
    encoded = await run_in_threadpool(protobuf.openapi_v2, document)
    return Response(encoded, media_type=protobuf.OPENAPI_V2)


@routes.get(OPENAPI_V3)
async def v3() -> JSONResponse:
    """The groups that are described."""
    path: dict[str, Any] = {"serverRelativeURL": OPENAPI_V3_KINDS}
    return JSONResponse({"paths": {OPENAPI_V3_KINDS.removeprefix(f"{OPENAPI_V3}/"): path}})


@routes.get(OPENAPI_V3_KINDS)
@takes_query(ANY)
async def v3_of_group(services: UseCases) -> JSONResponse:
    """Schemas and routes of the kinds."""
    return JSONResponse(await run_in_threadpool(openapi_v3, services.registry))


routes.include_router(pods.routes)
routes.include_router(reviews.routes)
