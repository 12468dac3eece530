"""JSON bodies within the limits of service/parsing.py."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from controller.service.errors import ServiceError
from controller.service.parsing import SMALL_BYTES, Parsing, loads


class BoundedRoute(APIRoute):
    """A route whose JSON body is parsed in Parsing if large, with a limit on its values."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """As the base class."""
        answer = self.bounded_handler()

        async def bounded(request: Request) -> Response:
            return await answer(BoundedRequest(request.scope, request.receive))

        return bounded

    def bounded_handler(self) -> Callable[["BoundedRequest"], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler."""
        return super().get_route_handler()


class BoundedRequest(Request):
    """A request with that limit."""

    async def json(self) -> Any:
        """As the base class. Raises HTTPException over a limit: FastAPI hides the message of any other error."""
        if not hasattr(self, "_json"):
            data = await self.body()
            parsing: Parsing = self.app.state.parsing
            large = len(data) > SMALL_BYTES
            try:
                self._json = await parsing.run(len(data), loads, data) if large else loads(data)
            except ServiceError as error:
                raise HTTPException(error.code, str(error), error.headers) from error
        return self._json
