"""No engine: for a daemon that keeps no host, and answers for the sandboxes of others alone."""

from controller.engine.engine import DockerEngine
from controller.kinds.observed.observed import Observation
from controller.ports import StreamError, Wake

NOWHERE = "unix:///run/paddock/no-engine.sock"
_WHY = "this daemon keeps no host: its setting roles is without `host`"
_BLIND = Observation(blind=_WHY)


class AbsentEngine(DockerEngine):
    """An engine that is at no address, is never asked, and so never observed. A blind pass creates nothing."""

    def open(self, wake: Wake) -> None:
        """Start nothing."""

    def observe(self) -> Observation:
        return _BLIND

    def request_observation(self, *, full: bool = False) -> None:
        """Ask nothing."""

    def observe_now(self, *, full: bool = False) -> Observation:  # noqa: ARG002 - the port's signature
        return _BLIND

    def observe_container(self, container_id: str) -> str:  # noqa: ARG002 - the port's signature
        return _WHY

    def mark_used(self, container_id: str) -> None:
        raise StreamError(f"{container_id}: {_WHY}")

    def ping(self) -> str:
        return _WHY
