"""The sandbox of a request, as its commands and files see it."""

import posixpath
from dataclasses import dataclass

from controller.e2b.control.sandboxes import state_of
from controller.e2b.errors import SandboxGone
from controller.e2b.parts import Parts
from controller.kinds.meta import StoredObject, stored_condition
from controller.service.errors import Misdirected


@dataclass(frozen=True, slots=True)
class Workplace:
    """A sandbox that runs. `folder` is where its commands run, and `home` its user's; "": the image's."""

    obj: StoredObject
    folder: str
    home: str

    @property
    def namespace(self) -> str:
        return self.obj.namespace

    @property
    def name(self) -> str:
        return self.obj.name

    def absolute(self, path: str) -> str:
        """Return a path as clients are shown it: relative ones begin where commands run."""
        if path == "~" or path.startswith("~/"):
            path = (self.home or "/") + path[1:]
        return posixpath.normpath(posixpath.join(self.folder, path))


def workplace(parts: Parts, obj: StoredObject) -> Workplace:
    """Return the workplace of a sandbox. Raises SandboxGone if it does not run; Misdirected if another host has it."""
    if parts.is_here is not None and not parts.is_here(obj.namespace, obj.name):
        raise Misdirected(f"sandbox {obj.name} runs on another host; set E2B_SANDBOX_URL to that host's daemon")
    if state_of(obj) == "paused":
        raise SandboxGone(obj.name, "it is paused; connect to it")
    finished = stored_condition(obj, "Finished")
    if obj.deleted_at is not None or finished.get("status") == "True":
        raise SandboxGone(obj.name, "it has ended")
    container = parts.services.sandbox_streams.observed_container(obj)
    if container is None:
        return Workplace(obj, "/", "")
    return Workplace(obj, container.working_dir or "/", container.home)
