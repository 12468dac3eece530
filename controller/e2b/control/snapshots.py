"""Snapshots and forks, by SandboxSnapshots: files at one instant. Processes and memory are not copied."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from controller.e2b import metadata
from controller.e2b.control.sandboxes import Control, namespace_of
from controller.e2b.control.template import SPEC, is_name
from controller.e2b.envs import Variables
from controller.e2b.errors import one_line
from controller.e2b.fields import Fields
from controller.e2b.parts import Parts, on_thread
from controller.kinds.access.access import Caller, Grant
from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.sandboxsnapshot import CAPTURED, KIND
from controller.service.access import access
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceError, ServiceUnavailable
from controller.version import API_VERSION

_NAME = "paddock.e2b/name"
_WRITTEN_BY = "e2b"
_WAIT_SECONDS, _POLL_SECONDS = 50.0, 0.05
_FORK_SECONDS = 3600  # that a fork's own snapshot is kept, and longer while something begins from it
_MOST_FORKS, _MOST_LISTED = 100, 100
_COPIED = ("template", "templateRef", "securityLevel", "network", "resources", "workspace", "models", "credentials")


class Snapshots:
    """The use-cases. The caller is that of the request (service.access)."""

    def __init__(self, parts: Parts, control: Control, variables: Variables) -> None:
        self._parts, self._control, self._variables = parts, control, variables

    async def create(self, name: str, body: Fields) -> Mapping[str, Any]:
        """Take a snapshot of a sandbox. Raises NotFound, Conflict, NotOffered ..."""
        obj = await on_thread(self._control.get, name)
        return _json(await self._capture(obj, body.text("name", "")))

    async def fork(self, name: str, body: Fields) -> Sequence[Mapping[str, Any]]:
        """Create sandboxes with the files that this one has now. Each is a sandbox, or the error of its start."""
        source = await on_thread(self._control.get, name)
        count = body.number("count", 1, least=1, most=_MOST_FORKS)
        snapshot = await self._capture(source, "", ttlSeconds=_FORK_SECONDS)
        request = {
            "templateID": snapshot.name,
            "metadata": metadata.metadata_of(source),
            "envVars": dict(self._variables.of(source.uid)),
            **({"timeout": body.number("timeout", 0, least=1)} if "timeout" in body else {}),
        }
        results = await asyncio.gather(
            *(self._control.create(Fields(request)) for _ in range(count)), return_exceptions=True
        )
        return [_result(result) for result in results]

    async def list(self, query: Callable[[str], str]) -> tuple[Sequence[Mapping[str, Any]], str]:
        """Return a page of the snapshots, by name, and the token of the next page."""
        return await on_thread(self._list, query)

    def _list(self, query: Callable[[str], str]) -> tuple[Sequence[Mapping[str, Any]], str]:
        namespace = _namespace()
        self._parts.require("list", namespace, kind=KIND.name)
        source, token, limit = query("sandboxID"), query("nextToken"), query("limit")
        if limit and not (limit.isascii() and limit.isdigit() and int(limit[:6]) > 0):
            raise BadRequest(f"limit: must be a whole number from 1 to {_MOST_LISTED}")
        most = min(int(limit or _MOST_LISTED), _MOST_LISTED)
        stored = self._parts.services.objects.list(KIND, namespace, labels=f"{metadata.LABEL}=true").objects
        objects = [
            obj
            for obj in sorted(stored, key=lambda obj: obj.name)
            if obj.name > token
            and "ttlSeconds" not in obj.spec
            and source in ("", (obj.spec.get("sandboxRef") or {}).get("name"))
        ]
        page = objects[:most]
        return [_json(obj) for obj in page], page[-1].name if len(objects) > most else ""

    def delete(self, name: str) -> None:
        """Delete a snapshot. Raises NotFound, Conflict while something begins from it."""
        namespace = _namespace()
        if not is_name(name):
            raise NotFound(f"snapshot {name[:100]} not found")
        self._parts.require("delete", namespace, name, kind=KIND.name)
        self._parts.services.objects.delete(KIND, namespace, name, deleted_by=_WRITTEN_BY)

    async def _capture(self, source: StoredObject, name: str, **spec: Any) -> StoredObject:
        self._parts.require("create", source.namespace, kind=KIND.name)
        self._parts.require("use", source.namespace, source.name, "exec")
        copied = {field: source.spec[field] for field in _COPIED if source.spec.get(field)}
        annotations = {
            metadata.TEMPLATE: source.annotations.get(metadata.TEMPLATE, ""),
            SPEC: json.dumps(copied),
            **({_NAME: name} if name else {}),
        }
        place = {"name": f"s{secrets.token_hex(10)}", "namespace": source.namespace}
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND.name,
            "metadata": {**place, "labels": {metadata.LABEL: "true"}, "annotations": annotations},
            "spec": {"sandboxRef": {"name": source.name}, **spec},
        }
        text, create = json.dumps(document), partial(self._parts.services.write.create, written_by=_WRITTEN_BY)
        obj = await self._parts.services.parsing.run(len(text), create, KIND, source.namespace, text)
        try:
            return await self._captured(obj)
        except BaseException:
            delete = partial(self._parts.services.objects.delete, deleted_by=_WRITTEN_BY)
            await asyncio.shield(on_thread(delete, KIND, obj.namespace, obj.name))
            raise

    async def _captured(self, created: StoredObject) -> StoredObject:
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            obj = await on_thread(self._parts.services.objects.get, KIND, created.namespace, created.name)
            condition = stored_condition(obj, CAPTURED)
            if condition.get("status") == "True":
                return obj
            message = f"{condition.get('reason', 'Pending')}: {condition.get('message', '')}"
            if condition.get("status") == "False":
                raise Conflict(f"snapshot can't be taken: {message}")
            if time.monotonic() >= deadline:
                raise ServiceUnavailable(f"snapshot was not ready in {_WAIT_SECONDS:g} s: {message}")
            await asyncio.sleep(_POLL_SECONDS)


def _namespace() -> str:
    return namespace_of(access.caller() or Caller("paddock", grants=(Grant(role="admin"),)))


def _json(obj: StoredObject) -> Mapping[str, Any]:
    name = obj.annotations.get(_NAME)
    return {"snapshotID": obj.name, "names": [name] if name else []}


def _result(result: Mapping[str, Any] | BaseException) -> Mapping[str, Any]:
    if isinstance(result, ServiceError):
        return {"error": {"code": 400 if result.code == 422 else result.code, "message": one_line(result)}}
    if isinstance(result, BaseException):
        raise result
    return {"sandbox": result}
