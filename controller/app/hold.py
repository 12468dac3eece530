"""The hold beside the reconcile loop, where sandboxes may be started on another host if this one is lost."""

from controller.app.core import Core
from controller.engine.engine import DockerEngine
from controller.engine.kernel.sentinel import Sentinel
from controller.loop.fleet.leader import LeaderLease
from controller.loop.tasks.hold import HostHold


def make_sentinel(core: Core) -> Sentinel | None:
    """Return the sentinel, which watches again over what an earlier daemon held. None where nothing moves."""
    if core.settings.scheduler != "swarm" or not core.is_local:
        return None
    sentinel = Sentinel(core.settings.state_dir, core.settings.docker_host)
    sentinel.resume()
    return sentinel


def make_hold(core: Core, sentinel: Sentinel | None, leading: LeaderLease, engine: DockerEngine) -> None:
    """Start the thread that says what may run here, as long as the host's lease is renewed."""
    if sentinel is None:
        return
    hold = HostHold(sentinel, lambda: leading.renewed_at, lambda: core.last.now, engine.observe)
    core.undo.callback(hold.stop)
    hold.start()
