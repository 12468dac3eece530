"""Whether the daemon is alive, whether it can do its work, and what it is."""

import platform
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from controller.api.common.models import VersionInfo
from controller.version import API_VERSION, VERSION

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Something fails; it is named."}
}


routes = APIRouter(tags=["daemon"])


@routes.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process is alive."""
    return "ok"


@routes.get("/readyz", response_class=PlainTextResponse, responses=_NOT_READY)
def readyz(request: Request) -> PlainTextResponse:
    """Each thing the daemon needs, by name; 503 when one of them fails, with the reason."""
    checks = request.app.state.ready()
    failed = [name for name, problem in checks if problem]
    lines = [f"[-]{name}: {problem}" if problem else f"[+]{name} ok" for name, problem in checks]
    lines.append(f"not ready: {', '.join(failed)}" if failed else "ready")
    return PlainTextResponse("\n".join(lines) + "\n", status_code=503 if failed else 200)


@routes.get("/version", responses={200: {"model": VersionInfo}})
async def version() -> JSONResponse:
    """Which Paddock answers, and the API version it speaks."""
    return JSONResponse({"version": VERSION, "apiVersion": API_VERSION, "python": platform.python_version()})


@routes.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """The description of all this, for generated clients."""
    return JSONResponse(request.app.openapi())
