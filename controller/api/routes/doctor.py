"""GET doctor: checks of the daemon's host, as `paddock doctor` makes them. For admins of every namespace."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.models import PREFIX
from controller.service import errors
from controller.version import API_VERSION

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": models.DoctorReport},
    **models.failures(errors.ServiceUnavailable),
}

routes = APIRouter(prefix=PREFIX, tags=["daemon"])


@routes.get("/doctor", operation_id="readDoctor", responses=_ANSWERS)
def doctor(request: Request) -> JSONResponse:
    """Check the host now: engine, kernel, guard, folders, clock, disk, store, sockets."""
    findings = [{name: str(value) for name, value in asdict(finding).items()} for finding in request.app.state.doctor()]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "DoctorReport", "items": findings})
