"""Liveness, readiness, version, /openapi.json and /docs."""

import platform
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from controller.api.common.docs_page import HEADERS, page
from controller.api.common.models import VERSION_PATH, VersionInfo
from controller.version import API_VERSION, VERSION

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "A check fails; the body names it."}
}


routes = APIRouter(tags=["daemon"])


@routes.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process is alive."""
    return "ok"


@routes.get("/readyz", response_class=PlainTextResponse, responses=_NOT_READY)
def readyz(request: Request) -> PlainTextResponse:
    """Readiness checks by name; 503 when one fails, with the reason."""
    checks = request.app.state.ready()
    failed = [name for name, problem in checks if problem]
    lines = [f"[-]{name}: {problem}" if problem else f"[+]{name} ok" for name, problem in checks]
    lines.append(f"not ready: {', '.join(failed)}" if failed else "ready")
    return PlainTextResponse("\n".join(lines) + "\n", status_code=503 if failed else 200)


@routes.get(VERSION_PATH, responses={200: {"model": VersionInfo}})
async def version(request: Request) -> JSONResponse:
    """Version of the daemon and of its API."""
    major, minor = VERSION.split(".")[:2]
    version_info = {"version": VERSION, "apiVersion": API_VERSION, "python": platform.python_version()}
    version_info |= {"major": major, "minor": minor, "gitVersion": f"v{VERSION}"}
    url = request.app.state.e2b_url
    return JSONResponse({**version_info, "e2b": url} if url else version_info)


@routes.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """The OpenAPI document, for generated clients."""
    return JSONResponse(request.app.openapi())


@routes.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The same as a page for people, without scripts and without anything from elsewhere."""
    return HTMLResponse(page(request.app.openapi()), headers=HEADERS)
