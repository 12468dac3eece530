"""Operations and errors of the HTTP API, made from its OpenAPI document and its error classes."""

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from controller.api.app import create_app
from controller.kinds.registry import discover
from controller.service import errors as service_errors
from controller.service.sandbox.files import TransferLimits
from deploy.docs.fields import cell
from deploy.docs.tables import table

PREFIX = "/apis/paddock/v1alpha1"
_SANDBOXES = f"{PREFIX}/namespaces/{{namespace}}/sandboxes"


class _NoServices:
    """Stands for the use-cases where only the routes are asked for: nothing is called."""

    registry = discover()
    files = SimpleNamespace(limits=TransferLimits())

    def __getattr__(self, name: str) -> None:
        return None


def errors() -> str:
    """Return the reasons of refused requests, by status code, with their explanations."""
    found = (each for _, each in inspect.getmembers(service_errors, inspect.isclass))
    kept = [each for each in found if issubclass(each, service_errors.ServiceError)]
    rows = sorted((each.code, each.reason, _meaning(each)) for each in kept)
    return table(("code", "reason", "meaning"), ((str(code), f"`{reason}`", text) for code, reason, text in rows))


_MEANINGS = {
    "BadRequest": "The request does not match `/openapi.json`.",
    "Forbidden": "You see the object, but your role does not allow this.",
    "NotFound": "There is no such object, or you may not read it.",
    "AlreadyExists": "An object of that name exists.",
    "Invalid": "Documents were refused; `details.causes` has every reason with its field.",
    "InternalError": "A bug; the log has the details under the trace id of the answer.",
}


def _meaning(error: type[service_errors.ServiceError]) -> str:
    return cell(_MEANINGS.get(error.reason) or str(inspect.getdoc(error) or ""))


def operations() -> str:
    """Return the operations; of the kinds, which are alike, those of sandboxes."""
    return table(("method", "path", "does"), _operations())


def _operations() -> Iterator[tuple[str, ...]]:
    described = description()
    others = tuple(f"/{each.plural}" for each in discover() if each.name != "Sandbox")
    for path in sorted(described["paths"], key=lambda each: (PREFIX in each, each)):
        if any(each in path for each in others):
            continue
        for method, each in described["paths"][path].items():
            text = str(each.get("description") or each.get("summary") or "")
            shown = path.replace(_SANDBOXES, "SANDBOXES").replace(PREFIX, "...")
            yield method.upper(), f"`{shown}`", cell(text.split("\n\n", maxsplit=1)[0])


def description() -> dict[str, Any]:
    """Return the OpenAPI document."""
    app = create_app(_NoServices(), ready=lambda: (), meter=None)  # type: ignore[arg-type]
    return app.openapi()
