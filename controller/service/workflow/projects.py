"""Projects: a sandbox of that name, and its template. Open and close them."""

import json

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import Clock, UseTracker, Wake
from controller.service import errors
from controller.service.objects.objects import Objects
from controller.service.objects.patch import Patch
from controller.service.objects.write import Write
from controller.version import API_VERSION

_WRITTEN_BY = "project"
PROJECT_LABEL = "paddock/project"
"""On a sandbox that was created by opening it."""
_PIECE_SECONDS = 1.0


class Projects:
    """The use-cases. Raises ServiceError."""

    def __init__(
        self, objects: Objects, write: Write, patch: Patch, wake: Wake, passes: UseTracker, clock: Clock
    ) -> None:
        self._objects, self._write, self._patch = objects, write, patch
        self._wake, self._passes, self._clock = wake, passes, clock

    def open(self, namespace: str, name: str, template: str, wait_seconds: float) -> StoredObject:
        """Create the sandbox if it is absent, start it, and return it once it is Ready.

        Raises Conflict if it is not Ready in time, or can't be.
        """
        try:
            found = self._objects.get(SANDBOX, namespace, name)
        except errors.NotFound:
            if not template:
                raise
            found = self._create(namespace, name, template)
        if found.deleted_at is not None:
            raise errors.Conflict(f"sandbox `{name}` is being deleted; wait until it is gone, then open it again")
        if found.spec.get("runState", "Running") != "Running" or _ready(found).get("reason") == "IdleReaped":
            found = self._start(found)
        return self._until_ready(found, wait_seconds)

    def close(self, namespace: str, name: str) -> StoredObject:
        """Suspend the sandbox, unless it is to keep running."""
        found = self._objects.get(SANDBOX, namespace, name)
        if found.spec.get("lifecycle", {}).get("keepRunning") or found.spec.get("runState") == "Suspended":
            return found
        return self._set(found, "Suspended")

    def _create(self, namespace: str, name: str, template: str) -> StoredObject:
        document = {
            "apiVersion": API_VERSION,
            "kind": SANDBOX.name,
            "metadata": {"name": name, "labels": {PROJECT_LABEL: name}},
            "spec": {"templateRef": {"name": template}},
        }
        try:
            return self._write.create(SANDBOX, namespace, json.dumps(document), written_by=_WRITTEN_BY)
        except errors.AlreadyExists:  # opened by two at once
            return self._objects.get(SANDBOX, namespace, name)

    def _start(self, found: StoredObject) -> StoredObject:
        """Start a suspended sandbox. One suspended as idle is suspended and resumed in words: a change is use."""
        if found.spec.get("runState", "Running") == "Running":
            self._passes.begin(found.uid, asks=True)
            self._passes.end(found.uid, asks=True)
            self._wake()
            return found
        return self._set(found, "Running")

    def _set(self, found: StoredObject, state: str) -> StoredObject:
        change = {"spec": {"runState": state}}
        return self._patch.patch(SANDBOX, found.namespace, found.name, change, patched_by=_WRITTEN_BY)

    def _until_ready(self, found: StoredObject, wait_seconds: float) -> StoredObject:
        until = self._clock.now() + wait_seconds
        while _ready(found).get("status") != "True" or _behind(found):
            conditions = {each["type"]: each for each in found.status.get("conditions", ())}
            refused = conditions.get("Accepted", {})
            if refused.get("status") == "False":
                raise errors.Conflict(f"sandbox `{found.name}`: {refused['reason']}: {refused['message']}")
            passes, left = self._passes.passes, until - self._clock.now()
            if left <= 0:
                ready = _ready(found)
                words = f"{ready.get('reason', 'Pending')}: {ready.get('message', 'it was not observed yet')}"
                advice = f"`paddock why sandbox {found.name}` says more"
                raise errors.Conflict(
                    f"sandbox `{found.name}` is not Ready after {wait_seconds:g} s: {words}; {advice}"
                )
            self._passes.wait(passes, min(left, _PIECE_SECONDS))
            found = self._objects.get(SANDBOX, found.namespace, found.name)
        return found


def _ready(obj: StoredObject) -> dict[str, str]:
    return next((each for each in obj.status.get("conditions", ()) if each["type"] == "Ready"), {})


def _behind(obj: StoredObject) -> bool:
    """Return True if its condition is of an older spec."""
    return int(_ready(obj).get("observedGeneration", 0)) < obj.generation
