"""The workflow runs beside the reconcile loop."""

from controller.app.core import Core
from controller.app.loop import LoopParts
from controller.loop.workflows import WorkflowRuns
from controller.ports import Lease
from controller.service.services import Services
from controller.service.watch.announce import announcing
from controller.store.sql_store import SqlStore


def make_workflows(core: Core, store: SqlStore, lease: Lease, services: Services, loop: LoopParts) -> None:
    """Start the thread that drives runs: reconcile passes and ended work wake it."""

    def committed() -> None:
        loop.watches.notify()
        services.bridge.finished.notify()
        core.waker.wake()  # the next pass reads what was written

    runs = WorkflowRuns(announcing(store, committed), services.run_stages, core.clock, may_act=lease.held)
    services.run_stages.wake = runs.wake
    loop.reconcile_pass.report_runs = runs.passed
    core.undo.callback(runs.stop)
    runs.start()
