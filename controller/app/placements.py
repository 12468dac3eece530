"""The placements beside the reconcile loop, where a scheduler chooses the hosts of sandboxes."""

from controller.app.core import Core
from controller.app.loop import LoopParts
from controller.app.store import Membership
from controller.loop.fleet.placements import PlacementKeeper
from controller.policy.levels.levels import Policy
from controller.service.watch.announce import announcing


def make_placements(core: Core, fleet: Membership, policy: Policy, loop: LoopParts) -> None:
    """Start the thread that keeps them: reconcile passes and the scheduler wake it.

    Nothing without a scheduler, and nothing without an engine, which each host has to prepare for it.
    """
    if core.settings.scheduler != "swarm" or not core.settings.is_host:
        return

    def committed() -> None:
        loop.watches.notify()
        core.waker.wake()  # the sandbox may be this host's now

    from controller.scheduler.swarm.scheduler import SwarmScheduler

    scheduler = SwarmScheduler(core.settings.docker_host, fleet.store.instance_id)
    keeper = PlacementKeeper(
        scheduler,
        announcing(fleet.store, committed),
        place=fleet.place,
        policy=policy,
        clock=core.clock,
        changed=core.waker.wake,
        step_aside=fleet.step_aside,
    )
    loop.reconcile_pass.placements = keeper
    core.undo.callback(keeper.stop)
    keeper.start()
