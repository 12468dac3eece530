"""The control plane: sandboxes of a namespace, as E2B's clients create, list, pause and delete them."""

import asyncio
import contextlib
import json
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from controller.e2b import metadata
from controller.e2b.control.deadlines import Deadlines
from controller.e2b.control.network import network_of
from controller.e2b.control.template import chosen, is_name, level_of
from controller.e2b.control.usage_history import UsageHistory
from controller.e2b.envs import Variables
from controller.e2b.errors import NotOffered
from controller.e2b.fields import Fields
from controller.e2b.identity import Identity
from controller.e2b.parts import ENVD_VERSION, Parts, on_thread
from controller.kinds.access.access import Caller, Grant
from controller.kinds.common.quantity import parse_bytes, parse_cpu
from controller.kinds.envelope import DEFAULT_NAMESPACE
from controller.kinds.host import KIND as HOST
from controller.kinds.host import NAME as HOST_NAME
from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.access import access
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable, TooManyRequests
from controller.version import API_VERSION

DEFAULT_SECONDS = 300
LONGEST_SECONDS = 30 * 86400
_WRITTEN_BY = "e2b"
_PATIENCE_SECONDS = 50.0  # below the time-out of clients
_FIRST_POLL_SECONDS, _POLL_SECONDS = 0.01, 0.2
_START_SHARE = 0.1  # of the time until it is paused: a longer start is not counted
_PAUSED_STATES = ("Paused", "Hibernated", "Suspended")  # of a spec, and as reasons of Ready
_ON_THEIR_WAY = ("Pausing", "Hibernating", "Suspending", "BeingCaptured")  # reasons of Ready
_NO_IMAGE = ("ImageMissing", "ImagePullFailed", "ImageRefused", "AgentImageMissing", "EgressImageMissing")
_MOST_LISTED = 100
_MOST_KEYS = 4096
_MEGABYTE = 1 << 20
_NOT_OFFERED = {
    "mcp": "MCP servers of a sandbox are not offered; apply an MCPServer, and use the gateway at /mcp/servers",
    "iam": "workload identities are not offered; apply a Sandbox with `credentials:`",
    "volumeMounts": "volumes are not offered in this protocol; name a SandboxTemplate with `volumes:` as the template",
}


class Control:
    """The use-cases. The caller is that of the request (service.access)."""

    def __init__(
        self, parts: Parts, identity: Identity, variables: Variables, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._parts, self._identity, self._variables, self._patience = parts, identity, variables, patience
        self._history = UsageHistory(parts.services.usages, parts.clock.now)
        parts.services.usage_history.follow(self._history.sample)
        self.deadlines = Deadlines(parts.clock, self._pause_due)
        for obj in parts.services.objects.list(SANDBOX, labels=f"{metadata.LABEL}=true").objects:
            self.deadlines.follow(obj)
        self._created: OrderedDict[tuple[str, str], str] = OrderedDict()  # names by caller and Idempotency-Key

    async def create(self, body: Fields, key: str = "") -> Mapping[str, Any]:
        """Create a sandbox, and return once commands can run in it. A `key` creates one once."""
        caller = _caller()
        namespace = namespace_of(caller)
        seconds = body.number("timeout", DEFAULT_SECONDS, least=1, most=LONGEST_SECONDS)
        asked_at = self._parts.clock.now()
        repeated = self._created.get((caller.token_id, key)) if key else None
        if repeated is not None:
            obj = await on_thread(self._parts.services.objects.get, SANDBOX, namespace, repeated)
            with self.deadlines.starting(obj.uid):
                return self._answer(await self._ready(obj, seconds, asked_at), caller)
        name = f"i{secrets.token_hex(10)}"
        if key:
            self._created[caller.token_id, key] = name
            while len(self._created) > _MOST_KEYS:
                self._created.popitem(last=False)
        envs = body.text_map("envVars")
        try:
            document = await on_thread(partial(self._document, body, namespace, name, caller, seconds))
            create = partial(self._parts.services.write.create, written_by=_WRITTEN_BY)
            obj = await self._parts.services.parsing.run(len(document), create, SANDBOX, namespace, document)
        except BaseException:
            self._created.pop((caller.token_id, key), None)
            raise
        try:
            with self.deadlines.starting(obj.uid):
                self.deadlines.follow(obj)
                await on_thread(self._variables.save, obj.uid, envs)
                return self._answer(await self._ready(obj, seconds, asked_at), caller)
        except BaseException:  # also cancelled: nobody knows its name
            self._created.pop((caller.token_id, key), None)
            await asyncio.shield(on_thread(self._delete, obj))
            raise

    def _document(self, body: Fields, namespace: str, name: str, caller: Caller, seconds: int) -> str:
        self._parts.require("create", namespace)
        for field, message in _NOT_OFFERED.items():
            if field in body:
                raise NotOffered(f"{field}: {message}")
        template = body.text("templateID")
        choice = chosen(self._parts, namespace, template)
        network = network_of(body, choice.level)
        now = self._parts.clock.now()
        annotations = {
            metadata.METADATA: metadata.encoded(body.text_map("metadata")),
            metadata.TEMPLATE: choice.name,
            metadata.TOKEN: caller.token_id,
            metadata.STARTED: f"{now:.3f}",
            metadata.ENDS: f"{now + seconds:.3f}",
            metadata.ON_TIMEOUT: on_timeout(body),
            **({metadata.AUTO_RESUME: str(seconds)} if resumes(body) else {}),
        }
        lifecycle: dict[str, Any] = {"keepRunning": True}
        if annotations[metadata.ON_TIMEOUT] == "kill":
            lifecycle |= {"activeDeadlineSeconds": seconds, "ttlSecondsAfterFinished": 0}
        spec = {**choice.spec, "lifecycle": lifecycle, **({"network": network} if network else {})}
        if self._parts.rules.host:
            spec["host"] = self._parts.rules.host  # this daemon answers for the sandboxes of its own
        document = {
            "apiVersion": API_VERSION,
            "kind": SANDBOX.name,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {metadata.LABEL: "true"},
                "annotations": annotations,
            },
            "spec": spec,
        }
        return json.dumps(document, ensure_ascii=False)

    async def _ready(self, created: StoredObject, seconds: int, asked_at: float) -> StoredObject:
        """Return the sandbox once it is ready. A long start is no part of the time after which it is paused.

        `asked_at` is before the write that gave it so many seconds. Raises NotFound, BadRequest, Conflict,
        TooManyRequests or ServiceUnavailable.
        """
        obj = await self._until_ready(created)
        ends, now = metadata.seconds_in(obj, metadata.ENDS), self._parts.clock.now()
        if ends is None or obj.annotations.get(metadata.ON_TIMEOUT, "kill") == "kill":
            return obj
        if now - asked_at <= seconds * _START_SHARE or ends >= now + seconds:
            return obj
        return await self._write(obj, annotations={metadata.ENDS: f"{now + seconds:.3f}"})

    async def _until_ready(self, created: StoredObject) -> StoredObject:
        deadline, pause = time.monotonic() + self._patience, _FIRST_POLL_SECONDS
        while True:
            obj = await on_thread(self._parts.services.objects.get, SANDBOX, created.namespace, created.name)
            if obj.uid != created.uid or obj.deleted_at is not None:
                raise NotFound(f"sandbox {created.name} was deleted meanwhile")
            if state_of(obj) == "paused":
                raise Conflict(f"sandbox {created.name} was paused meanwhile; connect to it")
            ready, accepted = stored_condition(obj, "Ready"), stored_condition(obj, "Accepted")
            if _is_current(ready, obj) and ready.get("status") == "True":
                return obj
            if _is_current(accepted, obj) and accepted.get("status") == "False":
                raise BadRequest(f"sandbox {obj.name}: {accepted.get('message') or accepted.get('reason')}")
            message = _message_of(ready)
            if ready.get("status") == "False" and ready.get("reason") in _NO_IMAGE:
                raise NotFound(f"sandbox {obj.name}: {message}")
            finished = stored_condition(obj, "Finished")
            if _is_current(finished, obj) and finished.get("status") == "True":
                raise Conflict(f"sandbox {obj.name}: {finished.get('message') or finished.get('reason')}")
            if time.monotonic() >= deadline:
                scheduled = stored_condition(obj, "Scheduled")
                if scheduled.get("status") == "False":
                    raise TooManyRequests(f"sandbox {obj.name}: {scheduled.get('message') or message}")
                raise ServiceUnavailable(f"sandbox {obj.name} was not ready in {self._patience:g} s: {message}")
            await asyncio.sleep(pause)
            pause = min(_POLL_SECONDS, pause * 1.3)

    def get(self, name: str) -> StoredObject:
        """Return a sandbox by its id: one of this protocol in any namespace that the caller may read, else of theirs.

        Raises NotFound.
        """
        namespace = namespace_of(_caller())
        missing = NotFound(f"sandbox {name[:100]} not found")
        if not is_name(name):
            raise missing
        self._parts.require("get", namespace, name)
        try:
            obj = self._parts.services.objects.get(SANDBOX, namespace, name)
        except NotFound:
            raise missing from None
        if _is_over(obj):
            raise missing
        return obj

    async def detail(self, name: str) -> Mapping[str, Any]:
        """Return a sandbox with its state."""
        obj = await on_thread(self.get, name)
        keeps = obj.annotations.get(metadata.ON_TIMEOUT, "kill") != "kill"
        lifecycle = {"autoResume": metadata.AUTO_RESUME in obj.annotations, "onTimeout": "pause" if keeps else "kill"}
        return {**self._listed(obj), "lifecycle": lifecycle, "envdAccessToken": self._identity.issue(obj, _caller())}

    async def list(self, query: Mapping[str, Sequence[str]]) -> tuple[Sequence[Mapping[str, Any]], str]:
        """Return a page of the sandboxes that this protocol created, and the token of the next page."""
        return await on_thread(self._list, query)

    def _list(self, query: Mapping[str, Sequence[str]]) -> tuple[Sequence[Mapping[str, Any]], str]:
        def last(name: str, default: str = "") -> str:
            return query.get(name, (default,))[-1]

        namespace = namespace_of(_caller())
        self._parts.require("list", namespace)
        limit, token = _positive(last("limit", str(_MOST_LISTED)), "limit"), last("nextToken")
        pairs = metadata.filter_of(last("metadata"))
        states = [state for value in query.get("state", ()) for state in value.split(",")]
        stored = self._parts.services.objects.list(SANDBOX, namespace, labels=f"{metadata.LABEL}=true").objects
        objects = [
            obj
            for obj in stored
            if not _is_over(obj)
            and metadata.matches(metadata.metadata_of(obj), pairs)
            and (not states or state_of(obj) in states)
            and last("template") in ("", obj.annotations.get(metadata.TEMPLATE))
        ]
        newest_first = last("order") != "asc"
        objects.sort(key=lambda obj: (obj.created_at, obj.name), reverse=newest_first)
        keys = [f"{obj.created_at:.6f}/{obj.name}" for obj in objects]
        begin = next((index + 1 for index, key in enumerate(keys) if key == token), None) if token else 0
        if begin is None:  # the last one of the page before has gone
            begin = sum(_is_before(key, token, newest_first) for key in keys)
        page = objects[begin : begin + limit]
        end = begin + len(page)
        return [self._listed(obj) for obj in page], keys[end - 1] if page and end < len(objects) else ""

    async def kill(self, name: str) -> None:
        """Delete a sandbox. Raises NotFound."""
        obj = await on_thread(self.get, name)
        self._parts.require("delete", obj.namespace, obj.name)
        await on_thread(self._delete, obj)

    def _delete(self, obj: StoredObject) -> None:
        self._variables.forget(obj.uid)
        with contextlib.suppress(NotFound):
            self._parts.services.objects.delete(SANDBOX, obj.namespace, obj.name, deleted_by=_WRITTEN_BY)

    async def set_timeout(self, name: str, body: Fields, *, shorten: bool = True) -> None:
        """Let a sandbox end so many seconds from now."""
        obj = await on_thread(self.get, name)
        seconds = body.number("timeout", body.number("duration", DEFAULT_SECONDS, least=0), least=0)
        if state_of(obj) == "paused":
            raise Conflict(f"sandbox {name} is paused and has no time-out; connect to it with one")
        if not shorten and (ends := metadata.seconds_in(obj, metadata.ENDS)) is not None:
            seconds = max(seconds, math.ceil(ends - self._parts.clock.now()))
        await self._patch(obj, **self._ending(obj, seconds))

    def _ending(self, obj: StoredObject, seconds: int, *, started: float | None = None) -> dict[str, Any]:
        """Return the annotations and spec of a sandbox that ends so many seconds from now."""
        now = self._parts.clock.now()
        start_time = started or metadata.seconds_in(obj, metadata.STARTED) or obj.created_at
        if seconds > LONGEST_SECONDS:
            raise BadRequest(f"timeout: must be at most {LONGEST_SECONDS} s")
        annotations = {metadata.ENDS: f"{now + seconds:.3f}", metadata.STARTED: f"{start_time:.3f}"}
        if obj.annotations.get(metadata.ON_TIMEOUT, "kill") != "kill":
            return {"annotations": annotations, "spec": {}}
        deadline = max(1, math.ceil(now - start_time) + seconds)
        lifecycle = {"activeDeadlineSeconds": deadline, "ttlSecondsAfterFinished": 0}
        return {"annotations": annotations, "spec": {"lifecycle": lifecycle}}

    async def pause(self, name: str, *, memory: bool) -> None:
        """Pause a sandbox, with its memory or with its files alone. Raises Conflict if it is paused."""
        obj = await on_thread(self.get, name)
        if state_of(obj) == "paused":
            raise Conflict(f"sandbox {name} is already paused")
        await self._settled(await self._pause(obj, memory=memory))

    async def _pause(self, obj: StoredObject, *, memory: bool) -> StoredObject:
        """Ask for a pause. The reconcile loop carries it out, and retries it."""
        lifecycle: dict[str, Any] = {"activeDeadlineSeconds": None}
        if memory:
            state = "Hibernated" if await on_thread(self._hibernates) else "Paused"
        else:
            state, lifecycle["onSuspend"] = "Suspended", "KeepFiles"
        spec = {"runState": state, "lifecycle": lifecycle}
        return await self._patch(obj, annotations={metadata.ENDS: None}, spec=spec)

    def _hibernates(self) -> bool:
        """Return True if this host can move the memory of a frozen sandbox away."""
        try:
            host = self._parts.services.objects.get(HOST, "", self._parts.rules.host or HOST_NAME)
        except NotFound:
            return False
        return stored_condition(host, "HibernationAvailable").get("status") == "True"

    async def _pause_due(self, namespace: str, name: str, uid: str, now: float) -> None:
        """Ask for the pause of a sandbox whose time has passed, unless it has got more, or is paused.

        It does not wait for its end: a freeze that hangs would keep the others from their time.
        """
        try:
            obj = await on_thread(self._parts.services.objects.get, SANDBOX, namespace, name)
        except NotFound:
            return
        ends = metadata.seconds_in(obj, metadata.ENDS)
        if obj.uid != uid or ends is None or _is_over(obj) or state_of(obj) == "paused":
            return
        if ends > now:
            self.deadlines.follow(obj)
            return
        await self._pause(obj, memory=obj.annotations.get(metadata.ON_TIMEOUT) != "suspend")

    async def _settled(self, patched: StoredObject) -> None:
        """Wait until a pause was carried out. Raises NotFound or ServiceUnavailable."""
        deadline, pause = time.monotonic() + self._patience, _FIRST_POLL_SECONDS
        while True:
            obj = await on_thread(self._parts.services.objects.get, SANDBOX, patched.namespace, patched.name)
            if obj.uid != patched.uid or obj.deleted_at is not None:
                raise NotFound(f"sandbox {obj.name} was deleted meanwhile")
            if is_settled(obj):
                return
            if time.monotonic() >= deadline:
                message = _message_of(stored_condition(obj, "Ready"))
                raise ServiceUnavailable(f"sandbox {obj.name} was not paused in {self._patience:g} s: {message}")
            await asyncio.sleep(pause)
            pause = min(_POLL_SECONDS, pause * 1.3)

    async def connect(self, name: str, body: Fields) -> tuple[Mapping[str, Any], bool]:
        """Return a sandbox that runs, and if it was paused. Its time is never shortened."""
        caller = _caller()
        obj = await on_thread(self.get, name)
        self._parts.require("use", obj.namespace, obj.name, "exec")
        seconds = body.number("timeout", DEFAULT_SECONDS, least=1)
        if state_of(obj) != "paused":
            if metadata.ENDS in obj.annotations:
                await self.set_timeout(name, Fields({"timeout": seconds}), shorten=False)
            return self._answer(obj, caller), False
        suspended = obj.spec.get("runState") == "Suspended"
        change = self._ending(obj, seconds, started=self._parts.clock.now() if suspended else None)
        if metadata.LABEL not in obj.labels:  # not ours to end
            change = {"annotations": {}, "spec": {}}
        return self._answer(await self._run(obj, change, seconds), caller), True

    async def resume(self, obj: StoredObject) -> StoredObject:
        """Return a paused sandbox once it runs, if it is one that its use resumes; any other as it is."""
        seconds = obj.annotations.get(metadata.AUTO_RESUME, "")
        if state_of(obj) != "paused" or not seconds.isdigit():
            return obj
        self._parts.require("use", obj.namespace, obj.name, "exec")
        time_out = min(int(seconds), LONGEST_SECONDS)
        return await self._run(obj, self._ending(obj, time_out), time_out)

    async def _run(self, obj: StoredObject, change: Mapping[str, Any], seconds: int) -> StoredObject:
        """Return a paused sandbox once it runs. `change` gives it so many seconds."""
        spec, asked_at = {**change["spec"], "runState": "Running"}, self._parts.clock.now()
        with self.deadlines.starting(obj.uid):
            patched = await self._patch(obj, annotations=change["annotations"], spec=spec)
            return await self._ready(patched, seconds, asked_at)

    async def update_network(self, name: str, body: Fields) -> None:
        """Narrow what a sandbox may reach."""
        obj = await on_thread(self.get, name)
        level = await on_thread(level_of, self._parts, obj.namespace, obj.spec)
        network = network_of(body, level)
        if network is not None or obj.spec.get("network", {}).get("allowedHosts") is not None:
            hosts = None if network is None else network["allowedHosts"]
            await self._patch(obj, spec={"network": {"allowedHosts": hosts}})
        else:
            self._parts.require("update", obj.namespace, obj.name)

    async def metrics(self, name: str, since: float, until: float) -> Sequence[Mapping[str, Any]]:
        """Return the samples of a sandbox's usage between two times, of the last hour, and its newest one."""
        obj = await on_thread(self.get, name)
        self._parts.require("get", obj.namespace, obj.name, "metrics")
        readings = [*self._history.of(obj.uid, since, until)]
        with contextlib.suppress(Conflict):  # it does not run
            usage = await on_thread(self._parts.services.usages.of_sandbox, SANDBOX, obj.namespace, obj.name)
            newest = await on_thread(self._history.reading, usage)
            if newest.is_between(since, until) and newest.at not in [reading.at for reading in readings]:
                readings.append(newest)
        sandbox = self._listed(obj)
        return [
            {
                "timestamp": iso(reading.at),
                "timestampUnix": int(reading.at),
                "cpuCount": sandbox["cpuCount"],
                "cpuUsedPct": reading.cpu_percent,
                "memUsed": reading.memory,
                "memTotal": reading.memory_limit or sandbox["memoryMB"] * _MEGABYTE,
                "memCache": reading.cache,
                "diskUsed": reading.disk,
                "diskTotal": reading.disk_size or sandbox["diskSizeMB"] * _MEGABYTE,
            }
            for reading in sorted(readings, key=lambda reading: reading.at)
        ]

    async def _patch(self, obj: StoredObject, **change: Any) -> StoredObject:
        self._parts.require("update", obj.namespace, obj.name)
        return await self._write(obj, **change)

    async def _write(self, obj: StoredObject, **change: Any) -> StoredObject:
        annotations, spec = change.get("annotations", {}), change.get("spec", {})
        body = {"metadata": {"uid": obj.uid, "annotations": annotations}, "spec": spec}
        patch = partial(self._parts.services.patch.patch, patched_by=_WRITTEN_BY)
        patched = await on_thread(patch, SANDBOX, obj.namespace, obj.name, body)
        self.deadlines.follow(patched)
        return patched

    def _answer(self, obj: StoredObject, caller: Caller) -> Mapping[str, Any]:
        """Return a sandbox as create and connect answer with it."""
        token = self._identity.issue(obj, caller)
        return {
            **self._identified(obj),
            "envdAccessToken": token,
            "trafficAccessToken": token,  # what clients send to the code interpreter, and to a program's port
            "domain": self._parts.rules.domain,
        }

    def _identified(self, obj: StoredObject) -> dict[str, Any]:
        template = obj.annotations.get(metadata.TEMPLATE) or _template_of(obj)
        return {
            "sandboxID": obj.name,
            "templateID": template,
            "alias": template,
            "clientID": "paddock",
            "envdVersion": ENVD_VERSION,
        }

    def _listed(self, obj: StoredObject) -> dict[str, Any]:
        limits = {**obj.status.get("resources", {}).get("limits", {})}
        started = metadata.seconds_in(obj, metadata.STARTED) or obj.created_at
        ends = metadata.seconds_in(obj, metadata.ENDS) or self._parts.clock.now() + LONGEST_SECONDS
        memory = parse_bytes(limits["memory"]) if limits.get("memory") else 0
        return {
            **self._identified(obj),
            "startedAt": iso(started),
            "endAt": iso(ends),
            "cpuCount": max(1, math.ceil(parse_cpu(limits["cpu"]) / 1000)) if limits.get("cpu") else 1,
            "memoryMB": int(memory) // _MEGABYTE,
            "diskSizeMB": (int(parse_bytes(limits["disk"])) if limits.get("disk") else int(memory)) // _MEGABYTE,
            "state": state_of(obj),
            "metadata": metadata.metadata_of(obj),
        }


def namespace_of(caller: Caller) -> str:
    """Return the namespace of a caller's sandboxes: the one of their grants, else `default` if they may use it."""
    names = [name for grant in caller.grants for name in grant.namespaces]
    plain = [name for name in names if "*" not in name]
    if DEFAULT_NAMESPACE in plain or not plain:
        return DEFAULT_NAMESPACE
    return plain[0]


def state_of(obj: StoredObject) -> str:
    """Return `running` or `paused`."""
    return "paused" if obj.spec.get("runState", "Running") in _PAUSED_STATES else "running"


def is_settled(obj: StoredObject) -> bool:
    """Return True if the pause that its spec asks for was carried out, False if it is on its way or not observed.

    Raises ServiceUnavailable if something prevents it. (Clients take a Conflict for one that was paused already.)
    """
    if state_of(obj) != "paused":
        raise ServiceUnavailable(f"sandbox {obj.name} is not paused: it was resumed meanwhile")
    ready = stored_condition(obj, "Ready")
    if not _is_current(ready, obj) or ready.get("status") != "False" or ready.get("reason") in _ON_THEIR_WAY:
        return False
    if ready.get("reason") in _PAUSED_STATES:
        return True
    raise ServiceUnavailable(f"sandbox {obj.name} is not paused yet: {_message_of(ready)}")


def on_timeout(body: Fields) -> str:
    """Return what a sandbox's time-out does: kill, or pause with or without its memory."""
    if not body.flag("autoPause", False):
        return "kill"
    return "pause" if body.flag("autoPauseMemory", True) else "suspend"


def resumes(body: Fields) -> bool:
    """Return True if the use of a paused sandbox resumes it. Raises BadRequest where it can't be paused."""
    enabled = body.fields("autoResume").flag("enabled", False)
    if enabled and on_timeout(body) != "pause":
        raise BadRequest("autoResume: needs a time-out that pauses, with its memory; set on_timeout to pause")
    return enabled


def iso(seconds: float) -> str:
    """Return a time as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _caller() -> Caller:
    """Return the caller; Paddock itself, in tests, has no token."""
    return access.caller() or Caller("paddock", grants=(Grant(role="admin"),))


def _is_current(condition: Mapping[str, Any], obj: StoredObject) -> bool:
    return int(condition.get("observedGeneration", 0)) >= obj.generation


def _message_of(condition: Mapping[str, Any]) -> str:
    return str(condition.get("message") or condition.get("reason") or "it was not observed so far")


def _is_over(obj: StoredObject) -> bool:
    """Return True if it is deleted, or has ended for good."""
    finished = stored_condition(obj, "Finished")
    return obj.deleted_at is not None or (finished.get("status") == "True" and _is_current(finished, obj))


def _template_of(obj: StoredObject) -> str:
    reference, inline = obj.spec.get("templateRef"), obj.spec.get("template")
    return str(reference["name"]) if reference else str((inline or {}).get("image", ""))


def _positive(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) > 0):
        raise BadRequest(f"{name}: must be a whole number from 1 to {_MOST_LISTED}")
    return min(int(text), _MOST_LISTED)


def _is_before(key: str, token: str, newest_first: bool) -> bool:
    """Return True if a key of the list is before the token of a page."""

    def parts(text: str) -> tuple[float, str]:
        at, _, name = text.partition("/")
        try:
            return float(at), name
        except ValueError:
            raise BadRequest("nextToken: is not a token of this list; use the one of the page before") from None

    return parts(key) > parts(token) if newest_first else parts(key) < parts(token)
