"""Errors as Kubernetes' Status bodies, whatever raised them."""

import json
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from controller.api.middleware.trace import HEADER, SCOPE_KEY
from controller.service.errors import BadRequest, ServiceError
from controller.service.objects import serialize
from controller.service.trace import tracing

_log = structlog.get_logger("paddock.api")
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 405: {"Allow": "GET"}}
_MOST_CAUSES, _MOST_LETTERS = 100, 200
_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
}
_REASONS |= {429: "TooManyRequests"}


class _Told(JSONResponse):
    """In plain characters: words may hold half a character that somebody sent, which UTF-8 can't write."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def install(app: FastAPI) -> None:
    """Make every error of this application a Status body."""
    app.add_exception_handler(ServiceError, _service)
    app.add_exception_handler(RequestValidationError, _request)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unforeseen)


def answer(error: ServiceError) -> JSONResponse:
    """The response for a use-case's error."""
    return _Told(serialize.failure(error), status_code=error.code, headers=_HEADERS.get(error.code))


def _service(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)  # registered for these only
    return answer(error)


def _request(_request: Request, error: Exception) -> JSONResponse:
    """A request that is not as /openapi.json describes it."""
    assert isinstance(error, RequestValidationError)
    every = error.errors()
    found = [
        (".".join(map(str, each["loc"]))[:_MOST_LETTERS], str(each["msg"])[:_MOST_LETTERS])
        for each in every[:_MOST_CAUSES]
    ]
    if len(every) > _MOST_CAUSES:
        found.append(("body", f"and {len(every) - _MOST_CAUSES} more"))
    causes = [{"field": place, "message": message, "reason": "FieldValueInvalid"} for place, message in found]
    return answer(BadRequest("; ".join(f"{place}: {message}" for place, message in found), causes=causes))


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    reason = _REASONS.get(error.status_code, "BadRequest")
    message = str(error.detail)
    if error.status_code == 404:
        message = f"there is nothing at {request.url.path}; `/openapi.json` lists what is served"
    if error.status_code == 405:
        message = f"{request.method} is not served at {request.url.path}; `/openapi.json` lists what is"
    return JSONResponse(
        serialize.status(reason, error.status_code, message), error.status_code, dict(error.headers or {})
    )


def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    """A defect of ours: the details are for the log, not for the client."""
    trace = str(request.scope.get(SCOPE_KEY, ""))
    with tracing(trace):
        _log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    told = serialize.status("InternalError", 500, "Paddock failed on this; the daemon's log says why")
    return JSONResponse(told, 500, {HEADER: trace})
