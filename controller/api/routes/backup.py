"""GET backup: a copy of the store, for admins of everything."""

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from controller.api.common import models
from controller.api.common.paths import PREFIX
from controller.service import errors
from controller.service.backup import Backup

MEDIA_TYPE = "application/vnd.sqlite3"
_PIECE_BYTES = 1 << 18


def router(backup: Backup) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix=PREFIX, tags=["store"])
    bytes_ = {"schema": {"type": "string", "format": "binary"}}
    answers: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: bytes_}}}

    @routes.get(
        "/backup",
        operation_id="backup",
        response_class=StreamingResponse,
        responses={**answers, **models.failures(errors.ServiceUnavailable)},
    )
    def make() -> StreamingResponse:
        """Everything that is stored, of one moment, as a SQLite database. Its length is announced."""
        file = backup.make()
        length = str(os.fstat(file.fileno()).st_size)
        return StreamingResponse(_pieces(file), media_type=MEDIA_TYPE, headers={"Content-Length": length})

    return routes


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
