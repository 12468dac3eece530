"""Routes that agents call all the time. FastAPI solves a request's parameters in a good part of a millisecond."""

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from controller.api.common.parsing import BoundedRequest, BoundedRoute
from controller.api.common.queries import ListQuery
from controller.api.common.query_names import check_query

_JSON = "application/json"
_NO_QUERY = ListQuery()


class DirectRoute(BoundedRoute):
    """A route whose endpoint gets only what is known here.

    That is `services`, `streams` (of watches), `request`, `accept` (the header), the names in its path (`namespace` is
    empty if there is none), a JSON `body`, and an empty `query` of a list. It asks `app.state.authorise`, as every
    route does. A request that does not fit is FastAPI's, which says why: so is every list with a query.
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
