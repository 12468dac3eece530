"""Errors of every source as Kubernetes' Status bodies."""

import json
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from controller.api.common.trace import HEADER, SCOPE_KEY
from controller.service.errors import BadRequest, ServiceError
from controller.service.listing import serialize
from controller.service.trace import tracing

_log = structlog.get_logger("paddock.api")
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 405: {"Allow": "GET"}}
_MAX_CAUSES, _MAX_CHARACTERS = 100, 200
_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
}
_REASONS |= {429: "TooManyRequests"}


class _AsciiJson(JSONResponse):
    """A response in ASCII JSON: messages may quote lone surrogates, which UTF-8 can't encode."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def install(app: FastAPI) -> None:
    """Install handlers that answer every error with a Status body."""
    app.add_exception_handler(ServiceError, _service)
    app.add_exception_handler(RequestValidationError, _request)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _internal_error)


def answer(error: ServiceError) -> JSONResponse:
    """Return the response for a use-case's error."""
    return _AsciiJson(
        serialize.failure(error), status_code=error.code, headers=error.headers or _HEADERS.get(error.code)
    )


def _service(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)  # registered for these only
    return answer(error)


def _request(_request: Request, error: Exception) -> JSONResponse:
    """Answer a request that does not match /openapi.json."""
    assert isinstance(error, RequestValidationError)
    found_errors = error.errors()
    faults = [
        (".".join(map(str, detail["loc"]))[:_MAX_CHARACTERS], str(detail["msg"])[:_MAX_CHARACTERS])
        for detail in found_errors[:_MAX_CAUSES]
    ]
    if len(found_errors) > _MAX_CAUSES:
        faults.append(("body", f"and {len(found_errors) - _MAX_CAUSES} more"))
    causes = [{"field": field, "message": message, "reason": "FieldValueInvalid"} for field, message in faults]
    return answer(BadRequest("; ".join(f"{field}: {message}" for field, message in faults), causes=causes))


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    reason = _REASONS.get(error.status_code, "BadRequest")
    message = str(error.detail)
    if error.status_code == 404:
        message = f"nothing is served at {request.url.path}; `/openapi.json` lists all paths"
    if error.status_code == 405:
        message = f"{request.method} is not served at {request.url.path}; `/openapi.json` lists all paths"
    return JSONResponse(
        serialize.status(reason, error.status_code, message), error.status_code, dict(error.headers or {})
    )


def _internal_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an internal error: details go to the log, not to the client."""
    trace = str(request.scope.get(SCOPE_KEY, ""))
    with tracing(trace):
        _log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    body = serialize.status("InternalError", 500, "internal error; the daemon's log has the details")
    return JSONResponse(body, 500, {HEADER: trace})


async def refuse(error: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer an HTTP request or a WebSocket with this error."""
    response = answer(error)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)
