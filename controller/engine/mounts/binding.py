"""Binding into a box: the places on this host, and whether the box sees what was bound there."""

from controller.engine.docker.errors import Fault
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.observe.looker import Foreign, Looker
from controller.kinds.observed.observed import State
from controller.kinds.planning.outcome import Ok, Outcome, Transient
from controller.kinds.runtime.mount import BindMounts
from controller.policy.attest.mounted import missing


class Binder:
    """Carries BindMounts out."""

    def __init__(self, mounts: HostMounts, looker: Looker) -> None:
        self._mounts, self._looker = mounts, looker

    def bind(self, action: BindMounts) -> Outcome:
        """Bind, then look inside a box that runs. Raises Fault, Foreign."""
        if action.container_id:
            found = self._looker.known(action.container_id)
            if found.uid != action.uid:
                raise Foreign(found.id, found.name, f"the object with uid {found.uid}, not {action.uid}")
        try:
            outcome = self._mounts.bind(action)
        except Fault as fault:
            if fault.gone:
                return Transient("ImageMissing", f"{action.image} is not on this host: {fault.words}")
            raise
        return self._seen(action) if action.container_id and isinstance(outcome, Ok) else outcome

    def _seen(self, action: BindMounts) -> Outcome:
        found = self._looker.inside(action.container_id)
        lacking = missing(action.mounts, found.inside, found.bound) if found.state is State.RUNNING else ()
        if lacking:
            words = ", ".join(each.path for each in lacking)
            why = "the engine binds in a mount namespace that this daemon's mounts do not reach"
            return Transient("MountNotSeen", f"{words} can't be seen from inside {action.name}: {why}")
        return Ok(found.id)
