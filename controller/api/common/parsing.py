"""Routes with JSON bodies within the limits of service/parsing.py, and those that agents call all the time."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from controller.api.common.queries import ListQuery
from controller.api.common.query_names import check_query
from controller.service.errors import ServiceError
from controller.service.parsing import SMALL_BYTES, Parsing, loads

_JSON = "application/json"
_NO_QUERY = ListQuery()


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


class DirectRoute(BoundedRoute):
    """A route that agents call all the time. Its endpoint gets only what is known here.

    FastAPI solves a request's parameters in a good part of a millisecond. Known are `services`, `streams` (of watches),
    `request`, `accept` (the header), the names in its path (`namespace` is empty if there is none), a JSON `body`, and
    an empty `query` of a list. It asks `app.state.authorise`, as every route does. A request that does not fit is
    FastAPI's, which says why: so is every list with a query.
    """

    def get_route_handler(self) -> Callable[[Request], Any]:
        """As the base class."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        model: type[BaseModel] | None = typing.get_type_hints(endpoint).get("body")
        names, by_fastapi = frozenset(inspect.signature(endpoint).parameters), self.bounded_handler()

        async def direct(plain: Request) -> Response:
            request = BoundedRequest(plain.scope, plain.receive)
            if "query" in names and request.scope["query_string"]:
                return await by_fastapi(request)
            state = request.app.state
            arguments: dict[str, Any] = {"services": state.services, "streams": state.watch_streams, "request": request}
            arguments |= {"accept": request.headers.get("accept", ""), "query": _NO_QUERY}
            arguments |= {"namespace": "", **request.path_params}
            if model is not None:
                arguments["body"] = await _body(request, model)
                if arguments["body"] is None:
                    return await by_fastapi(request)
            await state.authorise(request)
            await check_query(request)
            return await endpoint(**{name: arguments[name] for name in names})

        return direct


async def _body(request: Request, model: type[BaseModel]) -> BaseModel | None:
    """Return the body; None: it does not fit."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        return None
    try:
        return model.model_validate(await request.json())
    except ValueError:  # ValidationError, too
        return None
