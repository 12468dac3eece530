"""GET backup: a copy of the store, for admins of every namespace."""

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.service import errors

MEDIA_TYPE = "application/vnd.sqlite3"
_PIECE_BYTES = 1 << 18


routes = APIRouter(prefix=PREFIX, tags=["store"])
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_ANSWERS: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: _BYTES}}}


@routes.get(
    "/backup",
    operation_id="backup",
    response_class=StreamingResponse,
    responses={**_ANSWERS, **models.failures(errors.ServiceUnavailable)},
)
def make(services: UseCases) -> StreamingResponse:
    """A consistent copy of the store as a SQLite database, with its Content-Length."""
    file = services.backup.make()
    length = str(os.fstat(file.fileno()).st_size)
    return StreamingResponse(_pieces(file), media_type=MEDIA_TYPE, headers={"Content-Length": length})


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
