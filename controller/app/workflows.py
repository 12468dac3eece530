"""The workflow runs, plugins and snapshots beside the reconcile loop."""

from controller.app.core import Core
from controller.app.loop import LoopParts
from controller.app.store import Membership
from controller.loop.plugins import PluginKeeper
from controller.loop.snapshots import SnapshotKeeper
from controller.loop.workflows import WorkflowRuns
from controller.policy.levels.levels import Policy
from controller.ports import Lease
from controller.ports.snapshots import Snapshots
from controller.service.services import Services
from controller.service.watch.announce import announcing
from controller.store.sql_store import SqlStore


def make_snapshots(
    core: Core, store: SqlStore, lease: Lease, snapshots: Snapshots, policy: Policy, loop: LoopParts
) -> None:
    """Start the thread that keeps this host's snapshots: reconcile passes wake it."""
    if not core.settings.is_host:
        return

    def committed() -> None:
        loop.watches.notify()
        core.waker.wake_soon()

    keeper = SnapshotKeeper(
        *(announcing(store, committed), snapshots, policy, core.clock), may_act=lease.is_held, meter=core.meter
    )
    loop.reconcile_pass.report_snapshots = keeper.passed
    core.undo.callback(keeper.stop)
    keeper.start()


def make_workflows(
    core: Core, store: SqlStore, lease: Lease, fleet: Membership, services: Services, loop: LoopParts
) -> None:
    """Start the threads that drive runs and keep plugins: reconcile passes wake them, and ended work does.

    Runs are driven by each host, and written as that; plugins by the daemon that leads.
    """

    def committed() -> None:
        loop.watches.notify()
        services.bridge.finished.notify()
        core.waker.wake_soon()  # a pass reads what was written; it decides nothing on it

    announced = announcing(store, committed)
    runs = WorkflowRuns(announced, services.run_stages, core.clock, may_act=lease.is_held, place=fleet.place)
    plugins = PluginKeeper(announcing(fleet.store, committed), services.plugins, core.clock, may_act=fleet.may_act)
    loop.reconcile_pass.report_plugins = plugins.observe_pass
    core.undo.callback(plugins.stop)
    plugins.start()
    services.run_stages.wake = runs.wake
    loop.reconcile_pass.report_runs = runs.observe_pass
    core.undo.callback(runs.stop)
    runs.start()
