"""Imports of all commands and of the daemon, and its routes, for the process that they are forked off (forks.py)."""

import asyncio
from contextlib import suppress
from typing import Any

import httpx  # noqa: F401
import jsonpath  # noqa: F401
import rich.console
import rich.table  # noqa: F401
import websockets.sync.client  # noqa: F401
import yaml  # noqa: F401
from starlette.exceptions import HTTPException

import controller.app.daemon  # noqa: F401
from controller.api.app import routed_app
from controller.cli.commands import COMMANDS, load
from controller.kinds.registry import discover

for name in COMMANDS:
    load(name)


async def _asked(message: Any = None) -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _ask() -> None:
    """Have the routes of every daemon worked out, as the first request does: for one that is served nowhere."""
    app = routed_app(discover(), speaks_mcp=True)
    scope = {"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": [], "query_string": b""}
    with suppress(HTTPException):
        await app.router({**scope, "app": app}, _asked, _asked)


asyncio.run(_ask())
