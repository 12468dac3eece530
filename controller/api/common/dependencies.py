"""Dependencies of route handlers: what one application keeps in `app.state` for all of its requests."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from controller.service.parsing import Parsing
from controller.service.services import Services


async def _services(connection: HTTPConnection) -> Services:
    services: Services = connection.app.state.services
    return services


async def _parsing(connection: HTTPConnection) -> Parsing:
    parsing: Parsing = connection.app.state.parsing
    return parsing


# They are coroutines because FastAPI runs every other dependency on a thread.
UseCases = Annotated[Services, Depends(_services)]
LargeBodies = Annotated[Parsing, Depends(_parsing)]
