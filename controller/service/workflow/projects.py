"""Projects: a sandbox of that name, and its template. Open and close them."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandboxtemplate import KIND as TEMPLATE
from controller.kinds.volume import DEFAULT_VOLUME
from controller.ports import Clock, UseTracker, Wake
from controller.service import errors
from controller.service.exec.activity import SLEEPING
from controller.service.objects.objects import Objects
from controller.service.objects.patch import Patch
from controller.service.objects.write import Write
from controller.version import API_VERSION

_WRITTEN_BY = "project"
PROJECT_LABEL = "paddock/project"
"""On a sandbox that was created by opening it."""
DEFAULT_IMAGE = "paddock/python:1"
_PIECE_SECONDS = 1.0
_IDLE_SECONDS = 1800
_NAME_LETTERS = 52
_SOURCES = "/workspace/src"
_LEVEL_FIELD, _AGENT_FIELD = "spec.template.securityLevel", "spec.template.agent"


@dataclass(frozen=True, slots=True)
class ProjectDefaults:
    """Parts of a project's new sandbox: volumes that survive closing, and its template where none is named.

    `folder` is one of the host, instead of a volume for the sources. `size` is that of each volume, as a quantity.
    """

    image: str = DEFAULT_IMAGE
    folder: str = ""
    size: str = DEFAULT_VOLUME


class Projects:
    """The use-cases. Raises ServiceError."""

    def __init__(
        self,
        objects: Objects,
        write: Write,
        patch: Patch,
        wake: Wake,
        passes: UseTracker,
        clock: Clock,
        has_agent: Callable[[], bool] = lambda: False,
        has_network: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_agent`: the agent's image is on this host. `has_network`: a sealed network can be guarded here now."""
        self._has_agent, self._has_network = has_agent, has_network
        self._objects, self._write, self._patch = objects, write, patch
        self._wake, self._in_use, self._clock = wake, passes, clock

    def open(
        self, namespace: str, name: str, template: str, wait_seconds: float, defaults: ProjectDefaults | None = None
    ) -> StoredObject:
        """Create the sandbox if it is absent, start it, and return it once it is Ready.

        It is created from the template, from the `defaults`, or from both. Raises NotFound without any of them;
        Conflict if it is not Ready in time, or can't be.
        """
        try:
            sandbox = self._objects.get(SANDBOX, namespace, name)
        except errors.NotFound:
            if not template and defaults is None:
                raise
            sandbox = self._create_enforceable(namespace, name, self._spec(namespace, name, template, defaults))
        if sandbox.deleted_at is not None:
            raise errors.Conflict(f"sandbox `{name}` is being deleted; wait until it is gone, then open it again")
        if sandbox.spec.get("runState", "Running") != "Running":
            sandbox = self._set(sandbox, "Running")
        if _ready(sandbox).get("reason") not in SLEEPING:
            return self._until_ready(sandbox, wait_seconds)
        self._in_use.begin(sandbox.uid, wakes=True)
        self._wake()
        try:
            return self._until_ready(sandbox, wait_seconds)
        finally:
            self._in_use.end(sandbox.uid, wakes=True)

    def close(self, namespace: str, name: str) -> StoredObject:
        """Suspend the sandbox, unless it is to keep running."""
        sandbox = self._objects.get(SANDBOX, namespace, name)
        if sandbox.spec.get("lifecycle", {}).get("keepRunning") or sandbox.spec.get("runState") == "Suspended":
            return sandbox
        return self._set(sandbox, "Suspended")

    def _spec(self, namespace: str, name: str, template: str, defaults: ProjectDefaults | None) -> dict[str, Any]:
        """Return the spec of a new sandbox."""
        spec: dict[str, Any] = {"templateRef": {"name": template}} if template else {}
        template_spec = self._template(namespace, template) if template else {}
        if defaults is None:
            return spec
        if not template:
            networked = bool(defaults.folder) or self._has_network()  # full-isolation mounts folders read-only
            level = "development" if networked else "full-isolation"
            spec = _default_spec(name, defaults, level, has_agent=self._has_agent())
        mounted = not template or template_spec.get("workspace") is not None
        if defaults.folder:
            spec["workspace"] = {"hostPath": defaults.folder}
        elif mounted:
            spec["workspace"] = {"volume": {"name": _volume_name(name), "size": defaults.size}}
        return {**spec, "lifecycle": {"idleTimeoutSeconds": _IDLE_SECONDS}}

    def _template(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the spec of a template. Raises NotFound: a sandbox without one would stay, and be refused."""
        try:
            return self._objects.get(TEMPLATE, namespace, name).spec
        except errors.NotFound as error:
            message = f"sandboxtemplate `{name}` does not exist in namespace `{namespace}`; apply it first"
            raise errors.NotFound(message) from error

    def _create_enforceable(self, namespace: str, name: str, spec: Mapping[str, Any]) -> StoredObject:
        """Create the sandbox; without a network where its level can't be enforced, without an agent that can't run."""
        template = dict(spec.get("template", {}))
        try:
            return self._create(namespace, name, spec)
        except errors.Invalid as error:
            fields = {str(cause.get("field")) for cause in error.causes}
            if not template or not fields or not fields <= {_LEVEL_FIELD, _AGENT_FIELD}:
                raise
            if _LEVEL_FIELD in fields and "hostPath" in spec["workspace"]:  # that level could not write the folder
                raise
            if _LEVEL_FIELD in fields:
                template["securityLevel"] = "full-isolation"
            if _AGENT_FIELD in fields:
                del template["agent"]
            return self._create(namespace, name, {**spec, "template": template})

    def _create(self, namespace: str, name: str, spec: Mapping[str, Any]) -> StoredObject:
        document = {
            "apiVersion": API_VERSION,
            "kind": SANDBOX.name,
            "metadata": {"name": name, "labels": {PROJECT_LABEL: name}},
            "spec": dict(spec),
        }
        try:
            return self._write.create(SANDBOX, namespace, json.dumps(document), written_by=_WRITTEN_BY)
        except errors.AlreadyExists:  # opened by two at once
            return self._objects.get(SANDBOX, namespace, name)

    def _set(self, sandbox: StoredObject, state: str) -> StoredObject:
        change = {"spec": {"runState": state}}
        return self._patch.patch(SANDBOX, sandbox.namespace, sandbox.name, change, patched_by=_WRITTEN_BY)

    def _until_ready(self, sandbox: StoredObject, wait_seconds: float) -> StoredObject:
        until = self._clock.now() + wait_seconds
        while _ready(sandbox).get("status") != "True" or _behind(sandbox):
            conditions = {condition["type"]: condition for condition in sandbox.status.get("conditions", ())}
            accepted = conditions.get("Accepted", {})
            if accepted.get("status") == "False":
                raise errors.Conflict(f"sandbox `{sandbox.name}`: {accepted['reason']}: {accepted['message']}")
            passes, seconds_left = self._in_use.passes, until - self._clock.now()
            if seconds_left <= 0:
                ready = _ready(sandbox)
                state_text = f"{ready.get('reason', 'Pending')}: {ready.get('message', 'it was not observed yet')}"
                advice = f"`paddock why sandbox {sandbox.name}` says more"
                raise errors.Conflict(
                    f"sandbox `{sandbox.name}` is not Ready after {wait_seconds:g} s: {state_text}; {advice}"
                )
            self._in_use.wait(passes, min(seconds_left, _PIECE_SECONDS))
            sandbox = self._objects.get(SANDBOX, sandbox.namespace, sandbox.name)
        return sandbox


def _volume_name(project: str) -> str:
    """Return the name of its sources' volume; that of a long project ends with a digest, so that none is shared."""
    name = f"src-{project}"
    if len(name) <= _NAME_LETTERS:
        return name
    return f"{name[: _NAME_LETTERS - 9].rstrip('-')}-{hashlib.sha256(project.encode()).hexdigest()[:8]}"


def _default_spec(name: str, defaults: ProjectDefaults, level: str, *, has_agent: bool) -> dict[str, Any]:
    """Return the sandbox of a project without a template."""
    template = {
        "image": defaults.image,
        "command": ["sleep", "infinity"],
        "securityLevel": level,
        **({"agent": {"project": name, "root": _SOURCES}} if has_agent else {}),
        "workspace": {"mountPath": _SOURCES},
        "volumeClaimTemplates": [{"name": "data", "mountPath": "/workspace/data", "size": defaults.size}],
    }
    return {"template": template, "resources": {"limits": {"memory": "4Gi"}, "cpuShares": 1024}}


def _ready(obj: StoredObject) -> dict[str, str]:
    return next((condition for condition in obj.status.get("conditions", ()) if condition["type"] == "Ready"), {})


def _behind(obj: StoredObject) -> bool:
    """Return True if its condition is of an older spec."""
    return int(_ready(obj).get("observedGeneration", 0)) < obj.generation
