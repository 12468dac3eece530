"""The use of a sandbox that a person hibernated: from then on it is to run, until idleness or a person ends that."""

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND
from controller.service.objects.patch import Patch


class Resume:
    """Sets runState to Running. Whoever may use a sandbox may wake it so."""

    def __init__(self, patch: Patch) -> None:
        self._patch = patch

    def __call__(self, obj: StoredObject) -> None:
        """Patch the object, unless another of its name is there by now. Raises ServiceError."""
        body = {"metadata": {"uid": obj.uid}, "spec": {"runState": "Running"}}
        self._patch.patch(KIND, obj.namespace, obj.name, body, patched_by="use")
