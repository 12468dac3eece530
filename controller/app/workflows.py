"""The workflow runs and the plugins beside the reconcile loop."""

from controller.app.core import Core
from controller.app.loop import LoopParts
from controller.app.store import Fleet
from controller.loop.plugins import PluginKeeper
from controller.loop.workflows import WorkflowRuns
from controller.ports import Lease
from controller.service.services import Services
from controller.service.watch.announce import announcing
from controller.store.sql_store import SqlStore


def make_workflows(
    core: Core, store: SqlStore, lease: Lease, fleet: Fleet, services: Services, loop: LoopParts
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
    loop.reconcile_pass.report_plugins = plugins.passed
    core.undo.callback(plugins.stop)
    plugins.start()
    services.run_stages.wake = runs.wake
    loop.reconcile_pass.report_runs = runs.passed
    core.undo.callback(runs.stop)
    runs.start()
